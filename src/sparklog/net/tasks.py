"""Work on an event loop that goes on when its caller does not wait any more.

asyncio itself refers to a task only weakly, so each is held here until it is done; a failure is told to the owner.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
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


def retrieve(done: asyncio.Future[T]) -> None:
    """A done callback: look at the exception. Else asyncio reports it where nobody waits any more."""
    if not done.cancelled():
        done.exception()


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """What the work returns or raises. It goes on where its caller is cancelled; a failure is then told to nobody."""
    return await begun_to_its_end(work)


def begun_to_its_end(work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
    """As ``to_its_end``, to be awaited or cancelled later: the work is begun now."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(retrieve)
    return asyncio.shield(task)


async def on_a_thread(call: Callable[..., T], *arguments: object) -> T:
    """What the call returns or raises, on a thread of its own: however long it waits, it holds up neither the loop, nor
    what others do on threads, nor the end of the process. Where nobody waits for it any more, it is forgotten.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(set_it: Callable[[Any], None], value: object) -> None:
        if not outcome.done():
            set_it(value)

    def work() -> None:
        settled: tuple[Callable[[Any], None], object]
        try:
            settled = outcome.set_result, call(*arguments)
        except Exception as error:
            settled = outcome.set_exception, error
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(settle, *settled)

    threading.Thread(target=work, name="waits-for-others", daemon=True).start()
    return await outcome
