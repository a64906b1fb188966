"""What is remembered of each client, as long as it is used.

A sensor that nobody has used for an hour is forgotten. Each use looks for one such, so that a use costs the same
however many sensors there are. Clients choose their names, before they have authenticated too, and may bring another
one each time: so there are ``MOST`` sensors, of which the one that was unused longest gives way.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
S = TypeVar("S")

FORGOTTEN_AFTER_MS: Final = 3600 * 1000
MOST: Final = 20_000


class _Used(Generic[S]):
    __slots__ = ("last_ms", "sensor")

    def __init__(self, sensor: S, now_ms: int) -> None:
        self.sensor = sensor
        self.last_ms = now_ms


class Sensors(Generic[K, S]):
    """One for each key, made when it is first asked for."""

    def __init__(self, make: Callable[[], S]) -> None:
        self._make = make
        self._by_use: OrderedDict[K, _Used[S]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_use)

    def of(self, key: K, now_ms: int) -> S:
        """The sensor of this key, which is used now."""
        self._forget_one(now_ms)
        used = self._by_use.get(key)
        if used is None or now_ms - used.last_ms >= FORGOTTEN_AFTER_MS:
            used = self._by_use[key] = _Used(self._make(), now_ms)
            if len(self._by_use) > MOST:
                self._by_use.popitem(last=False)
        used.last_ms = now_ms
        self._by_use.move_to_end(key)
        return used.sensor

    def clear(self) -> None:
        """Forget all of them."""
        self._by_use.clear()

    def _forget_one(self, now_ms: int) -> None:
        """The one that was unused longest, if that was long."""
        for key, used in self._by_use.items():
            if now_ms - used.last_ms >= FORGOTTEN_AFTER_MS:
                del self._by_use[key]
            return
