"""What was used over the last windows of time, and how long to wait until that is within a bound again.

``Rate`` is Kafka's (``Rate.java``, ``SampledStat.java``): the sum of the samples of the last ``Windows.samples``
windows by the time that they span. A sample begins with the first thing recorded after the one before it is a window
old. One counts for as long as the last thing in it is younger than all windows together, so that the oldest may begin
earlier than they do. The span is that from the beginning of the oldest sample until now, with as many windows added as
are missing to ``samples - 1`` full ones. So what was used in the first second does not count as a high rate, and one
burst counts in full until all windows have passed.

``TokenBucket`` (KIP-599) is refilled at the rate of its bound, up to ``Windows.samples`` windows' worth. It may be
overdrawn once; how far it is below zero is what has to be waited for.

Times are milliseconds on a clock that never goes back.
"""

from __future__ import annotations

from collections import deque
from math import floor
from typing import NamedTuple

LONGEST_MS = (1 << 31) - 1
"""What an answer can tell at most."""


class Windows(NamedTuple):
    """How many windows of time count, with the current one, and how long each is."""

    samples: int
    size_ms: int

    @property
    def all_ms(self) -> int:
        """All of them together."""
        return self.samples * self.size_ms


class _Sample:
    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.value = 0.0


class Rate:
    """What was recorded a second. Costs the same however many samples there are."""

    __slots__ = ("_least_span_s", "_samples", "_total", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._least_span_s = max((windows.samples - 1) * windows.size_ms, 1) / 1000
        self._samples: deque[_Sample] = deque()
        self._total = 0.0

    def record(self, value: float, now_ms: int) -> None:
        """So much more, or less, was used now."""
        if not self._samples or now_ms - self._samples[-1].start_ms >= self._windows.size_ms:
            self._begin(now_ms)
        current = self._samples[-1]
        current.value += value
        current.last_ms = now_ms
        self._total += value

    def is_surely_within(self, bound: float) -> bool:
        """Whether the rate is not above ``bound``, however short the span is; cheaper than ``measure``."""
        return self._total <= bound * self._least_span_s

    def measure(self, now_ms: int) -> float:
        """A second, over the span."""
        self._forget(now_ms)
        return self._total * 1000 / self.span_ms(now_ms)

    def span_ms(self, now_ms: int) -> int:
        """The time that the samples stand for; at least a millisecond."""
        self._forget(now_ms)
        size_ms, missing = self._windows.size_ms, self._windows.samples - 1
        elapsed_ms = now_ms - self._samples[0].start_ms
        missing -= elapsed_ms // size_ms
        return max(elapsed_ms + max(missing, 0) * size_ms, 1)

    def _begin(self, now_ms: int) -> None:
        self._samples.append(_Sample(now_ms))
        if len(self._samples) > self._windows.samples + 1:
            self._drop()

    def _forget(self, now_ms: int) -> None:
        """Leave out what is too old; with nothing left a sample begins now."""
        while self._samples and now_ms - self._samples[0].last_ms >= self._windows.all_ms:
            self._drop()
        if not self._samples:
            self._begin(now_ms)

    def _drop(self) -> None:
        gone = self._samples.popleft()
        self._total = self._total - gone.value if self._samples else 0.0


class TokenBucket:
    """Tokens for things that come in bursts. It is full at first."""

    __slots__ = ("_tokens", "_updated_ms", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens: float | None = None
        self._updated_ms = 0

    def tokens(self, bound: float, now_ms: int) -> float:
        """How many there are, when ``bound`` come in a second; below zero it is overdrawn."""
        burst = bound * self._windows.all_ms / 1000
        if self._tokens is None:
            self._tokens = burst
        self._tokens = min(burst, self._tokens + bound * (now_ms - self._updated_ms) / 1000)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, count: float, bound: float, now_ms: int) -> float:
        """Take some, and return how many are left."""
        self._tokens = self.tokens(bound, now_ms) - count
        return self._tokens


def throttle_ms(observed: float, bound: float, span_ms: int, windows: Windows) -> int:
    """How long to wait until a rate that was observed over a span is within the bound, if nothing more is used.

    Where nothing is allowed at all: until all that was used is forgotten.
    """
    if bound <= 0:
        return windows.all_ms
    return _whole_ms((observed - bound) / bound * span_ms)


def refill_ms(tokens: float, bound: float, windows: Windows) -> int:
    """How long to wait until an overdrawn bucket is at zero."""
    if bound <= 0:
        return windows.all_ms
    return _whole_ms(-tokens / bound * 1000)


def _whole_ms(wait_ms: float) -> int:
    """Of a very small bound the wait is infinite."""
    return floor(min(wait_ms + 0.5, LONGEST_MS))
