"""Time that passes when a test says so."""

from __future__ import annotations

import asyncio


class ManualClock:
    """A Clock that stands still until ``advance``; ``sleep`` advances it, so code that waits never waits.

    Wall-clock and monotonic time move together; ``set_wall`` moves the first alone, as an administrator would.
    """

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = float(now_ms)
        self._monotonic = 0.0

    def now_ms(self) -> int:
        return int(self._wall_ms)

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Raises ValueError for a time that goes back."""
        if seconds < 0:
            raise ValueError(f"time does not run backwards: {seconds} s")
        self._wall_ms += seconds * 1000
        self._monotonic += seconds

    def set_wall(self, now_ms: int) -> None:
        self._wall_ms = float(now_ms)


def jump(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    """Have the timers of an event loop go off that are due within ``seconds``; called on its thread."""
    time = loop.time
    loop.time = lambda: time() + seconds  # type: ignore[method-assign]
