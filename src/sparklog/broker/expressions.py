"""The thread on which the expressions of strangers are understood, and what they match is found.

It takes up to two seconds for one (``sparklog.regular_expression``), and what runs on a thread goes on when its client
hangs up. On the loop's own few threads, for which cold reads and the loading of groups wait, a stranger would occupy
them all. Here one runs at a time, whoever has hung up; one that waits goes with its client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sparklog.errors import ApiError, ErrorCode

T = TypeVar("T")


class Expressions:
    """Of one broker. The calls run in their order, so those that ask let one of their kind wait at a time."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="expressions")
        self._is_closed = False

    async def run(self, match: Callable[..., T], *arguments: object) -> T:
        """What the call gives. Raises ApiError (COORDINATOR_NOT_AVAILABLE) where the broker stops before it begins."""
        self._check()
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, match, *arguments)

    def _run(self, match: Callable[..., T], *arguments: object) -> T:
        self._check()
        return match(*arguments)

    def _check(self) -> None:
        if self._is_closed:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is stopping")

    def close(self) -> None:
        """Begin none any more. The one that runs is not waited for here: only by the end of the process."""
        self._is_closed = True
        self._thread.shutdown(wait=False)
