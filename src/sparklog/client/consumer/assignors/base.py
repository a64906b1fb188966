"""What every strategy is handed and gives back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from sparklog.protocol.messages import JoinGroupResponse
from sparklog.protocol.subscription import Subscription, decode_subscription
from sparklog.structs import TopicPartition

Assigned = dict[str, list[TopicPartition]]
"""The partitions of each member, under its member id; every member is there."""


class GroupMember(NamedTuple):
    """One member as the leader sees it."""

    member_id: str
    instance_id: str | None
    subscription: Subscription

    @property
    def rank(self) -> tuple[bool, str]:
        """Kafka's order of members: the static first, by instance id; then the others, by member id."""
        return (True, self.member_id) if self.instance_id is None else (False, self.instance_id)


def group_members(answer: JoinGroupResponse) -> list[GroupMember]:
    """The members that JoinGroup's answer names to the leader."""
    return [
        GroupMember(each.member_id, each.group_instance_id, decode_subscription(each.metadata))
        for each in answer.members
    ]


class Assignor(Protocol):
    """A strategy. ``cooperative`` ones can leave a member what it keeps while the rest moves."""

    name: str
    cooperative: bool

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        """What a member adds to its subscription: ``owned`` was its last assignment, of that generation."""

    def assign(self, partition_counts: Mapping[str, int], members: Sequence[GroupMember]) -> Assigned:
        """Share out the topics. A topic that is not in ``partition_counts`` does not exist."""


def ranked(members: Iterable[GroupMember]) -> list[GroupMember]:
    """The members in Kafka's order."""
    return sorted(members, key=lambda member: member.rank)


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


def subscribed(members: Iterable[GroupMember]) -> set[str]:
    """Every topic that a member subscribes to."""
    return {topic for member in members for topic in member.subscription.topics}
