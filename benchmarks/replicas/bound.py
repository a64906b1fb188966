"""An end to what takes too long."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class OutOfTime(Exception):
    """The bound was met."""


@contextmanager
def bound(seconds: float) -> Iterator[None]:
    """OutOfTime within, after so many seconds; in the main thread alone. A call into C ends first."""

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise OutOfTime(f"it was stopped after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
