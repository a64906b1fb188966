"""How fast copies between log directories may be made: what was copied is paid for by waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sparklog.rate_limit import ByteRate

_LONGEST_WAIT_S = 0.1
"""Then it is looked whether another rate is in force."""


class CopyRate(ByteRate):
    """Shared by all who copy; belongs to the loop's thread."""

    async def pay(self, size: int, is_over: Callable[[], bool] = lambda: False) -> None:
        """Wait until the rate allows ``size`` bytes, with what was copied before, or the copying ``is_over``."""
        wait_s = self.owe(size)
        while wait_s and not is_over():
            await asyncio.sleep(min(wait_s, _LONGEST_WAIT_S))
            wait_s = self.owe(0)
