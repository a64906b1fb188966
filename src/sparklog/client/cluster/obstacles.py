"""What keeps a client waiting and may pass by itself: told to the log, now and then.

A caller that waits long, and a consumer waits as long as it takes, should not have to guess for what.
"""

from __future__ import annotations

import logging

from sparklog.clock import Clock
from sparklog.rate_limit import RateLimit

PATIENCE = 2.0
"""Seconds for which what passes often and by itself (a leader that moves, a topic just created) is not told."""
INTERVAL = 30.0
"""Seconds between two lines about the same."""

_log = logging.getLogger(__name__)


class Obstacles:
    """The obstacles of one client, each under a name. ``met`` whenever it is seen, ``over`` when it has passed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._obstacles: dict[str, float] = {}
        """Since when, on the monotonic clock."""
        self._limit = RateLimit(clock.monotonic, INTERVAL)

    def met(self, name: str, what: object, since: float | None = None, *, at_once: bool = False) -> None:
        """Log ``what`` as a warning if it lasts, or ``at_once``, and was not told lately; ``since`` is monotonic."""
        now = self._clock.monotonic()
        began = self._obstacles.setdefault(name, now if since is None else since)
        if (at_once or now - began >= PATIENCE) and self._limit.admit(name) is not None:
            _log.warning("still trying: %s", what)

    def over(self, name: str) -> None:
        self._obstacles.pop(name, None)
        self._limit.forget(name)
