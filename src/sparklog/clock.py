"""The only module that reads the clock. Everything else is handed a ``Clock``."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where time comes from."""

    def now_ms(self) -> int:
        """Wall-clock time, milliseconds since the Unix epoch."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""

    def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass."""


def monotonic_ms(clock: Clock) -> int:
    """Milliseconds on a clock that never goes back, for what is not remembered beyond the process."""
    return int(clock.monotonic() * 1000)


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
    """As it is: some ask for every record."""

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
