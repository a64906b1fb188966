"""An event loop in a thread of its own, for the clients that block.

One daemon thread a client, ended with it, or with the program: then ``at_exit`` may say what is lost. The loop does not
survive a fork: its thread is not in the child process, so there every use raises ClientClosed, and nothing of it
touches the sockets that both processes hold.

Either the loop begins the work or the caller closes it: the one that takes it out of ``_unbegun``. For a caller that
is interrupted cannot know how far its call came. When the thread ends, all work that is not done is cancelled, so that
no caller waits for ever; ``at_failure`` is called if the thread ended without ``close``. ``check_wait`` raises where
the calling thread must not wait for the loop, since the loop waits for something that it holds.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import functools
import os
import threading
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from sparklog.errors import ApiError, ClientClosed, ErrorCode

T = TypeVar("T")
_EXIT_PATIENCE = 1.0
"""Seconds that the end of the program waits for what it cancels."""
_running: set[LoopThread] = set()


class LoopThread:
    """Runs coroutines for other threads. Starts at once; ``close`` ends it."""

    def __init__(
        self,
        name: str = "sparklog client",
        at_exit: Callable[[], object] | None = None,
        at_failure: Callable[[], object] | None = None,
        check_wait: Callable[[], object] | None = None,
    ) -> None:
        self._at_exit = at_exit
        self._at_failure = at_failure
        self._check_wait = check_wait
        self._unbegun: dict[Future[Any], Coroutine[Any, Any, Any]] = {}
        self._unsettled: set[Future[Any]] = set()
        self._process = os.getpid()
        self._is_stopped = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        _running.add(self)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        except BaseException:
            self._clear()
            if self._at_failure is not None:
                self._at_failure()
            raise
        else:
            self._clear()

    def _clear(self) -> None:
        """Close the loop, and end the wait of every caller whose work is not done."""
        try:
            # in no task, which another close might cancel that is about to begin
            self._loop.run_until_complete(_cancelled(asyncio.all_tasks(self._loop)))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()  # first: what is submitted from now on is refused
            for future in list(self._unsettled):
                self._give_up(future)

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """The result of ``work``. After ``timeout`` seconds, or when the caller is interrupted, ``work`` is cancelled.

        Raises ApiError(REQUEST_TIMED_OUT) then; ClientClosed after ``close``, in a child process, and from a callback
        on the loop itself, which would wait for itself.
        """
        future: Future[T] = Future()
        try:
            self._submit(work, future, waits=True)
            return future.result(timeout)
        except concurrent.futures.CancelledError:
            raise ClientClosed("the client was closed meanwhile") from None
        except TimeoutError:
            if future.done():
                raise  # it is what the work itself raised
            self._give_up(future)
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"not done within {timeout:g} s") from None
        except BaseException:
            self._give_up(future)
            raise

    def submit(self, work: Coroutine[Any, Any, T], *, waits: bool = False) -> Future[T]:
        """Start ``work``; ``waits`` says that the caller is going to block on it."""
        future: Future[T] = Future()
        self._submit(work, future, waits=waits)
        return future

    def _submit(self, work: Coroutine[Any, Any, T], future: Future[T], *, waits: bool) -> None:
        try:
            self._unbegun[future] = work
            self.check(waits)
            self._unsettled.add(future)
            future.add_done_callback(self._unsettled.discard)
            self.call_soon(self._begin, future)
        except BaseException:
            self._give_up(future)
            raise

    def _begin(self, future: Future[Any]) -> None:
        if self._is_stopped:  # it may be a close that would cancel what ends the loop
            self._give_up(future)
        work = self._unbegun.pop(future, None)
        if work is not None:
            task = self._loop.create_task(work)
            task.add_done_callback(functools.partial(_settle, future))
            future.add_done_callback(lambda _: self._cancel(task))

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        if not task.done():
            with suppress(RuntimeError):  # the loop was closed, and the task cancelled before
                self._loop.call_soon_threadsafe(task.cancel)

    def _give_up(self, future: Future[Any]) -> None:
        """Close the work if the loop has not begun it, and cancel the future."""
        work = self._unbegun.pop(future, None)
        if work is not None:
            work.close()
        future.cancel()

    def call_soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Call ``function`` on the loop, soon; without waiting."""
        self.check(waits=False)
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            self.check(waits=False)  # it was closed meanwhile
            raise

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
        if waits and self._check_wait is not None:
            self._check_wait()

    def close(self) -> None:
        """Cancel what still runs and end the thread. In a child process it does nothing.

        Raises ClientClosed on the thread itself, which cannot wait for its own end.
        """
        if os.getpid() != self._process or self._loop.is_closed():
            return
        if self.is_current:
            raise ClientClosed("a callback of this client cannot close it")
        self._end(None)

    def _end(self, patience: float | None) -> None:
        _running.discard(self)
        with suppress(ClientClosed, concurrent.futures.CancelledError):  # by another close, which may end here
            self.submit(_cancel_all()).result(patience)
        with suppress(ClientClosed):  # the loop ended meanwhile
            self.call_soon(self._stop)
        self._thread.join(patience)

    def _stop(self) -> None:
        """Once only: a second stop would end what ``_clear`` has the loop do."""
        if not self._is_stopped:
            self._is_stopped = True
            self._loop.stop()

    def _exit(self) -> None:
        """The program ends, and has not closed this."""
        if os.getpid() != self._process or self._loop.is_closed():
            return
        if self._at_exit is not None:
            self._at_exit()
        with suppress(TimeoutError):  # a callback that never returns must not keep the program
            self._end(_EXIT_PATIENCE)


def _settle(future: Future[Any], task: asyncio.Task[Any]) -> None:
    if task.cancelled():
        future.cancel()
    if not future.set_running_or_notify_cancel():
        return
    failure = task.exception()
    if failure is None:
        future.set_result(task.result())
    else:
        future.set_exception(failure)


async def _cancel_all() -> None:
    await _cancelled(asyncio.all_tasks().difference([asyncio.current_task()]))


def _cancelled(tasks: Collection[asyncio.Task[Any]]) -> asyncio.Future[list[Any]]:
    for task in tasks:
        task.cancel()
    return asyncio.gather(*tasks, return_exceptions=True)


@atexit.register
def _end_all() -> None:
    for thread in list(_running):
        thread._exit()
