"""``range``: each topic is cut into runs of neighbouring partitions, one a subscriber, in the order of their names.

Members that read the same topics get the same numbers of each, so that what was written with the same key stays
together. It remembers nothing: when members come or go, many partitions move.
"""

from __future__ import annotations

from sparklog.group.consumer.assignment import Partitions, TopicIdPartition
from sparklog.group.consumer.assignors.spec import Spec
from sparklog.protocol.slices import Steps


def assign_ranges(spec: Spec) -> Steps[dict[str, Partitions]]:
    """Within a topic no member has two partitions more than another."""
    shares: dict[str, list[TopicIdPartition]] = {each: [] for each in spec.members}
    for topic_id, readers in (yield from spec.readers()).items():
        count, start = spec.topics[topic_id], 0
        for index, member_id in enumerate(readers):
            end = start + count // len(readers) + (index < count % len(readers))
            shares[member_id] += [TopicIdPartition(topic_id, number) for number in range(start, end)]
            start = end
        yield
    assigned: dict[str, Partitions] = {}
    for member_id, share in shares.items():
        assigned[member_id] = frozenset(share)
        yield
    return assigned
