"""Which replicas of a partition are in sync, as its leader keeps them, and how far all of them have come. Pure.

The invariants are in ``docs/adr/0019-replicas.md``. Offsets are those of a log's end: one past the last record. Times
are in ms, on a clock that does not go back. Source: Kafka 3.9, ``Partition.scala``, ``Replica.scala``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

UNKNOWN = -1


class Proposal(NamedTuple):
    """A change of the ISR that the controller is to write, over the state of this partition epoch."""

    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    """Of the members, in their order; -1 where the leader does not know it."""
    leader_epoch: int
    partition_epoch: int


class FollowerProgress:
    """What the leader knows of one follower."""

    __slots__ = ("_fetched_at", "_leader_end", "broker_epoch", "caught_up_at", "end_offset", "start_offset")

    def __init__(self, caught_up_at: int) -> None:
        self.end_offset = UNKNOWN
        self.start_offset = UNKNOWN
        self.broker_epoch = UNKNOWN
        self.caught_up_at = caught_up_at
        """When it was last known to have all that the leader had."""
        self._fetched_at = 0
        self._leader_end = UNKNOWN

    def fetched(self, end: int, leader_end: int, now: int, broker_epoch: int, start: int = UNKNOWN) -> None:
        """It has ``start`` to ``end`` and asked for what follows, when the leader's log ended at ``leader_end``."""
        if end >= leader_end:
            self.caught_up_at = max(self.caught_up_at, now)
        elif end >= self._leader_end:
            self.caught_up_at = max(self.caught_up_at, self._fetched_at)
        self.end_offset = end
        self.start_offset = start
        self.broker_epoch = broker_epoch
        self._leader_end = leader_end
        self._fetched_at = now

    def has_still_all(self, now: int) -> None:
        """It asked again where it asked last, which is the end of the leader's log, as it was then."""
        self.caught_up_at = max(self.caught_up_at, now)
        self._fetched_at = now

    def go_on_from(self, before: FollowerProgress) -> None:
        """The leader stays in office under another epoch: what the follower has is known."""
        self.end_offset, self.start_offset = before.end_offset, before.start_offset
        self.broker_epoch = before.broker_epoch
        self._leader_end, self._fetched_at = before._leader_end, before._fetched_at

    def has_caught_up(self, leader_end: int, now: int, max_lag: int) -> bool:
        """Whether it has all, or had all that there was no longer than ``max_lag`` ago."""
        return self.end_offset == leader_end or now - self.caught_up_at <= max_lag


class InSyncReplicas:
    """The leader's, for one leader epoch. Changed by what followers fetch and by the controller's answers."""

    def __init__(
        self,
        leader: int,
        leader_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        *,
        partition_epoch: int,
        epoch_start: int,
        now: int,
        before: InSyncReplicas | None = None,
    ) -> None:
        """``epoch_start``: where the leader's log ended when it began to lead. ``before``: what it kept until now, if
        it led already.
        """
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.isr = tuple(isr)
        """As ZooKeeper has it."""
        self.partition_epoch = partition_epoch
        self.epoch_start = epoch_start
        self.first_epoch: int = leader_epoch if before is None else before.first_epoch
        """Since when this broker leads without another between."""
        self.proposal: Proposal | None = None
        """What the controller has yet to answer."""
        self.followers = {
            replica: FollowerProgress(now if replica in self.isr else -(1 << 62))
            for replica in replicas
            if replica != leader
        }
        for replica, progress in self.followers.items():
            if before is not None and replica in before.followers:
                progress.go_on_from(before.followers[replica])

    @property
    def maximal(self) -> frozenset[int]:
        """Those that must have what is shown: also those that a change under way adds."""
        return frozenset(self.isr) if self.proposal is None else frozenset(self.isr) | frozenset(self.proposal.isr)

    def may_show(self, least: int) -> bool:
        """Whether as many replicas are in sync as what is shown to readers is to be on."""
        return len(self.isr) >= least

    def common_end(self, leader_end: int, now: int, max_lag: int, lives: Callable[[int], bool] = lambda _: True) -> int:
        """The end that all have who count, those with them that live, have caught up and are about to join."""
        end, counted = leader_end, self.maximal
        for replica, progress in self.followers.items():
            if progress.end_offset < end and (
                replica in counted
                or (
                    progress.end_offset != UNKNOWN
                    and progress.has_caught_up(leader_end, now, max_lag)
                    and lives(replica)
                )
            ):
                end = progress.end_offset
        return end

    def may_join(self, replica: int, high_watermark: int) -> bool:
        """Whether the follower has all that was shown, and all that there was when this leader began."""
        end = self.followers[replica].end_offset
        return replica not in self.isr and end >= high_watermark and end >= self.epoch_start

    def furthest_with(self, offset: int, among: Callable[[int], bool]) -> int | None:
        """The follower in sync that has most of those that have ``offset``, and that ``among`` holds for; None if there
        is none. Of two alike the one that caught up last.

        Source: Kafka 3.9, ``ReplicaManager.findPreferredReadReplica``, ``ReplicaView.comparator``.
        """
        found = [
            (progress.end_offset, progress.caught_up_at, replica)
            for replica, progress in self.followers.items()
            if replica in self.isr and progress.start_offset <= offset <= progress.end_offset and among(replica)
        ]
        return max(found)[2] if found else None

    def lagging(self, leader_end: int, now: int, max_lag: int) -> list[int]:
        """The members that have not kept up."""
        return [
            replica
            for replica in self.isr
            if replica in self.followers and not self.followers[replica].has_caught_up(leader_end, now, max_lag)
        ]

    def propose(self, isr: Iterable[int]) -> Proposal:
        """The change to ``isr`` is under way from now on; there is none before."""
        assert self.proposal is None
        members = tuple(isr)
        epochs = tuple(self.followers[each].broker_epoch if each in self.followers else UNKNOWN for each in members)
        self.proposal = Proposal(members, epochs, self.leader_epoch, self.partition_epoch)
        return self.proposal

    def settled(self, isr: Iterable[int], partition_epoch: int) -> None:
        """ZooKeeper holds this ISR now."""
        self.isr, self.partition_epoch, self.proposal = tuple(isr), partition_epoch, None

    def refused(self) -> None:
        """The controller did not write the change, and will not."""
        self.proposal = None
