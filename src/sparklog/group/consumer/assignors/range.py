"""``range``: each topic is cut into runs of neighbouring partitions, one a subscriber, in the order of their names.

Members that read the same topics get the same numbers of each, so that what was written with the same key stays
together. It remembers nothing: when members come or go, many partitions move.
"""

from __future__ import annotations

from sparklog.group.consumer.assignment import Partitions, TopicIdPartition
from sparklog.group.consumer.assignors.spec import Spec


def assign_ranges(spec: Spec) -> dict[str, Partitions]:
    """Within a topic no member has two partitions more than another."""
    shares: dict[str, list[TopicIdPartition]] = {each: [] for each in spec.members}
    for topic_id in spec.topics:
        subscribers = spec.subscribers(topic_id)
        partitions = spec.partitions(topic_id)
        start = 0
        for index, member_id in enumerate(subscribers):
            extra = index < len(partitions) % len(subscribers)
            end = start + len(partitions) // len(subscribers) + extra
            shares[member_id] += partitions[start:end]
            start = end
    return {member_id: frozenset(share) for member_id, share in shares.items()}
