"""Round robin: the partitions of all topics in order, to the members in turn, but for those that do not subscribe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparklog.client.consumer.assignors.base import Assigned, GroupMember, partitions_of, ranked, subscribed
from sparklog.structs import TopicPartition


class RoundRobinAssignor:
    """Kafka's ``roundrobin``."""

    name = "roundrobin"
    cooperative = False

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:  # noqa: ARG002
        return None

    def assign(self, partition_counts: Mapping[str, int], members: Sequence[GroupMember]) -> Assigned:
        order = ranked(members)
        wants = [frozenset(member.subscription.topics) for member in order]
        assigned: Assigned = {member.member_id: [] for member in order}
        turn = 0
        for topic in sorted(subscribed(order) & partition_counts.keys()):
            for tp in partitions_of(topic, partition_counts[topic]):
                while topic not in wants[turn]:
                    turn = (turn + 1) % len(order)
                assigned[order[turn].member_id].append(tp)
                turn = (turn + 1) % len(order)
        return assigned
