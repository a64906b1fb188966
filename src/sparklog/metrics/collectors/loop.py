"""How late the loop comes to its timers, and how much of the processor it uses."""

from __future__ import annotations

import asyncio
import time
from collections import deque

from sparklog.metrics import families
from sparklog.metrics.collectors.histogram import add_histogram
from sparklog.metrics.exposition import Exposition
from sparklog.net.request_meter import RequestMeter
from sparklog.protocol.slices import Steps

_EVERY_S = 0.1
_KEPT_S = 60.0
_LOOK_AT_CPU_EVERY_S = 5.0


class LoopLag:
    """Tries the loop ten times a second, from ``start`` to ``close``."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._lags = RequestMeter("loop", 1)
        self._latest: deque[tuple[float, float]] = deque()
        """The latest of the last minute that none since exceeds: when, and how late; falling."""
        self._used: deque[tuple[float, float]] = deque()
        """Processor time (s) of the loop's thread by then, of the last minute."""

    def start(self) -> None:
        """Begin to try the loop that runs."""
        self._try(asyncio.get_running_loop())

    def close(self) -> None:
        """Try no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _try(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + _EVERY_S
        self._timer = loop.call_at(due, self._on_time, loop, due)

    def _on_time(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now = loop.time()
        self.note(now, max(now - due, 0.0))
        if not self._used or now - self._used[-1][0] >= _LOOK_AT_CPU_EVERY_S:
            self.use(now, time.thread_time())
        self._try(loop)

    def note(self, now: float, late_s: float) -> None:
        """The loop was so late at this time."""
        self._lags.answer(late_s)
        while self._latest and self._latest[-1][1] <= late_s:
            self._latest.pop()
        self._latest.append((now, late_s))
        while self._latest[0][0] < now - _KEPT_S:
            self._latest.popleft()

    def use(self, now: float, cpu_s: float) -> None:
        """The loop's thread has used so much processor time by this time."""
        self._used.append((now, cpu_s))
        while self._used[0][0] < now - _KEPT_S:
            self._used.popleft()

    @property
    def idle(self) -> float:
        """The share of the last minute in which the loop's thread used no processor; 1 before it is known."""
        if len(self._used) < 2:
            return 1.0
        (since, before), (now, cpu_s) = self._used[0], self._used[-1]
        return min(max(1 - (cpu_s - before) / (now - since), 0.0), 1.0)

    def collect(self, page: Exposition) -> Steps[None]:
        add_histogram(page, families.LOOP_LAG, self._lags)
        page.add(families.LOOP_CPU, self._used[-1][1] if self._used else 0.0)
        page.add(families.NETWORK_IDLE, round(self.idle, 4))
        page.add(families.NETWORK_IDLE_BY_STRIMZI, round(self.idle, 4))
        page.add(families.HANDLER_IDLE, round(self.idle, 4))
        page.add(families.LOOP_LAG_MAX, round(self._latest[0][1], 6) if self._latest else 0.0)
        yield
