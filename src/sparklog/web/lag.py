"""The lag of groups over time, as those who look see it: a sample for each look, bounded."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from sparklog.clock import Clock

_EVERY_S = 5.0
_SAMPLES = 720
_GROUPS = 50


class LagSample(NamedTuple):
    """How many records a group was behind, of all partitions whose end was known; ``at_ms`` since 1970."""

    at_ms: int
    lag: int
    committed: int
    """The sum of its offsets: how far it has come."""


class LagHistory:
    """Of one visitor: one hour of looks at five seconds, for the fifty groups that were looked at last."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._samples: dict[str, deque[LagSample]] = {}
        self._sampled: dict[str, float] = {}

    def add(self, group: str, lag: int, committed: int) -> list[LagSample]:
        """Somebody looked; all samples of the group, the oldest first."""
        samples = self._samples.pop(group, None)
        if samples is None:
            samples = deque(maxlen=_SAMPLES)
        self._samples[group] = samples
        now = self._clock.monotonic()
        if now - self._sampled.get(group, float("-inf")) >= _EVERY_S:
            self._sampled[group] = now
            samples.append(LagSample(self._clock.now_ms(), lag, committed))
        if len(self._samples) > _GROUPS:
            oldest = next(iter(self._samples))
            del self._samples[oldest], self._sampled[oldest]
        return list(samples)
