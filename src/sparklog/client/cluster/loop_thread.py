"""An event loop in a thread of its own, for the clients that block.

One daemon thread a client, ended with it, or with the program: then ``at_exit`` may say what is lost. The loop does not
survive a fork: its thread is not in the child process, so there every use raises ClientClosed, and nothing of it
touches the sockets that both processes hold.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from sparklog.errors import ApiError, ClientClosed, ErrorCode

T = TypeVar("T")
_EXIT_PATIENCE = 1.0
"""Seconds that the end of the program waits for what it cancels."""
_running: set[LoopThread] = set()


class LoopThread:
    """Runs coroutines for other threads. Starts at once; ``close`` ends it."""

    def __init__(self, name: str = "sparklog client", at_exit: Callable[[], object] | None = None) -> None:
        self._at_exit = at_exit
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        _running.add(self)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """The result of ``work``. After ``timeout`` seconds, or when the caller is interrupted, ``work`` is cancelled.

        Raises ApiError(REQUEST_TIMED_OUT) then; ClientClosed after ``close``, in a child process, and from a callback
        on the loop itself, which would wait for itself.
        """
        future = self.submit(work, waits=True)
        try:
            return future.result(timeout)
        except concurrent.futures.CancelledError:
            raise ClientClosed("the client was closed meanwhile") from None
        except TimeoutError:
            if future.done():
                raise  # it is what the work itself raised
            future.cancel()
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"not done within {timeout:g} s") from None
        except BaseException:
            future.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, T], *, waits: bool = False) -> concurrent.futures.Future[T]:
        """Start ``work``; ``waits`` says that the caller is going to block on it."""
        try:
            self.check(waits)
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except BaseException:
            work.close()
            raise

    def call_soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Call ``function`` on the loop, soon; without waiting."""
        self.check(waits=False)
        self._loop.call_soon_threadsafe(function, *arguments)

    @property
    def is_current(self) -> bool:
        """Whether the caller is on the loop's thread."""
        return threading.get_ident() == self._thread.ident

    @property
    def is_usable(self) -> bool:
        """Whether it was not closed, and this is the process that made it."""
        return os.getpid() == self._process and not self._loop.is_closed()

    def check(self, waits: bool = False) -> None:
        """Raises ClientClosed where it cannot be used; ``waits``: nor be waited for."""
        if os.getpid() != self._process:
            raise ClientClosed(
                "this client was made before the process forked and works only in the parent; make one in the child"
            )
        if self._loop.is_closed() or not self._thread.is_alive():
            raise ClientClosed("this client was closed")
        if waits and self.is_current:
            raise ClientClosed("a callback of this client cannot wait for it; use the asynchronous client")

    def close(self) -> None:
        """Cancel what still runs and end the thread. In a child process it does nothing."""
        if os.getpid() != self._process or self._loop.is_closed():
            return
        if self.is_current:
            raise ClientClosed("a callback of this client cannot close it")
        self._end(None)

    def _end(self, patience: float | None) -> None:
        _running.discard(self)
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result(patience)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(patience)

    def _exit(self) -> None:
        """The program ends, and has not closed this."""
        if os.getpid() != self._process or self._loop.is_closed():
            return
        if self._at_exit is not None:
            self._at_exit()
        with suppress(TimeoutError):  # a callback that never returns must not keep the program
            self._end(_EXIT_PATIENCE)


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@atexit.register
def _end_all() -> None:
    for thread in list(_running):
        thread._exit()
