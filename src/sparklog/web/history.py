"""Numbers over time, as those who look see them: a sample for each look, bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

from sparklog.clock import Clock
from sparklog.structs import TopicPartition

_EVERY_S = 5.0
_SAMPLES = 720
_NAMES = 50
Sample = tuple[int, ...]
"""When it was, in ms since 1970, and the numbers then."""


class History:
    """Of one visitor: one hour of looks at five seconds, for the fifty names that were looked at last."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._samples: dict[str, deque[Sample]] = {}
        self._sampled: dict[str, float] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._samples

    def look(self, name: str) -> list[Sample]:
        """Somebody looked, and what is to be seen is not known; all samples of the name, the oldest first."""
        return list(self._latest(name))

    def add(self, name: str, *numbers: int) -> list[Sample]:
        """Somebody looked; all samples of the name, the oldest first."""
        samples = self._latest(name)
        now = self._clock.monotonic()
        if now - self._sampled.get(name, float("-inf")) >= _EVERY_S:
            self._sampled[name] = now
            samples.append((self._clock.now_ms(), *numbers))
        return list(samples)

    def _latest(self, name: str) -> deque[Sample]:
        """The samples of the name that is looked at last now."""
        samples = self._samples.pop(name, None)
        if samples is None:
            samples = deque(maxlen=_SAMPLES)
        self._samples[name] = samples
        if len(self._samples) > _NAMES:
            oldest = next(iter(self._samples))
            del self._samples[oldest]
            self._sampled.pop(oldest, None)
        return samples


class Growth:
    """How many records were written to some partitions since the first look at them, by their ends.

    A topic that is made anew, or deleted, takes nothing away. A partition that cannot be asked is counted when it can.
    A look that was begun before another had ended adds nothing: its ends may be older than those of the other.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._history = History(clock)
        self._ended: dict[str, float] = {}
        """When the last look at a name was over that counts."""
        self._written: dict[str, int] = {}
        self._ends: dict[str, dict[TopicPartition, int]] = {}

    def add(
        self, name: str, partitions: Collection[TopicPartition], ends: Mapping[TopicPartition, int], begun_s: float
    ) -> list[Sample]:
        """All samples of the name. ``ends``, asked for at ``begun_s``, are of those ``partitions`` that tell them."""
        if begun_s < self._ended.get(name, begun_s):
            return self._history.look(name)
        self._ended[name] = self._clock.monotonic()
        before = self._ends.get(name, {})
        grown = sum(max(end - before[tp], 0) for tp, end in ends.items() if tp in before)
        self._ends[name] = {tp: before[tp] for tp in partitions if tp in before} | dict(ends)
        self._written[name] = self._written.get(name, 0) + grown
        samples = self._history.add(name, self._written[name])
        for forgotten in [each for each in self._ends if each not in self._history]:
            del self._ends[forgotten], self._written[forgotten], self._ended[forgotten]
        return samples
