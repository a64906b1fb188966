"""ConsumerGroup: all that counts in one group of the consumer protocol, and all that the log keeps of it.

Three epochs drive it. The group's goes up whenever its members, their subscriptions or the topics change. The
assignment's follows when a target has been made for that: what each member shall have. A member's follows when the
member has given up what it shall not have any more. Invariants:

1. A partition is held (assigned, or being revoked) by at most one member.
2. A member's epoch is never greater than the assignment's, nor that than the group's.
3. Only members are in the target; every partition of a subscribed topic is in it once.
4. Members that name the same topics share one set of the names, which is counted once. So what a member costs that
   joins is what it brings anew, and not what all of them name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from sparklog.errors import ApiError
from sparklog.group.consumer.assignment import NONE, RUN, Partitions, TopicIdPartition
from sparklog.group.consumer.assignors.spec import MemberSpec, Spec
from sparklog.group.consumer.member import ConsumerMember
from sparklog.group.consumer.topics import TopicDescription, Topics
from sparklog.protocol.slices import Steps

NO_VERSION = -1
_NOTHING: frozenset[str] = frozenset()


class ConsumerGroupState(Enum):
    """The value is the name that ConsumerGroupDescribe and ListGroups show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class _Sharers(NamedTuple):
    """The set of names that ``members`` share."""

    names: frozenset[str]
    members: int


class View(NamedTuple):
    """The topics, for a decision that takes many steps: what may change meanwhile is as it was when it began.

    ``matched`` is what the members' expressions match. A topic that changes meanwhile has another ``version``, so the
    group looks again with the next heartbeat.
    """

    version: int
    topic: Callable[[str], TopicDescription | None]
    matched: dict[str, frozenset[str]]


@dataclass(slots=True)
class ConsumerGroup:
    """Changed only as a draft, a copy that takes its place when the log has what differs.

    ``topics`` are those subscribed to, as they were when the group's epoch last went up; ``topics_version``, which the
    log does not have, is that of the broker's versions with which they were compared last. What follows from the
    members: ``owners``, ``instances``, ``subscriptions``, each set of names with how many members name just that, and
    ``names``, each with how many of these sets hold it.
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
    subscriptions: dict[frozenset[str], _Sharers] = field(default_factory=dict)
    names: Counter[str] = field(default_factory=Counter)

    def copy(self) -> ConsumerGroup:
        return replace(
            self,
            members={**self.members},
            target={**self.target},
            topics={**self.topics},
            owners={**self.owners},
            instances={**self.instances},
            subscriptions={**self.subscriptions},
            names=self.names.copy(),
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
        """Take in the member, new or changed. What it holds as before costs next to nothing."""
        old = self.members.get(member.member_id)
        if old is None or old.topics is not member.topics:
            member = replace(member, topics=self._subscribe(member.topics))
            if old is not None:
                self._unsubscribe(old.topics)
        self.members[member.member_id] = member
        had = NONE if old is None else old.held
        gained = member.held - had
        assert len(gained.difference(self.owners)) == len(gained), f"{member.member_id} gets what another one holds"
        self._let_go(had - member.held)
        self.owners.update(dict.fromkeys(gained, member.member_id))
        if old is not None and old.instance_id != member.instance_id:
            self._give_up_instance(old)
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        self._unsubscribe(member.topics)
        self._let_go(member.held)
        self._give_up_instance(member)
        self.target.pop(member_id, None)

    def _let_go(self, partitions: Partitions) -> None:
        for each in partitions:
            del self.owners[each]

    def _give_up_instance(self, member: ConsumerMember) -> None:
        if member.instance_id is not None and self.instances.get(member.instance_id) == member.member_id:
            del self.instances[member.instance_id]

    def _subscribe(self, names: frozenset[str]) -> frozenset[str]:
        """One more member names these; returns the set that all of them share."""
        shared, members = self.subscriptions.get(names, _Sharers(names, 0))
        self.subscriptions[shared] = _Sharers(shared, members + 1)
        if members == 0:
            self.names.update(shared)
        return shared

    def _unsubscribe(self, names: frozenset[str]) -> None:
        shared, members = self.subscriptions[names]
        if members > 1:
            self.subscriptions[shared] = _Sharers(shared, members - 1)
            return
        del self.subscriptions[shared]
        for name in shared:
            self.names[name] -= 1
            if not self.names[name]:
                del self.names[name]

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        holder = self.instances.get(instance_id)
        return None if holder is None else self.members[holder]

    def is_free(self, partition: TopicIdPartition) -> bool:
        return partition not in self.owners

    def awaits_others(self, member: ConsumerMember) -> bool:
        """Whether some partition that the member shall have is still held by another member."""
        missing = self.target.get(member.member_id, NONE) - member.assigned
        return len(missing.difference(self.owners)) < len(missing)

    def reads(self, topic: str) -> bool:
        """Whether some member subscribes to the topic, by name or by an expression that matched it."""
        return topic in self.topics or topic in self.names

    def assignor(self, offered: tuple[str, ...]) -> str:
        """The one that most members want, among those ``offered``; the first of these if none does."""
        votes = Counter(each.assignor for each in self.members.values() if each.assignor in offered)
        return max(offered, key=lambda name: votes[name])

    def view(self, topics: Topics) -> View:
        """The topics as they are in this turn, to be looked at in later ones.

        An expression is checked when a member brings it; one that cannot be read after all came from another's log.
        """
        matched: dict[str, frozenset[str]] = {}
        for regex in {each.regex for each in self.members.values() if each.regex is not None}:
            with suppress(ApiError):
                matched[regex] = topics.matching(regex)
        return View(topics.version, topics.topic, matched)

    def describe_topics(self, view: View) -> Steps[dict[str, TopicDescription]]:
        """What the members subscribe to, by name or by an expression, as far as it exists."""
        described: dict[str, TopicDescription] = {}
        for names in (self.names, *view.matched.values()):
            for count, name in enumerate(names):
                if name not in described and (found := view.topic(name)) is not None:
                    described[name] = found
                if count % RUN == RUN - 1:
                    yield
        return described

    def spec(self, view: View) -> Steps[Spec]:
        """What an assignor must know."""
        members: dict[str, MemberSpec] = {}
        ids: dict[tuple[frozenset[str], frozenset[str]], frozenset[UUID]] = {}
        for member_id, member in self.members.items():
            wanted = (member.topics, view.matched.get(member.regex or "", _NOTHING))
            if wanted not in ids:
                ids[wanted] = yield from self._ids_of(wanted)
            members[member_id] = MemberSpec(member.instance_id, ids[wanted], self.target.get(member_id, NONE))
            yield
        return Spec(members, {each.topic_id: each.partition_count for each in self.topics.values()})

    def _ids_of(self, wanted: tuple[frozenset[str], ...]) -> Steps[frozenset[UUID]]:
        """The topics that are named in any of these sets, as far as they exist."""
        found: list[UUID] = []
        for names in wanted:
            for count, name in enumerate(names):
                if name in self.topics:
                    found.append(self.topics[name].topic_id)
                if count % RUN == RUN - 1:
                    yield
        return frozenset(found)
