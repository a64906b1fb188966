"""What goes into the machine and what comes out: plain values, free of wire versions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from sparklog.errors import ErrorCode
from sparklog.group.classic.group import CommittedOffset, Protocol, Waiter
from sparklog.group.deletion_epoch import DeletionEpoch
from sparklog.record.control import ProducerIdAndEpoch
from sparklog.structs import TopicPartition

NO_MEMBER_ID = ""
NO_GENERATION = -1
WITHOUT_END = DeletionEpoch()
"""For offsets of partitions that nobody deletes."""


class JoinRequest(NamedTuple):
    """``needs_member_id``: a new member must come back with the id it is given, so that a lost answer leaves nothing
    behind. ``can_skip_assignment``: the member understands that it leads but need not assign.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    needs_member_id: bool = False
    can_skip_assignment: bool = False


class JoinedMember(NamedTuple):
    """What the leader learns of each member."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    """``members`` is filled for the leader alone."""

    error: ErrorCode
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_MEMBER_ID
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class SyncRequest(NamedTuple):
    """``assignments`` by member id, from the leader; protocol type and name are None where the client does not say."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: dict[str, bytes]


class SyncAnswer(NamedTuple):
    """The member's share of the generation, and by which protocol it was made."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class MemberIdentity(NamedTuple):
    """The member that asks, and the generation that it believes to be current."""

    member_id: str
    instance_id: str | None
    generation: int = NO_GENERATION


class LeaveAnswer(NamedTuple):
    """An error for the request, or else one for each member in it."""

    error: ErrorCode
    members: tuple[ErrorCode, ...] = ()


class CommitRequest(NamedTuple):
    """``knows_epochs``: the client's version can bear the epoch of a member of the consumer protocol.
    ``deletion_epoch``: the coordinator's before the first of the partitions was looked up.
    """

    identity: MemberIdentity
    offsets: dict[TopicPartition, CommittedOffset]
    knows_epochs: bool = False
    deletion_epoch: DeletionEpoch = WITHOUT_END


class TransactionalCommit(NamedTuple):
    """Offsets as part of a transaction. ``may_begin``: asked with a partition of ``__consumer_offsets`` in the turn in
    which it is written, NONE if the transaction's coordinator counts the partition in.
    """

    producer: ProducerIdAndEpoch
    commit: CommitRequest
    may_begin: Callable[[int], ErrorCode]


class Store(NamedTuple):
    """Group metadata to be written now, as of ``generation``; the machine's ``stored`` is told how it went.

    ``static_member`` is the new id of a static member that took its own place in a stable group, ``leader`` the member
    that led until then.
    """

    generation: int
    assignments: dict[str, bytes]
    static_member: str | None = None
    leader: str = NO_MEMBER_ID
    can_skip_assignment: bool = False


@dataclass(slots=True)
class Outcome:
    """What the machine wants done. ``wake_ms``: call ``expire`` no later than this; None asks for nothing new."""

    answers: list[tuple[Waiter, JoinAnswer | SyncAnswer]] = field(default_factory=list)
    store: Store | None = None
    wake_ms: int | None = None

    def answer(self, waiter: Waiter | None, answer: JoinAnswer | SyncAnswer) -> None:
        """Nobody is told nothing, so None is welcome."""
        if waiter is not None:
            self.answers.append((waiter, answer))

    def wake(self, deadline_ms: int) -> None:
        self.wake_ms = deadline_ms if self.wake_ms is None else min(self.wake_ms, deadline_ms)
