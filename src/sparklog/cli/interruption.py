"""Signals that ask a long command to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Remembers SIGINT: Python drops a KeyboardInterrupt that is raised in a finalizer or a callback of C code.

    A loop that calls ``check`` each round therefore ends in the next round, if not at once.
    """

    def __init__(self) -> None:
        self._has_come = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if SIGINT has come."""
        if self._has_come:
            raise KeyboardInterrupt

    @contextmanager
    def listening(self) -> Iterator[Interruption]:
        """SIGINT raises KeyboardInterrupt as ever, and is remembered. Where it is ignored, it stays so."""
        before = signal.getsignal(signal.SIGINT)
        if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
            yield self
            return
        signal.signal(signal.SIGINT, self._interrupt)
        try:
            yield self
        finally:
            signal.signal(signal.SIGINT, before)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self._has_come = True
        raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[None]:
    """The first SIGINT, SIGTERM or SIGHUP raises KeyboardInterrupt; from then on they are ignored.

    So an orderly stop is begun by any of them and cut short by none. Main thread only.
    """
    before = {number: signal.signal(number, _interrupt) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
