"""Start again what died."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sparklog.clock import Clock, SystemClock
from sparklog.errors import SparklogError

_log = logging.getLogger(__name__)

POLL_S = 0.1
FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 10.0
HEALTHY_AFTER_S = 30.0
"""One that has lived this long is forgiven: its next death is a first one again."""


class Service(Protocol):
    """What can be supervised."""

    name: str

    @property
    def pid(self) -> int: ...

    @property
    def alive(self) -> bool: ...

    @property
    def fate(self) -> str: ...

    def spawn(self) -> None: ...

    def is_ready(self) -> bool: ...

    def news(self) -> list[str]: ...


@dataclass
class _Watched:
    service: Service
    started_at: float
    delay: float = FIRST_DELAY_S
    start_at: float | None = None
    """When to start it again; None while it is up."""
    returning: bool = False
    trouble: str = ""
    """What was told last of a mistake of ours: it would be told ten times a second."""


class Supervisor:
    """Looks at every service ten times a second; a dead one is started again after a delay that doubles each time.

    ``report(text)`` is told of each death and each return, and what a service has to say; ``started(service)`` that
    there is a new process id. Both are called on the supervisor's thread, and what they raise is logged: it keeps no
    service from being started again. ``look`` is one round, for a caller with a thread or a test of their own.
    """

    def __init__(
        self,
        services: Sequence[Service],
        report: Callable[[str], None],
        started: Callable[[Service], None],
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        now = self._clock.monotonic()
        self._watched = [_Watched(service, now) for service in services]
        self._report = report
        self._started = started
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sparklog-supervisor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Return when nothing will be started any more."""
        self._stopping.set()
        self._thread.join()

    def look(self) -> None:
        for watched in self._watched:
            for step in (self._pass_on_news, self._keep_up):
                self._take(step, watched)

    def _run(self) -> None:
        while not self._stopping.wait(POLL_S):
            self.look()

    def _take(self, step: Callable[[_Watched], None], watched: _Watched) -> None:
        try:
            step(watched)
        except OSError:
            pass  # its log cannot be read just now: the next round tries again
        except Exception as error:  # whatever it is, the services must be watched on
            if repr(error) != watched.trouble:
                watched.trouble = repr(error)
                _log.warning("could not look after %s: %r", watched.service.name, error, exc_info=True)

    def _pass_on_news(self, watched: _Watched) -> None:
        for line in watched.service.news():
            self._tell(f"{watched.service.name}: {line}")

    def _keep_up(self, watched: _Watched) -> None:
        if watched.start_at is not None:
            self._try_again(watched)
        elif not watched.service.alive:
            self._schedule(watched, f"{watched.service.name} {watched.service.fate}")
        else:
            self._forgive(watched)

    def _tell(self, text: str) -> None:
        try:
            self._report(text)
        except Exception as error:  # whatever it is, the services must be watched on
            _log.warning("could not report %r: %s", text, error)

    def _schedule(self, watched: _Watched, why: str) -> None:
        delay = watched.delay
        watched.start_at = self._clock.monotonic() + delay
        watched.delay = min(2 * delay, LONGEST_DELAY_S)
        self._tell(f"{why}; starting it again in {delay:g} s")

    def _try_again(self, watched: _Watched) -> None:
        now = self._clock.monotonic()
        if watched.start_at is None or now < watched.start_at:
            return
        service = watched.service
        try:
            service.spawn()
        except (SparklogError, OSError) as error:
            self._schedule(watched, f"{service.name} could not be started: {error}")
            return
        watched.start_at, watched.started_at, watched.returning = None, now, True
        try:
            self._started(service)
        except Exception as error:  # it runs, and must not be started twice
            self._tell(f"{service.name} runs as process {service.pid}, which could not be noted: {error}")

    def _forgive(self, watched: _Watched) -> None:
        if watched.returning and watched.service.is_ready():
            watched.returning = False
            self._tell(f"{watched.service.name} is back (process {watched.service.pid})")
        if self._clock.monotonic() - watched.started_at > HEALTHY_AFTER_S:
            watched.delay = FIRST_DELAY_S
