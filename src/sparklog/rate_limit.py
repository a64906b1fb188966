"""Rate limits: for bytes that are copied, and for lines in the log.

Lines that may come often are said at once, then seldom, and with how often they came.

What keeps a client waiting, what a full disk refuses, what a hostile client causes: none of them fills the disk with
lines.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable

from sparklog.clock import Clock

_INTERVAL_S = 10.0
_IN_AN_INTERVAL = 1000
_REPEATED_S = 60.0
_MOST_REPEATED = 1000


class RateLimit:
    """Of each kind of event a few pass in ``interval_s`` seconds, counted from the first of them.

    ``now`` is monotonic. Kinds are remembered until they are forgotten, so they must be few.
    """

    def __init__(self, now: Callable[[], float], interval_s: float) -> None:
        self._now = now
        self._interval_s = interval_s
        self._intervals: dict[Hashable, tuple[float, int]] = {}

    def admit(self, kind: Hashable, most: int = 1) -> int | None:
        """Count an event: None if it is one too many, else how many were too many in the interval that it ends.

        ``most`` pass in an interval; it is always the same for one kind.
        """
        now = self._now()
        began, events = self._intervals.get(kind, (now, 0))
        left_out = 0
        if now - began >= self._interval_s:
            began, events, left_out = now, 0, max(events - most, 0)
        self._intervals[kind] = (began, events + 1)
        return left_out if events < most else None

    def forget(self, kind: Hashable) -> None:
        """The next event of this kind is a first one."""
        self._intervals.pop(kind, None)

    def has_room_for(self, kind: Hashable, most: int) -> bool:
        """Whether ``kind`` is one of ``most`` that are remembered, or may be: kinds of intervals that are over go."""
        if kind not in self._intervals and len(self._intervals) >= most:
            since = self._now() - self._interval_s
            self._intervals = {known: each for known, each in self._intervals.items() if each[0] > since}
        return kind in self._intervals or len(self._intervals) < most


class RateLimitedLogger:
    """Lines that clients cause: of each kind a thousand in ten seconds, or as few as is said."""

    def __init__(self, logger: logging.Logger, now: Callable[[], float]) -> None:
        self._logger = logger
        self._limit = RateLimit(now, _INTERVAL_S)
        self._repeated = RateLimit(now, _REPEATED_S)

    def warn(self, kind: str, text: str, most: int | None = None) -> None:
        """``kind`` is one of few words, never a client's, and has one ``most``."""
        self._tell(logging.WARNING, text, self._limit.admit(kind, _IN_AN_INTERVAL if most is None else most))

    def inform(self, kind: str, text: str, most: int | None = None) -> None:
        """As ``warn``, of what nobody has to look after; no ``kind`` is of both."""
        self._tell(logging.INFO, text, self._limit.admit(kind, _IN_AN_INTERVAL if most is None else most))

    def repeat(self, kind: str, text: str) -> None:
        """For what is tried again until it succeeds: said at once, and then once a minute.

        ``kind`` has the reason, and may have a peer's host. Beyond a thousand in a minute, the others are of one kind.
        """
        known = kind if self._repeated.has_room_for(kind, _MOST_REPEATED) else None
        self._tell(logging.WARNING, text, self._repeated.admit(known))

    def _tell(self, level: int, text: str, left_out: int | None) -> None:
        if left_out is not None:
            self._logger.log(level, "%s%s", text, f" (and {left_out} more of this kind before)" if left_out else "")


_SHORTEST_WAIT_S = 0.001
"""What takes no longer is waited for with what comes next."""


class ByteRate:
    """A leaky bucket: bytes are moved first and waited for afterwards. The rate may change at any time."""

    def __init__(self, clock: Clock, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        self._clock = clock
        self._debt = 0.0  # bytes that are not waited for yet
        self._since = clock.monotonic()

    def owe(self, size: int) -> float:
        """Count ``size`` more bytes; how many seconds to wait until the rate allows all of them. 0 for a moment."""
        now = self._clock.monotonic()
        self._debt = max(self._debt - (now - self._since) * self.bytes_per_second, 0.0) + size
        self._since = now
        wait_s = self._debt / max(self.bytes_per_second, 1)
        return wait_s if wait_s > _SHORTEST_WAIT_S else 0.0
