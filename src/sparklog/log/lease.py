"""Leases: segments that a Spark task reads by name stay where they are for a while.

While a lease runs, the segments that it holds are neither renamed nor removed: retention passes them over, a swap is
refused. It ends at its time, whatever becomes of the task. It holds back neither the deletion of the whole
partition nor a truncation, by which a log follows its leader. A swap holds the segments that are to give way by a lease
too: meanwhile they are not leased to anybody else.
"""

from __future__ import annotations


class Lease:
    """Time is on the monotonic clock, in seconds."""

    def __init__(self, now: float, duration: float, *, is_of_swap: bool = False) -> None:
        self._granted = now
        self.until = now + duration
        self.is_of_swap = is_of_swap
        """Whether a swap holds the segments by it, for as long as it is under way."""

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
        self.is_of_swap = False


def is_giving_way(leases: list[Lease]) -> bool:
    """Whether a swap holds the segment: its file is about to lose its name, or has lost it. No lease follows that."""
    return bool(leases) and leases[-1].is_of_swap


def is_leased(leases: list[Lease], now: float) -> bool:
    """Whether any of a segment's leases runs."""
    return any(lease.until > now for lease in leases)
