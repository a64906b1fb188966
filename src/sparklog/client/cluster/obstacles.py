"""What keeps a client waiting and may pass by itself: told to the log, now and then.

Who waits long, and a consumer waits as long as it takes, should not have to guess for what.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from sparklog.clock import Clock

PATIENCE = 2.0
"""Seconds for which what passes often and by itself (a leader that moves, a topic just created) is not told."""
INTERVAL = 30.0
"""Seconds between two lines about the same."""

_log = logging.getLogger(__name__)


@dataclass
class _Obstacle:
    since: float
    told_at: float | None = None


class Obstacles:
    """The obstacles of one client, each under a name. ``met`` whenever it is seen, ``over`` when it has passed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._obstacles: dict[str, _Obstacle] = {}

    def met(self, name: str, what: object, since: float | None = None, *, at_once: bool = False) -> None:
        """Log ``what`` as a warning if it lasts, or ``at_once``, and was not told lately; ``since`` is monotonic."""
        now = self._clock.monotonic()
        trouble = self._obstacles.setdefault(name, _Obstacle(now if since is None else since))
        told_lately = trouble.told_at is not None and now - trouble.told_at < INTERVAL
        if (at_once or now - trouble.since >= PATIENCE) and not told_lately:
            trouble.told_at = now
            _log.warning("still trying: %s", what)

    def over(self, name: str) -> None:
        self._obstacles.pop(name, None)
