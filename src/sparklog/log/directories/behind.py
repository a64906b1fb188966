"""Background work on the disk thread, of which none is waited for: what is waited for goes first.

Invariants: the work is done one piece after another, in the order in which it came, and the executor is handed the next
piece when the last one is over. So whatever else the executor is handed waits for one piece at most, however many have
piled up: an election gives a thousand logs an epoch to write at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor


class Behind:
    """Any thread may submit."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._waiting = deque[Callable[[], None]]()
        self._is_busy = False
        self._changing = threading.Lock()

    def submit(self, work: Callable[[], None]) -> None:
        """Have ``work`` done some time; it does not raise."""
        with self._changing:
            self._waiting.append(work)
            if self._is_busy:
                return
            self._is_busy = True
        self._executor.submit(self._next)

    def _next(self) -> None:
        with self._changing:
            work = self._waiting.popleft() if self._waiting else None
        if work is not None:
            work()
        with self._changing:
            self._is_busy = bool(self._waiting)
            if not self._is_busy:
                return
        self._executor.submit(self._next)

    def drop(self) -> None:
        """What has not begun is not wanted any more."""
        with self._changing:
            self._waiting.clear()
