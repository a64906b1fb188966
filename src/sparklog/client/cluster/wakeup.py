"""When a state machine on an event loop has its turn: soon after it was woken, once for however many wakes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

_log = logging.getLogger(__name__)
_PAUSE_AFTER_FAILURE = 1.0


class Wakeup:
    """Calls ``turn`` after each ``wake``, and again when the seconds that it returned are over (None: not by itself).

    There is no task behind it: a turn is one callback of the loop, which is where the time of a round trip goes.
    """

    def __init__(self, turn: Callable[[], float | None]) -> None:
        self._turn = turn
        self._loop = asyncio.get_running_loop()
        self._soon: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_called = False
        self._is_over = False

    def wake(self) -> None:
        """Have a turn when what runs on the loop now is done."""
        if self._soon is None and not self._is_over:
            self._soon = self._loop.call_soon(self._take)

    def call(self) -> None:
        """``wake`` from any thread."""
        if not self._is_called and not self._is_over:
            try:
                self._is_called = True  # taken back before the turn looks at anything, so what comes later calls again
                self._loop.call_soon_threadsafe(self._take)
            except BaseException:  # the loop may not have heard of it
                self._is_called = False
                raise

    def stop(self) -> None:
        """No turn begins after this; from any thread."""
        self._is_over = True

    def end(self) -> None:
        """No turn after this."""
        self.stop()
        self._forget()

    def _forget(self) -> None:
        for handle in (self._soon, self._timer):
            if handle is not None:
                handle.cancel()
        self._soon = self._timer = None

    def _take(self) -> None:
        self._is_called = False
        if self._is_over:
            return
        self._forget()
        try:
            delay = self._turn()
        except Exception:
            _log.exception("a turn failed; another one follows")
            delay = _PAUSE_AFTER_FAILURE
        if delay is not None and not self._is_over:
            self._timer = self._loop.call_later(delay, self._take)
