"""How many bytes of throttled replicas a broker may send, or fetch, a second.

A rate is that of the last ``samples`` windows and the one under way; the window under way counts as a whole one at
least. What goes beyond the limit is not cut: it is counted, and nothing more is sent until the rate is below.
Source: Kafka 3.9, ``ReplicationQuotaManager``, ``SimpleRate``; KIP-73.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from sparklog.clock import Clock, monotonic_ms

UNLIMITED = (1 << 63) - 1
ALL = "*"


class SimpleRate:
    """Of what is recorded, per second, over a row of windows."""

    def __init__(self, samples: int, window_ms: int) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._windows: deque[list[int]] = deque()
        """Begin, last event, sum; the times in ms."""

    def record(self, value: int, now: int) -> None:
        """``now`` in ms, on a clock that does not go back."""
        if not self._windows or now - self._windows[-1][0] >= self._window_ms:
            self._windows.append([now, now, 0])
            if len(self._windows) > self._samples + 1:
                self._windows.popleft()
        window = self._windows[-1]
        window[1], window[2] = now, window[2] + value

    def measure(self, now: int) -> float:
        """A second."""
        while self._windows and now - self._windows[0][1] >= self._samples * self._window_ms:
            self._windows.popleft()
        if not self._windows:
            return 0.0
        elapsed = max(now - self._windows[0][0], self._window_ms)
        return 1000 * sum(window[2] for window in self._windows) / elapsed


class ReplicationThrottle:
    """A broker's, for what it sends as leader or for what it fetches as follower."""

    def __init__(self, clock: Clock, samples: int = 11, window_ms: int = 1000) -> None:
        self._clock = clock
        self._rate = SimpleRate(samples, window_ms)
        self.limit = UNLIMITED
        """Bytes a second."""

    @property
    def is_limited(self) -> bool:
        return self.limit < UNLIMITED

    def record(self, size: int) -> None:
        """So many bytes of throttled replicas have been sent, or fetched."""
        self._rate.record(size, monotonic_ms(self._clock))

    def is_exceeded(self) -> bool:
        """Whether nothing more is to be sent, or fetched, for now."""
        return self.is_limited and self._rate.measure(monotonic_ms(self._clock)) > self.limit


def names_replica(throttled: Sequence[str], partition: int, broker_id: int) -> bool:
    """Whether a topic's list of throttled replicas names that of a partition on a broker."""
    return bool(throttled) and (ALL in throttled or f"{partition}:{broker_id}" in throttled)
