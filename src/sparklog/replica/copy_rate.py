"""How fast copies between log directories may be made: what was copied is paid for by waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sparklog.clock import Clock

_SHORTEST_WAIT_S = 0.001
"""What takes no longer is waited for with what is copied next."""
_LONGEST_WAIT_S = 0.1
"""Then it is looked whether another rate is in force."""


class CopyRate:
    """Shared by all who copy; belongs to the loop's thread."""

    def __init__(self, clock: Clock, bytes_per_second: int) -> None:
        self.bytes_per_second = bytes_per_second
        self._clock = clock
        self._debt = 0.0  # bytes that are not waited for yet
        self._since = clock.monotonic()

    async def pay(self, size: int, is_over: Callable[[], bool] = lambda: False) -> None:
        """Wait until the rate allows ``size`` bytes, with what was copied before, or the copying ``is_over``."""
        self._debt = self._left() + size
        while (wait_s := self._left() / max(self.bytes_per_second, 1)) > _SHORTEST_WAIT_S and not is_over():
            await asyncio.sleep(min(wait_s, _LONGEST_WAIT_S))

    def _left(self) -> float:
        now = self._clock.monotonic()
        self._debt = max(self._debt - (now - self._since) * self.bytes_per_second, 0.0)
        self._since = now
        return self._debt
