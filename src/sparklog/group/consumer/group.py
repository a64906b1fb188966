"""ConsumerGroup: all that counts in one group of the consumer protocol, and all that the log keeps of it.

Three epochs drive it. The group's goes up whenever its members, their subscriptions or the topics change. The
assignment's follows when a target has been made for that: what each member shall have. A member's follows when the
member has given up what it shall not have any more. Invariants:

1. A partition is held (assigned, or being revoked) by at most one member.
2. A member's epoch is never greater than the assignment's, nor that than the group's.
3. Only members are in the target; every partition of a subscribed topic is in it once.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum

from sparklog.errors import ApiError
from sparklog.group.consumer.assignment import NONE, Partitions, TopicIdPartition
from sparklog.group.consumer.assignors.spec import MemberSpec, Spec
from sparklog.group.consumer.member import ConsumerMember
from sparklog.group.consumer.topics import TopicDescription, Topics

NO_VERSION = -1


class ConsumerGroupState(Enum):
    """The value is the name that ConsumerGroupDescribe and ListGroups show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(slots=True)
class ConsumerGroup:
    """Changed only as a draft, a copy that takes its place when the log has what differs.

    ``topics`` are those subscribed to, as they were when the group's epoch last went up; ``topics_version``, which the
    log does not have, is that of the broker's versions with which they were compared last. ``owners`` and ``instances``
    follow from the members.
    """

    group_id: str
    epoch: int = 0
    assignment_epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    target: dict[str, Partitions] = field(default_factory=dict)
    topics: dict[str, TopicDescription] = field(default_factory=dict)
    topics_version: int = field(default=NO_VERSION, compare=False)
    owners: dict[TopicIdPartition, str] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)

    def copy(self) -> ConsumerGroup:
        return replace(
            self,
            members={**self.members},
            target={**self.target},
            topics={**self.topics},
            owners={**self.owners},
            instances={**self.instances},
        )

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(each.is_reconciled(self.assignment_epoch) for each in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def has_only_classic_members(self) -> bool:
        return bool(self.members) and all(each.classic is not None for each in self.members.values())

    def put(self, member: ConsumerMember) -> None:
        """Take in the member, new or changed."""
        self._let_go(self.members.get(member.member_id))
        self.members[member.member_id] = member
        for each in member.held:
            assert each not in self.owners, f"{each} of {member.member_id} is held by {self.owners[each]}"
            self.owners[each] = member.member_id
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        self._let_go(member)
        self.target.pop(member_id, None)

    def _let_go(self, member: ConsumerMember | None) -> None:
        if member is None:
            return
        for each in member.held:
            del self.owners[each]
        if member.instance_id is not None and self.instances.get(member.instance_id) == member.member_id:
            del self.instances[member.instance_id]

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        holder = self.instances.get(instance_id)
        return None if holder is None else self.members[holder]

    def is_free(self, partition: TopicIdPartition) -> bool:
        return partition not in self.owners

    def awaits_others(self, member: ConsumerMember) -> bool:
        """Whether some partition that the member shall have is still held by another member."""
        missing = self.target.get(member.member_id, NONE) - member.assigned
        return any(each in self.owners for each in missing)

    def reads(self, topic: str) -> bool:
        """Whether some member subscribes to the topic, by name or by an expression that matched it."""
        return topic in self.topics or any(topic in each.topics for each in self.members.values())

    def assignor(self, offered: tuple[str, ...]) -> str:
        """The one that most members want, among those ``offered``; the first of these if none does."""
        votes = Counter(each.assignor for each in self.members.values() if each.assignor in offered)
        return max(offered, key=lambda name: votes[name])

    def describe_topics(self, topics: Topics) -> dict[str, TopicDescription]:
        """What the members subscribe to now, as far as it exists."""
        names = {name for member in self.members.values() for name in subscription(member, topics)}
        return {name: found for name in sorted(names) if (found := topics.topic(name)) is not None}

    def spec(self, topics: Topics) -> Spec:
        """What an assignor must know."""
        members = {
            member.member_id: MemberSpec(
                member.instance_id,
                frozenset(self.topics[name].topic_id for name in subscription(member, topics) if name in self.topics),
                self.target.get(member.member_id, NONE),
            )
            for member in self.members.values()
        }
        return Spec(members, {each.topic_id: each.partition_count for each in self.topics.values()})


def subscription(member: ConsumerMember, topics: Topics) -> frozenset[str]:
    """The topics that the member wants to read, those that its expression matches among them.

    An expression is checked when a member brings it; one that cannot be read after all came from another's log.
    """
    if member.regex is None:
        return member.topics
    with suppress(ApiError):
        return member.topics | topics.matching(member.regex)
    return member.topics
