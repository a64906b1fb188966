"""A consumer's membership in a classic group, pure: it says what to ask, and what the answers mean.

The states, and which may follow which::

    UNJOINED ──join()──▶ JOINING ──joined()──▶ SYNCING ──synced()──▶ STABLE
       ▲                    │                    │                     │
       └────────────────────┴────────────────────┴─────────────────────┘   an error, a leave; STABLE ──join()──▶ JOINING

Invariants:

1. ``owned`` is what the consumer was told that it has (``on_assigned``) and not yet to give up. It changes in
   ``gave_up`` and ``got`` alone, never behind the consumer's back.
2. Where the generation is lost (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, a poll that did not come), ``surrender``
   says LOST until ``gave_up``: another member may have those partitions already, so nothing is committed for them.
3. Eager: nothing is owned when JoinGroup goes out. Cooperative: what goes to others is given up first, and only after
   that does the member join again, so that the leader may assign it anew. What it claims is told with the generation
   of the assignment that gave it, so that a member that missed a generation is believed less.
4. An answer to a request of an earlier generation or member id changes nothing, nor does an assignment that was not
   taken before its generation was lost.
5. A fenced static member has lost its place for good, until it leaves: ``check`` raises FENCED_INSTANCE_ID. Would it
   join, it would fence the member that has the place now, and that one would fence it in turn. A static member never
   joins as a dynamic one: UNSUPPORTED_VERSION is raised where the coordinator knows no static members.

Times are seconds on a clock that never goes back. Facts: Kafka 3.9, ``AbstractCoordinator``, ``ConsumerCoordinator``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, TypedDict

from sparklog.client.consumer.assignors import Assignor, assignors_named
from sparklog.client.consumer.assignors.base import group_members
from sparklog.client.consumer.config import ConsumerConfig
from sparklog.errors import ApiError, ConfigError, ErrorCode
from sparklog.protocol.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from sparklog.protocol.subscription import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from sparklog.structs import TopicPartition

NO_GENERATION = -1
NO_MEMBER = ""
_FIRST_VERSION_OF_INSTANCES = 5
"""Of JoinGroup. An older one has no place for the instance id, and would make a dynamic member of a static one."""
"""Makes a request for the version that the coordinator speaks."""


class MemberState(Enum):
    """Where a member is on its way into a generation."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"


class Verdict(Enum):
    """What to do after an answer."""

    GO_ON = "it succeeded"
    AGAIN = "ask again, at once"
    BACK_OFF = "ask again after a pause"
    FIND_COORDINATOR = "look for the coordinator, then ask again"


class Generation(NamedTuple):
    """One life of the group as one member knows it."""

    number: int = NO_GENERATION
    member_id: str = NO_MEMBER
    protocol: str = ""


class Surrender(NamedTuple):
    """What is to be given up before the member joins: ``lost`` if others may have it already."""

    partitions: tuple[TopicPartition, ...]
    lost: bool


class Assigned(NamedTuple):
    """What a generation assigned to the member; it counts only while that is the member's generation."""

    generation: Generation
    partitions: tuple[TopicPartition, ...]


class Change(NamedTuple):
    """What a new assignment brings, and what it takes away."""

    added: tuple[TopicPartition, ...]
    revoked: tuple[TopicPartition, ...]


class GroupSettings(NamedTuple):
    """The consumer's settings of the same names; times in seconds."""

    group_id: str
    instance_id: str | None
    rack: str | None
    session_timeout: float
    heartbeat_interval: float
    max_poll_interval: float
    assignors: Sequence[Assignor]


def no_group() -> ConfigError:
    """What is wrong where a member is asked for and ``group.id`` is empty."""
    return ConfigError("group.id is not set; it names the group for which partitions and offsets are shared")


def group_settings(config: ConsumerConfig) -> GroupSettings:
    """How to be a member. Raises ConfigError without a group.id."""
    if not config.group_id:
        raise no_group()
    return GroupSettings(
        config.group_id,
        config.group_instance_id or None,
        config.client_rack or None,
        config.session_timeout_ms / 1000,
        config.heartbeat_interval_ms / 1000,
        config.max_poll_interval_ms / 1000,
        assignors_named(config.assignment_strategy),
    )


_REACTIONS = {
    ErrorCode.NONE: Verdict.GO_ON,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Verdict.BACK_OFF,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Verdict.FIND_COORDINATOR,
    ErrorCode.NOT_COORDINATOR: Verdict.FIND_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: Verdict.BACK_OFF,
    ErrorCode.NETWORK_EXCEPTION: Verdict.FIND_COORDINATOR,
    ErrorCode.REBALANCE_IN_PROGRESS: Verdict.AGAIN,
    ErrorCode.MEMBER_ID_REQUIRED: Verdict.AGAIN,
    ErrorCode.UNKNOWN_MEMBER_ID: Verdict.AGAIN,
    ErrorCode.ILLEGAL_GENERATION: Verdict.AGAIN,
}
"""What is not here is raised."""


_HEARD = dict.fromkeys(
    (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION), (MemberState.SYNCING, MemberState.STABLE)
)
"""The states in which a heartbeat's refusal counts, if not in STABLE alone. While SyncGroup waits, its own answer says
the rest; but where another broker coordinates the group by now, that answer may not come."""


class _Identity(TypedDict):
    """The fields that every request of a member has."""

    group_id: str
    member_id: str
    group_instance_id: str | None


class Membership:
    """One member. ``now`` is handed in wherever time counts."""

    def __init__(self, settings: GroupSettings, now: float) -> None:
        self.settings = settings
        self.cooperative = all(assignor.cooperative for assignor in settings.assignors)
        """The protocol that all of the strategies can do, as Kafka's client chooses it."""
        self.state = MemberState.UNJOINED
        self.generation = Generation()
        self.taken = Generation()
        """The one whose assignment was taken last. In its name transactions commit: without any they would pass."""
        self.owned: tuple[TopicPartition, ...] = ()
        self.is_leader = False
        self._lost = False
        self._fence: ApiError | None = None
        self._reason: str | None = "the consumer subscribed"
        self._last_assignment: tuple[tuple[TopicPartition, ...], int] = ((), NO_GENERATION)
        self._joined_topics: frozenset[str] = frozenset()
        self._polled_at = self._heard_at = self._beat_at = now

    # -- time

    def polled(self, now: float) -> None:
        """The consumer polled: it is alive."""
        self._polled_at = now

    def is_stuck(self, now: float) -> bool:
        """Whether the consumer has not polled for longer than ``max.poll.interval.ms``."""
        return self.state is MemberState.STABLE and now - self._polled_at > self.settings.max_poll_interval

    def has_expired(self, now: float) -> bool:
        """Whether the coordinator was not heard from for so long that it must have given the member up."""
        return self.state is MemberState.STABLE and now - self._heard_at > self.settings.session_timeout

    def wait_for_heartbeat(self, now: float) -> float | None:
        """Seconds to the next heartbeat, or to finding the consumer stuck; None while no heartbeat is due at all."""
        due = self._beat_at + self.settings.heartbeat_interval
        if self.state is MemberState.STABLE:
            due = min(due, self._polled_at + self.settings.max_poll_interval)
        elif self.state is not MemberState.SYNCING:  # in which the leader may take long over the assignment
            return None
        return max(0.0, due - now)

    # -- leaving and rejoining

    def check(self) -> None:
        """Raises ApiError(FENCED_INSTANCE_ID) once another consumer has the place of this static member."""
        if self._fence is not None:
            raise ApiError(self._fence.code, self._fence.reason)

    @property
    def needs_join(self) -> bool:
        return self._reason is not None or self.state is not MemberState.STABLE

    @property
    def reason(self) -> str:
        """Why the member joins; brokers log it."""
        return self._reason or ""

    @property
    def is_member(self) -> bool:
        """Whether the coordinator may know of the member."""
        return self.generation.member_id != NO_MEMBER

    def request_rejoin(self, reason: str) -> None:
        self._reason = self._reason or reason

    def lose(self, reason: str, *, member_too: bool = True) -> None:
        """The generation is over without us; what was owned is lost."""
        self._lost = bool(self.owned)
        self.generation = Generation(member_id=NO_MEMBER if member_too else self.generation.member_id)
        self.state = MemberState.UNJOINED
        self._reason = reason

    def surrender(self, wanted: Callable[[str], bool]) -> Surrender:
        """What the consumer must give up before ``join``; ``wanted`` tells of the topics that it subscribes to."""
        if self._lost:
            return Surrender(self.owned, lost=True)
        if not self.cooperative:
            return Surrender(self.owned, lost=False)
        return Surrender(tuple(tp for tp in self.owned if not wanted(tp.topic)), lost=False)

    def gave_up(self, partitions: Collection[TopicPartition]) -> None:
        """The consumer knows that these are no longer its own."""
        self.owned = tuple(tp for tp in self.owned if tp not in partitions)
        self._lost = self._lost and bool(self.owned)

    # -- joining

    def join(self, topics: Iterable[str], now: float) -> Callable[[int], JoinGroupRequest]:
        """The request to enter the next generation with these topics."""
        self.check()
        assert not self._lost, "what is lost is given up before JoinGroup"
        assert self.cooperative or not self.owned, "an eager member gives up everything before JoinGroup"
        self.state = MemberState.JOINING
        self.is_leader = False
        self._joined_topics = frozenset(topics)
        reason, self._reason = self.reason, None
        protocols = [(each.name, self._subscription(each)) for each in self.settings.assignors]
        self._beat_at = now
        identity = self._identity()

        def build(version: int) -> JoinGroupRequest:
            if self.settings.instance_id is not None and version < _FIRST_VERSION_OF_INSTANCES:
                raise ApiError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"the coordinator of group {self.settings.group_id!r} is older than Kafka 2.3 and knows no static"
                    f" members (JoinGroup {version}, {_FIRST_VERSION_OF_INSTANCES} is needed): leave group.instance.id"
                    " out, or upgrade the broker",
                )
            return JoinGroupRequest(
                version=version,
                **identity,
                session_timeout_ms=int(self.settings.session_timeout * 1000),
                rebalance_timeout_ms=int(self.settings.max_poll_interval * 1000),
                protocol_type=PROTOCOL_TYPE,
                protocols=[_Protocol(name=name, metadata=metadata) for name, metadata in protocols],
                reason=reason[:255],
            )

        return build

    def _subscription(self, assignor: Assignor) -> bytes:
        last, number = self._last_assignment
        owned = self.owned if self.cooperative else ()
        return encode_subscription(
            Subscription(
                tuple(sorted(self._joined_topics)),
                assignor.user_data(last, number),
                owned,
                number if self.cooperative else self.generation.number,
                self.settings.rack,
            )
        )

    def joined(self, answer: JoinGroupResponse) -> Verdict:
        """JoinGroup's answer. Raises ApiError for what will not pass."""
        code = ErrorCode(answer.error_code)
        if self.state is not MemberState.JOINING:
            return Verdict.AGAIN
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.generation = Generation(member_id=answer.member_id)
            return Verdict.AGAIN
        if code is not ErrorCode.NONE:
            return self._failed("JoinGroup", code)
        self.state = MemberState.SYNCING
        self.generation = Generation(answer.generation_id, answer.member_id, answer.protocol_name or "")
        self.is_leader = answer.leader == answer.member_id
        return Verdict.GO_ON

    def assignments(self, answer: JoinGroupResponse, partition_counts: Mapping[str, int]) -> dict[str, bytes]:
        """The leader's work: each member's share of the topics that exist; empty where the old one is to be kept."""
        if getattr(answer, "skip_assignment", False):
            return {}
        assignor = next(each for each in self.settings.assignors if each.name == answer.protocol_name)
        assigned = assignor.assign(partition_counts, group_members(answer))
        return {
            member_id: encode_assignment(Assignment(tuple(partitions))) for member_id, partitions in assigned.items()
        }

    def sync(self, assignments: Mapping[str, bytes]) -> Callable[[int], SyncGroupRequest]:
        """The request for the assignment; the leader brings those of all."""
        identity, generation = self._identity(), self.generation

        def build(version: int) -> SyncGroupRequest:
            return SyncGroupRequest(
                version=version,
                **identity,
                generation_id=generation.number,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=generation.protocol,
                assignments=[_Share(member_id=member, assignment=share) for member, share in assignments.items()],
            )

        return build

    def synced(self, sent: Generation, answer: SyncGroupResponse, now: float) -> Verdict:
        """SyncGroup's answer. On GO_ON ``take`` what it assigns."""
        if sent != self.generation or self.state is not MemberState.SYNCING:
            return Verdict.AGAIN
        code = ErrorCode(answer.error_code)
        if code is not ErrorCode.NONE:
            return self._failed("SyncGroup", code)
        self.state = MemberState.STABLE
        self._heard_at = self._beat_at = now
        return Verdict.GO_ON

    def take(self, assigned: Assigned, wanted: Callable[[str], bool]) -> Change | None:
        """What the assignment still changes, to be told and then confirmed with ``gave_up`` and ``got``.

        None where it counts no more, or the subscription has changed meanwhile: the member joins again.
        """
        generation, partitions = assigned
        if generation != self.generation or self.state is not MemberState.STABLE:
            return None
        if not all(wanted(tp.topic) for tp in partitions):
            self.request_rejoin("the assignment names topics that are no longer subscribed")
            return None
        given, owned = set(partitions), set(self.owned)
        revoked = tuple(tp for tp in self.owned if tp not in given)
        added = tuple(tp for tp in partitions if tp not in owned)
        self._last_assignment = (partitions, generation.number)
        self.taken = generation
        if revoked:
            self.request_rejoin(f"gave up {len(revoked)} partitions for others")
        return Change(added, revoked)

    def got(self, assigned: Assigned) -> None:
        """The consumer knows that these are its own; they are lost already where their generation is over."""
        self.owned = tuple(dict.fromkeys(self.owned + assigned.partitions))
        self._lost = assigned.generation != self.generation and bool(self.owned)

    # -- being a member

    def heartbeat(self, now: float) -> Callable[[int], HeartbeatRequest]:
        """The request that says that the member lives."""
        self._beat_at = now
        identity, generation = self._identity(), self.generation.number
        return lambda version: HeartbeatRequest(version=version, **identity, generation_id=generation)

    def heartbeat_answered(self, sent: Generation, code: ErrorCode, now: float) -> Verdict:
        """Raises ApiError for what will not pass."""
        if sent != self.generation or self.state not in _HEARD.get(code, (MemberState.STABLE,)):
            return Verdict.GO_ON
        if code not in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
            self._heard_at = now
        if code is ErrorCode.NONE:
            return Verdict.GO_ON
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.request_rejoin("the group is rebalancing")
            return Verdict.GO_ON
        return self._failed("Heartbeat", code)

    def commit_refused(self, sent: Generation, code: ErrorCode) -> Verdict:
        """What a commit's refusal says of the membership. Raises ApiError if the commit cannot succeed any more."""
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
            if sent == self.generation:
                self._doubt(code)
            raise ApiError(
                code,
                f"group {self.settings.group_id!r} has begun another generation, so these offsets are not committed and"
                " the records are delivered again, perhaps to another member; poll more often, or raise"
                " max.poll.interval.ms, or lower max.poll.records",
            )
        if code is ErrorCode.FENCED_INSTANCE_ID and sent == self.generation:
            self._refuse("OffsetCommit", code)
        if code not in _REACTIONS:
            raise ApiError(code, f"OffsetCommit of group {self.settings.group_id!r}: {code.name}")
        return _REACTIONS[code]

    def _doubt(self, code: ErrorCode) -> None:
        """A commit was refused. A member that is entering a generation goes on: JoinGroup's or SyncGroup's answer will
        say what it means, and beginning again would hold up the whole group, endlessly if it commits often."""
        if code is ErrorCode.UNKNOWN_MEMBER_ID or self.state not in (MemberState.JOINING, MemberState.SYNCING):
            self._failed("OffsetCommit", code)
            self.request_rejoin("the group is rebalancing")

    def leave(self) -> Callable[[int], LeaveGroupRequest] | None:
        """Leave for good; the request that tells the coordinator, or None for a static member, who keeps its place."""
        member_id = self.generation.member_id
        group_id = self.settings.group_id
        self.lose("the consumer left")
        self._fence = None
        if member_id == NO_MEMBER or self.settings.instance_id is not None:
            return None
        leaving = _Leaving(member_id=member_id, group_instance_id=None, reason="the consumer was closed")
        return lambda version: LeaveGroupRequest(
            version=version, group_id=group_id, member_id=member_id, members=[leaving]
        )

    def _identity(self) -> _Identity:
        return {
            "group_id": self.settings.group_id,
            "member_id": self.generation.member_id,
            "group_instance_id": self.settings.instance_id,
        }

    def _failed(self, api: str, code: ErrorCode) -> Verdict:
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.lose(f"{api}: {code.name}")
        elif code is ErrorCode.ILLEGAL_GENERATION:
            self.lose(f"{api}: {code.name}", member_too=False)
        elif code not in _REACTIONS:
            self._refuse(api, code)
        elif self.state in (MemberState.JOINING, MemberState.SYNCING):
            self.state = MemberState.UNJOINED
            self.request_rejoin(f"{api}: {code.name}")
        return _REACTIONS[code]

    def _refuse(self, api: str, code: ErrorCode) -> None:
        self.lose(f"{api}: {code.name}")
        refusal = ApiError(code, f"{api} in group {self.settings.group_id!r}: {code.name}{_HINTS.get(code, '')}")
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self._fence = refusal
        raise refusal


_Protocol = JoinGroupRequest.JoinGroupRequestProtocol
_Share = SyncGroupRequest.SyncGroupRequestAssignment
_Leaving = LeaveGroupRequest.MemberIdentity
_HINTS = {
    ErrorCode.FENCED_INSTANCE_ID: ": another consumer has taken this group.instance.id; give each its own",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: ": its members share no partition.assignment.strategy with this one",
    ErrorCode.INVALID_SESSION_TIMEOUT: ": session.timeout.ms is outside of what the broker allows"
    " (group.min.session.timeout.ms to group.max.session.timeout.ms)",
    ErrorCode.GROUP_MAX_SIZE_REACHED: ": the group has as many members as the broker allows (group.max.size)",
}
