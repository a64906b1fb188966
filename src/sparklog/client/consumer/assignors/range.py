"""Range: of each topic every member gets a run of neighbouring partitions, the first members one more.

Topics with the same number of partitions and the same subscribers are co-partitioned: a member has the same numbers of
each. Racks are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparklog.client.consumer.assignors.base import Assigned, GroupMember, partitions_of, ranked, subscribed
from sparklog.structs import TopicPartition


class RangeAssignor:
    """Kafka's ``range``."""

    name = "range"
    cooperative = False

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:  # noqa: ARG002
        return None

    def assign(self, partition_counts: Mapping[str, int], members: Sequence[GroupMember]) -> Assigned:
        order = ranked(members)
        assigned: Assigned = {member.member_id: [] for member in order}
        for topic in sorted(subscribed(order) & partition_counts.keys()):
            readers = [member.member_id for member in order if topic in member.subscription.topics]
            partitions = partitions_of(topic, partition_counts[topic])
            share, extra = divmod(len(partitions), len(readers))
            start = 0
            for number, reader in enumerate(readers):
                end = start + share + (number < extra)
                assigned[reader] += partitions[start:end]
                start = end
        return assigned
