"""Leases: segments that a Spark task reads by name stay where they are for a while.

While a lease runs, the segments that it holds are neither renamed nor removed: retention passes them over, a swap is
refused. It ends at its time, whatever becomes of the task. It holds back neither the deletion of the whole
partition nor a truncation, by which a log follows its leader.
"""

from __future__ import annotations


class Lease:
    """Time is on the monotonic clock, in seconds."""

    def __init__(self, now: float, duration: float) -> None:
        self._granted = now
        self.until = now + duration

    def hold(self, leases: list[Lease]) -> None:
        """Be one of a segment's ``leases``; those that had ended before this one was granted are forgotten."""
        leases[:] = [each for each in leases if each.until > self._granted]
        leases.append(self)

    def end(self) -> None:
        """End it before its time: the task has the files open, or needs them no more."""
        self.until = float("-inf")


def is_leased(leases: list[Lease], now: float) -> bool:
    """Whether any of a segment's leases runs."""
    return any(lease.until > now for lease in leases)
