"""Signals that ask a long command to end."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_CHECK_SECONDS = 0.5


class Interruption:
    """Remembers that a signal asked to end: Python drops what a handler raises in a finalizer or a callback of C code.

    A loop that calls ``check`` each round therefore ends in the next round, if not at once.
    """

    def __init__(self, signals: Iterable[signal.Signals]) -> None:
        self._signals = tuple(signals)
        self._has_come = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has come."""
        if self._has_come:
            raise KeyboardInterrupt

    def wait(self) -> None:
        """Sleep until a signal comes, then raise KeyboardInterrupt."""
        while True:
            self.check()
            time.sleep(_CHECK_SECONDS)

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """The handler: raises KeyboardInterrupt. The signals are ignored from then on."""
        for number in self._signals:
            signal.signal(number, signal.SIG_IGN)
        self._has_come = True
        raise KeyboardInterrupt


@contextmanager
def interruptible(signals: Iterable[signal.Signals] = SIGNALS) -> Iterator[Interruption]:
    """The first of the signals raises KeyboardInterrupt in the block; from then on they are ignored.

    So an orderly stop is begun by any of them and cut short by none. A signal that is ignored when the block is
    entered stays ignored, as nohup wants it. Outside the main thread no signal is heard.
    """
    is_main = threading.current_thread() is threading.main_thread()
    heard = {each: before for each in signals if (before := signal.getsignal(each)) is not signal.SIG_IGN and is_main}
    interruption = Interruption(heard)
    for each in heard:
        signal.signal(each, interruption.on_signal)
    try:
        yield interruption
    finally:
        for each, before in heard.items():
            signal.signal(each, before)
