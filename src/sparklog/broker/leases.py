"""The leases that clients hold, by id, so that they can be ended before their time."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from sparklog.clock import Clock
from sparklog.log.lease import Lease
from sparklog.security.principal import Principal

LONGEST_S = 30
"""No lease runs longer: what is leased can be neither deleted nor compacted."""


class Leases:
    """Those of one broker. A restart forgets them, and their ids with them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[int, tuple[Lease, Principal]] = {}
        self._ends: list[tuple[float, int]] = []  # a heap; of those that were ended before their time too
        self.granted = 0
        """How many so far."""
        self._last_id = clock.now_ms()  # so that an id from before a restart is not given again

    def grant(self, duration_s: float, holder: Principal) -> tuple[int, Lease]:
        """A lease of ``duration_s`` from now on, and its id."""
        now = self._clock.monotonic()
        while self._ends and self._ends[0][0] <= now:
            self._running.pop(heapq.heappop(self._ends)[1], None)
        self._last_id += 1
        self.granted += 1
        lease = Lease(now, min(duration_s, LONGEST_S))
        self._running[self._last_id] = lease, holder
        heapq.heappush(self._ends, (lease.until, self._last_id))
        return self._last_id, lease

    @property
    def count(self) -> int:
        """How many run now."""
        now = self._clock.monotonic()
        return sum(lease.until > now for lease, _ in self._running.values())

    def end(self, numbers: Iterable[int], holder: Principal) -> None:
        """End these; one that has ended, is unknown or has another holder is passed over."""
        for number in numbers:
            found = self._running.get(number)
            if found is not None and found[1] == holder:
                del self._running[number]
                found[0].end()
