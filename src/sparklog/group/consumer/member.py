"""One member of a group of the consumer protocol: what it wants, what it has, and how far it has come.

Its state is Kafka 3.9's ``MemberState``::

    STABLE ──the target changed──▶ UNREVOKED_PARTITIONS ──it has given them up──▶ UNRELEASED_PARTITIONS
      ▲                                                                              │ others still hold its new ones
      └──────────────────────────it has all that it shall have───────────────────────┘

and steps are left out where there is nothing to give up or to wait for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

from sparklog.group.classic.group import Protocol
from sparklog.group.consumer.assignment import NONE, Partitions

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""What a member says in place of its epoch: that it joins, leaves, or (a static one) will be back."""


class MemberState(IntEnum):
    """The numbers are those in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """What a member of the classic protocol said when it joined; ``protocols`` in its order of preference."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """``assigned`` is what the member may use, ``revoking`` what it must give up and may still be using: no other
    may have either. ``previous_epoch`` is accepted once more, for an answer that was lost. ``classic`` is None for a
    member of the consumer protocol.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicSide | None = None
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NONE
    revoking: Partitions = NONE

    @property
    def held(self) -> Partitions:
        """What no other member may have."""
        return self.assigned | self.revoking

    @property
    def details(self) -> tuple[object, ...]:
        """All that the member tells of itself."""
        return (
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.topics,
            self.regex,
            self.rebalance_timeout_ms,
            self.assignor,
            self.classic,
        )

    @property
    def progress(self) -> tuple[object, ...]:
        """All that the coordinator decides about it."""
        return (self.epoch, self.previous_epoch, self.state, self.assigned, self.revoking)

    def is_reconciled(self, assignment_epoch: int) -> bool:
        """Whether it has all that it shall have, and nothing else."""
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def wants_as(self, other: ConsumerMember) -> bool:
        """Whether both subscribe to the same."""
        return self.topics == other.topics and self.regex == other.regex

    def moved_to(
        self, epoch: int, state: MemberState, assigned: Partitions, revoking: Partitions = NONE
    ) -> ConsumerMember:
        return replace(self, epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, revoking=revoking)
