"""Work on an event loop that goes on when its caller does not wait any more.

asyncio itself refers to a task only weakly, so each is held here until it is done; a failure is told to the owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Tasks:
    """The tasks of one owner. ``on_failure`` gets the name of one that failed, and what it raised."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_failure: Callable[[str, BaseException], None]) -> None:
        self._loop = loop
        self._on_failure = on_failure
        self._running: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Begin the work."""
        task = self._loop.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_failure(task.get_name(), error)

    async def finish(self) -> None:
        """Wait until all that runs now is done."""
        if self._running:
            await asyncio.wait(self._running)

    async def cancel(self) -> None:
        """Cancel all that runs now, and wait for its end."""
        for task in self._running:
            task.cancel()
        await self.finish()


def retrieve(task: asyncio.Task[T]) -> None:
    """A done callback: look at the exception. Else asyncio reports it where all callers were cancelled."""
    if not task.cancelled():
        task.exception()
