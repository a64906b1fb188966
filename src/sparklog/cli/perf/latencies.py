"""Latencies of many records in little memory."""

from __future__ import annotations

from collections import Counter
from math import ceil, floor, log10

PERCENTS = (50.0, 95.0, 99.0, 99.9)
_DIGITS = 3


class Latencies:
    """Counts records by their latency, of which three digits are kept: an error of 0.5 % at most.

    Mean and maximum are exact. All are milliseconds.
    """

    def __init__(self) -> None:
        self.records = 0
        self.max = 0.0
        self._sum = 0.0
        self._counts: Counter[float] = Counter()

    def add(self, milliseconds: float, records: int = 1) -> None:
        """So many records had this latency."""
        self.records += records
        self.max = max(self.max, milliseconds)
        self._sum += milliseconds * records
        self._counts[_rounded(milliseconds)] += records

    @property
    def mean(self) -> float:
        """0 where there is no record."""
        return self._sum / self.records if self.records else 0.0

    def percentile(self, percent: float) -> float:
        """The least latency that so many percent of the records do not exceed; 0 where there is no record."""
        wanted, seen = ceil(self.records * percent / 100), 0
        for latency in sorted(self._counts):
            seen += self._counts[latency]
            if seen >= wanted:
                return min(latency, self.max)
        return 0.0

    def summary(self) -> dict[str, float]:
        """Mean, maximum and percentiles by name: ``p50``, ``p99.9``."""
        found = {"mean": self.mean, "max": self.max} | {f"p{each:g}": self.percentile(each) for each in PERCENTS}
        return {name: round(value, 3) for name, value in found.items()}


def _rounded(value: float) -> float:
    return round(value, _DIGITS - 1 - floor(log10(value))) if value > 0 else 0.0
