"""Leases: segments that a Spark task reads by name stay where they are for a while.

While a lease runs, the segments that it holds are neither renamed nor removed: retention passes them over, a swap is
refused. It ends at its time, whatever becomes of the task. It holds back neither the deletion of the whole
partition nor a truncation, by which a log follows its leader. A swap holds the segments that are to give way by a lease
too: meanwhile they are not leased to anybody else.

Readers that lease the same segments again and again cannot keep them for ever: once they have held back retention for
``PATIENCE_S``, nobody else gets a lease on what it wants, and it goes when those that run have ended (``HeldBack``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

PATIENCE_S: Final = 600.0


class Lease:
    """Time is on the monotonic clock, in seconds."""

    def __init__(self, now: float, duration: float, *, is_last: bool = False) -> None:
        self._granted = now
        self.until = now + duration
        self.is_last = is_last
        """Whether no lease may follow it, as of a swap that is under way, and of retention before the segments go."""

    def hold(self, leases: list[Lease]) -> None:
        """Be one of a segment's ``leases``, in which it comes last, once.

        Those at either end that had ended before this one was granted are forgotten. What has ended between two that
        run is forgotten later, so that a segment with many leases is not looked through for each new one.
        """
        if leases and leases[-1] is self:
            return
        while leases and leases[-1].until <= self._granted:
            leases.pop()
        ended = 0
        while ended < len(leases) and leases[ended].until <= self._granted:
            ended += 1
        del leases[:ended]
        leases.append(self)

    def end(self) -> None:
        """End it before its time: the task has the files open, or needs them no more."""
        self.until = float("-inf")
        self.is_last = False


def is_giving_way(leases: list[Lease]) -> bool:
    """Whether a swap holds the segment: its file is about to lose its name, or has lost it. No lease follows that."""
    return bool(leases) and leases[-1].is_last


def is_leased(leases: list[Lease], now: float) -> bool:
    """Whether any of a segment's leases runs."""
    return any(lease.until > now for lease in leases)


class HeldBack:
    """How long leases have held back what retention wants of one log."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._last: Lease | None = None

    def note(self, wanted: Iterable[list[Lease]], now: float) -> None:
        """Retention wants these segments, by their leases, and one that runs keeps it from them."""
        if self._since is None:
            self._since = now
        if now - self._since < PATIENCE_S:
            return
        if self._last is None:
            self._last = Lease(now, 0.0, is_last=True)
        for leases in wanted:
            if not is_giving_way(leases):
                leases.append(self._last)

    def end(self) -> None:
        """Nothing is held back now."""
        self._since = None
        if self._last is not None:
            self._last.end()
            self._last = None
