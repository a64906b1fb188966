"""How old records are when they come into a table: a summary of timestamps that travels from task to driver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

_POINTS = np.linspace(0.0, 1.0, 21)


@dataclass
class Timestamps:
    """The timestamps of many records, each group of them by a few points of its distribution."""

    _points: list[tuple[int, list[float]]] = field(default_factory=list)

    def add(self, column: pa.Array) -> None:
        """Add a column of timestamps, in microseconds."""
        if len(column):
            micros = np.asarray(column.cast(pa.int64()))
            rows = np.rint(_POINTS * (len(micros) - 1)).astype(np.int64)
            is_sorted = bool((micros[1:] >= micros[:-1]).all())  # as records most often are; it is far quicker then
            in_place = micros if is_sorted else np.partition(micros, rows)
            self._points.append((len(micros), in_place[rows].astype(float).tolist()))

    def merge(self, other: Timestamps) -> None:
        self._points += other._points

    def to_json(self) -> list[list[Any]]:
        """What ``from_json`` makes it of again."""
        return [[count, points] for count, points in self._points]

    @classmethod
    def from_json(cls, told: list[list[Any]]) -> Timestamps:
        return cls([(int(count), list(points)) for count, points in told])

    def ages_s(self, now_ms: int, shares: tuple[float, ...]) -> list[float]:
        """How old the youngest record of each share is, in seconds: the median for 0.5. None where there is none."""
        if not self._points:
            return []
        values = np.concatenate([points for _, points in self._points])
        weights = np.concatenate([np.full(len(points), count / len(points)) for count, points in self._points])
        ages = now_ms / 1000 - values / 1_000_000
        order = np.argsort(ages)
        reached = np.cumsum(weights[order]) / weights.sum()
        return [float(ages[order][min(int(np.searchsorted(reached, share)), len(order) - 1)]) for share in shares]
