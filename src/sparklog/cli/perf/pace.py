"""So many records a second, and a line now and then about how it goes."""

from __future__ import annotations

from collections.abc import Callable

from sparklog.clock import Clock


class Pace:
    """Lets ``per_second`` records through, evenly; None for no limit."""

    def __init__(self, clock: Clock, per_second: float | None) -> None:
        self._clock = clock
        self._per_second = per_second
        self._started = clock.monotonic()

    def wait(self, sent: int) -> None:
        """Return when ``sent`` records may have been sent."""
        if self._per_second is not None:
            due = self._started + sent / self._per_second
            if (early := due - self._clock.monotonic()) > 0:
                self._clock.sleep(early)


class Meter:
    """Counts records and bytes, and tells of them every ``every_s`` seconds: ``tell(records, bytes, seconds)``."""

    def __init__(self, clock: Clock, every_s: float, tell: Callable[[int, int, float], object]) -> None:
        self._clock = clock
        self._every_s = every_s
        self._tell = tell
        self.records = self.bytes = 0
        self._told_records = self._told_bytes = 0
        self._started = self._told_at = clock.monotonic()

    def add(self, records: int, size: int) -> None:
        """Count; tell of what came since the last time, if it is time."""
        self.records += records
        self.bytes += size
        now = self._clock.monotonic()
        if now - self._told_at >= self._every_s:
            self._tell(self.records - self._told_records, self.bytes - self._told_bytes, now - self._told_at)
            self._told_records, self._told_bytes, self._told_at = self.records, self.bytes, now

    @property
    def seconds(self) -> float:
        """Since it was made."""
        return self._clock.monotonic() - self._started
