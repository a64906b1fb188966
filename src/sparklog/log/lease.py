"""Leases: segments that somebody reads by name stay where they are for a while.

While a lease runs, the segments that it holds are neither renamed nor removed: retention passes them over, a swap is
refused. It ends at its time, whatever becomes of who took it. It holds back neither the deletion of the whole
partition nor a truncation, by which a log follows its leader.
"""

from __future__ import annotations


class Lease:
    """Time is on the monotonic clock, in seconds."""

    def __init__(self, until: float) -> None:
        self.until = until

    def hold(self, leases: list[Lease]) -> None:
        """Be one of a segment's ``leases``."""
        leases.append(self)

    def end(self) -> None:
        """Before its time: who took it has the files open, or needs them no more."""
        self.until = float("-inf")


def is_leased(leases: list[Lease], now: float) -> bool:
    """Whether any of a segment's leases runs; those that have ended are forgotten."""
    leases[:] = [lease for lease in leases if lease.until > now]
    return bool(leases)
