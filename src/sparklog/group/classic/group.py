"""What a coordinator knows of one group. Values and their bookkeeping; what to do when is ``machine``'s business.

The classic protocol's states and their transitions, as in Kafka 3.9's ``ClassicGroupState``::

    EMPTY ──a member joins──▶ PREPARING_REBALANCE ◀─────────────────────────────┐
      ▲                         │        │                                      │ a member joins, leaves, fails
      └──everybody has left─────┘        └──all have joined, or time is up──▶ COMPLETING_REBALANCE
                                ▲                                               │ the leader's assignment is stored
                                └──a member joins, leaves, fails──── STABLE ◀───┘

Any state becomes DEAD when the partition that holds the group moves to another broker, EMPTY also when the group is
deleted or forgotten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import NamedTuple

from sparklog.structs import TopicPartition

Waiter = Hashable
"""The mark of a held request; handed in with the request, handed back with its answer, never looked at."""

NO_TIMESTAMP = -1


class GroupState(Enum):
    """The value is the name that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


PREDECESSORS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}


class Protocol(NamedTuple):
    """An assignor that a member supports, and what the member tells it; opaque to the coordinator."""

    name: str
    metadata: bytes


def size_of(protocols: Iterable[Protocol]) -> int:
    """Bytes of the metadata, and characters of the names."""
    return sum(len(each.name) + len(each.metadata) for each in protocols)


class CommittedOffset(NamedTuple):
    """How far a group has read one partition. ``leader_epoch`` is -1 where the consumer did not say."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP


@dataclass(slots=True)
class Member:
    """One member. ``protocols`` stand in the member's order of preference.

    ``deadline_ms`` is when it is given up for lost. A member that waits for an answer is not expected to heartbeat,
    except a new one, which could not: it does not know its id, and may be gone.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    deadline_ms: int = 0
    is_new: bool = False

    def touch(self, now_ms: int) -> int:
        """The member is alive: its session runs anew, until the time returned."""
        self.deadline_ms = now_ms + self.session_timeout_ms
        return self.deadline_ms

    def heard_from(self, now_ms: int) -> None:
        """As ``touch``, for what the member may do at any time; never brings the deadline of a new one nearer."""
        if not self.is_new:
            self.touch(now_ms)

    @property
    def size(self) -> int:
        """Bytes, or characters, of what the client chose."""
        texts = (self.member_id, self.instance_id or "", self.client_id)
        return sum(map(len, texts)) + size_of(self.protocols) + len(self.assignment)

    def metadata(self, protocol: str | None) -> bytes:
        """What the member tells this assignor; empty if it does not support it."""
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        """The first of the member's protocols that is a candidate."""
        return next(each.name for each in self.protocols if each.name in candidates)


@dataclass(slots=True)
class Group:
    """One group. Times are in milliseconds: a deadline on the clock that never goes back, a timestamp on the wall's.

    ``joining`` and ``syncing`` hold the held JoinGroup and SyncGroup requests, by member id. ``pending``
    holds ids that were given out to members which have not come back with them, each with its deadline.
    ``initial_delay_left_ms`` is set while a rebalance from EMPTY waits for more members to show up. ``is_assigned``
    says that the leader's assignment is here and being written; a second one must not overtake it. ``has_new_ids``:
    static members have other ids than the log gives them. ``subscribed`` are
    the topics that the generation reads, None where that is not known. ``pending_commits`` counts the commits of each
    partition that are being written; what else keeps a partition's offset unstable counts here too.
    """

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    joining: dict[str, Waiter] = field(default_factory=dict)
    syncing: dict[str, Waiter] = field(default_factory=dict)
    pending_sync: set[str] = field(default_factory=set)
    join_deadline_ms: int | None = None
    sync_deadline_ms: int | None = None
    initial_delay_left_ms: int | None = None
    new_member_added: bool = False
    is_assigned: bool = False
    has_new_ids: bool = False
    state_timestamp_ms: int = NO_TIMESTAMP
    subscribed: frozenset[str] | None = None
    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    pending_commits: Counter[TopicPartition] = field(default_factory=Counter)
    _support: Counter[str] = field(default_factory=Counter)
    _size: int = 0

    @property
    def size(self) -> int:
        """Bytes, or characters, that the clients chose of what is kept of the members and of those about to join."""
        return self._size + len(self.group_id) if self.members or self.pending else 0

    @property
    def assigned(self) -> int:
        """Bytes of the members' assignments."""
        return sum(len(each.assignment) for each in self.members.values())

    @property
    def is_unused(self) -> bool:
        """Whether forgetting the group loses nothing, in memory or on disk."""
        return self.state is GroupState.DEAD or (self.is_vacant and not self.generation)

    @property
    def is_vacant(self) -> bool:
        """Whether the group has no member, none that is about to join, and no offset."""
        return self.state is GroupState.EMPTY and not (self.pending or self.offsets or self.pending_commits)

    @property
    def partitions(self) -> list[TopicPartition]:
        """Those with an offset, or with a commit that is being written."""
        return [*self.offsets, *(tp for tp in self.pending_commits if tp not in self.offsets)]

    @property
    def can_rebalance(self) -> bool:
        return self.state in PREDECESSORS[GroupState.PREPARING_REBALANCE]

    @property
    def all_joined(self) -> bool:
        """Whether every member has (re)joined, and no other is about to."""
        return len(self.joining) == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    def transition_to(self, state: GroupState) -> None:
        if self.state not in PREDECESSORS[state]:
            raise AssertionError(f"group {self.group_id}: {self.state.value} does not lead to {state.value}")
        self.state = state

    def become(self, other: Group) -> None:
        """Take over the state of the ``other`` group, which holds no request; keep the offsets."""
        kept = ("offsets", "pending_commits")
        for each in fields(self):
            if each.name not in kept:
                setattr(self, each.name, getattr(other, each.name))

    def add(self, member: Member) -> None:
        """A member of known id; the first to come leads."""
        self.members[member.member_id] = member
        self._size += member.size
        self.expect_no_more(member.member_id)
        self._support.update({each.name for each in member.protocols})
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> Member:
        """Forget a member; its held requests must have been answered."""
        member = self.members.pop(member_id)
        self._size -= member.size
        self._withdraw_support(member)
        if member.instance_id is not None:
            del self.instances[member.instance_id]
        self.pending_sync.discard(member_id)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def expect(self, member_id: str, deadline_ms: int) -> None:
        """A member of this id, which was given out, is about to join."""
        self.pending[member_id] = deadline_ms
        self._size += len(member_id)

    def expect_no_more(self, member_id: str) -> bool:
        """Whether a member of this id was about to join."""
        was_expected = self.pending.pop(member_id, None) is not None
        self._size -= len(member_id) if was_expected else 0
        return was_expected

    def turn_away(self, member_id: str) -> None:
        """Refuse a place to this id; no request may be held under it."""
        self.expect_no_more(member_id)
        if member_id in self.members:
            self.remove(member_id)

    def set_protocols(self, member: Member, protocols: tuple[Protocol, ...]) -> None:
        self._withdraw_support(member)
        self._support.update({each.name for each in protocols})
        self._size += size_of(protocols) - size_of(member.protocols)
        member.protocols = protocols

    def assign(self, member: Member, assignment: bytes) -> None:
        """The member's share is this one."""
        self._size += len(assignment) - len(member.assignment)
        member.assignment = assignment

    def _withdraw_support(self, member: Member) -> None:
        support = self._support
        for name in {each.name for each in member.protocols}:
            support[name] -= 1
            if not support[name]:
                del support[name]

    def replace_id(self, old_id: str, new_id: str) -> Member:
        """Give a static member's place, assignment and leadership to its new id."""
        member = self.members[old_id]
        member.member_id = new_id
        self._size += len(new_id) - len(old_id)
        self.members = {each.member_id: each for each in self.members.values()}
        if member.instance_id is not None:
            self.instances[member.instance_id] = new_id
        if old_id in self.pending_sync:
            self.pending_sync.remove(old_id)
            self.pending_sync.add(new_id)
        if self.leader == old_id:
            self.leader = new_id
        return member

    def holder(self, instance_id: str | None) -> str | None:
        """The id of the static member that holds this instance id."""
        return None if instance_id is None else self.instances.get(instance_id)

    def settle(self, partitions: Iterable[TopicPartition]) -> None:
        """One commit of each of these is written, or has failed."""
        pending = self.pending_commits
        for tp in partitions:
            left = pending.pop(tp, 0) - 1
            if left > 0:
                pending[tp] = left

    def supports(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        """Whether a member with these protocols could work with those that are here."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        size = len(self.members)
        return self.protocol_type == protocol_type and any(self._support[each.name] == size for each in protocols)

    def select_protocol(self) -> str:
        """The protocol, among those that every member supports, that most members like best; the oldest breaks ties."""
        size = len(self.members)
        candidates = {name for name, count in self._support.items() if count == size}
        votes = Counter(each.vote(candidates) for each in self.members.values())
        return votes.most_common(1)[0][0]

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has rejoined, or else choose a member that has. False if none has."""
        if self.leader not in self.joining:
            joined = next((each for each in self.members if each in self.joining), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    def next_deadline_ms(self) -> int | None:
        """When ``expire`` is due if no request comes before; None if it never is."""
        deadlines = [*self.pending.values()]
        deadlines += [each.deadline_ms for each in self.members.values() if not self.is_waiting(each)]
        deadlines += [each for each in (self.join_deadline_ms, self.sync_deadline_ms) if each is not None]
        return min(deadlines, default=None)

    def is_waiting(self, member: Member) -> bool:
        """Whether the member waits for an answer and so owes no heartbeat."""
        return not member.is_new and (member.member_id in self.joining or member.member_id in self.syncing)
