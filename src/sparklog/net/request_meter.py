"""What the requests of one API have been, and have taken: additions on the way of each, read when somebody asks.

A time falls into one of ``BOUNDS_S``, which grow by a fifth, so a percentile is known to that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

_FIRST_S, _GROWTH, _LAST_S = 20e-6, 1.2, 120.0


def _bounds() -> tuple[float, ...]:
    bounds = [_FIRST_S]
    while bounds[-1] < _LAST_S:
        bounds.append(bounds[-1] * _GROWTH)
    return tuple(bounds)


BOUNDS_S: Final = _bounds()
"""The upper ends of all buckets but the last, which has none; seconds."""


class RequestMeter:
    """Of one API, or of one kind of its requests. Not to be changed by readers."""

    __slots__ = ("buckets", "by_version", "bytes_in", "errors", "loop_s", "name", "queued_s", "total_s")

    def __init__(self, name: str, versions: int) -> None:
        """``versions``: one more than the last that is served."""
        self.name = name
        self.by_version = [0] * versions
        """Requests that were begun."""
        self.bytes_in = 0
        self.errors: dict[int, int] = {}
        """How many answers, or results of single partitions of a Produce, had each code but 0."""
        self.queued_s = 0.0
        """What they waited for their connections' turns, from when they were read."""
        self.loop_s = 0.0
        """What the loop spent on them in their connections' turns."""
        self.total_s = 0.0
        """From when they were read until their answers were known, of all that were answered."""
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        """How many of these took so long."""

    def begin(self, version: int, size: int) -> None:
        """A request of ``size`` bytes is taken up."""
        self.by_version[version] += 1
        self.bytes_in += size

    def fail(self, code: int) -> None:
        """A request, or a partition of one, is answered with this code."""
        self.errors[code] = self.errors.get(code, 0) + 1

    def answer(self, seconds: float) -> None:
        """A request has its answer so long after it was read."""
        self.total_s += seconds
        self.buckets[bisect_left(BOUNDS_S, seconds)] += 1

    def add(self, other: RequestMeter) -> None:
        """Count what the other has counted too."""
        self.by_version = [one + more for one, more in zip(self.by_version, other.by_version, strict=True)]
        self.buckets = [one + more for one, more in zip(self.buckets, other.buckets, strict=True)]
        self.bytes_in += other.bytes_in
        for code, count in other.errors.items():
            self.errors[code] = self.errors.get(code, 0) + count
        self.queued_s += other.queued_s
        self.loop_s += other.loop_s
        self.total_s += other.total_s


def quantile(buckets: Sequence[int], share: float) -> float:
    """The time (s) that this ``share`` of those in ``buckets`` did not exceed: the end of its bucket; 0 of none."""
    wanted, seen = share * sum(buckets), 0
    for bound, count in zip(BOUNDS_S, buckets, strict=False):
        seen += count
        if seen and seen >= wanted:
            return bound
    return BOUNDS_S[-1] if seen < sum(buckets) else 0.0
