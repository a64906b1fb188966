"""When to try again what failed: later each time, for each key on its own."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from sparklog.clock import Clock

_FIRST_S, _LONGEST_S = 0.25, 30.0
K = TypeVar("K", bound=Hashable)


class Pauses(Generic[K]):
    """A key is at rest until ``postpone``, then paused until its time has come; success is told with ``forget``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next: dict[K, float] = {}
        self._due: dict[K, float] = {}

    def postpone(self, key: K) -> None:
        """It failed: pause, twice as long as the last time. A pause that goes on is not made longer."""
        if key not in self._due:
            pause = self._next.get(key, _FIRST_S)
            self._next[key] = min(2 * pause, _LONGEST_S)
            self._due[key] = self._clock.monotonic() + pause

    def forget(self, key: K) -> None:
        """It worked, or does not matter any more."""
        self._next.pop(key, None)
        self._due.pop(key, None)

    def take_due(self) -> set[K]:
        """The keys whose pause is over; they are to be tried now, and to fail or to work."""
        now = self._clock.monotonic()
        due = {key for key, time in self._due.items() if time <= now}
        for key in due:
            del self._due[key]
        return due

    def is_paused(self, key: K) -> bool:
        return key in self._due

    def left(self, longest: float) -> float:
        """Seconds until the next pause ends, at most ``longest``."""
        return max(min([longest, *(time - self._clock.monotonic() for time in self._due.values())]), 0.0)
