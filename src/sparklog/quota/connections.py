"""The rate at which an address may connect (KIP-612, ``ConnectionQuotas`` in ``SocketServer.scala``).

A connection that is too many is not counted: it is held for the time that is told, so that its client does not come
back at once, and closed then. No address waits for another one.
"""

from __future__ import annotations

from sparklog.quota.entity import DEFAULT, Name
from sparklog.quota.rate import Rate, Windows, throttle_ms
from sparklog.quota.sensors import Sensors


class ConnectionRates:
    """What each address has used."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._bounds: dict[Name, float] = {}
        self._sensors: Sensors[str, Rate] = Sensors(lambda: Rate(windows))

    @property
    def is_set(self) -> bool:
        """Whether any address has a bound."""
        return bool(self._bounds)

    def set(self, address: Name, bound: float | None) -> None:
        """Connections a second, from now on; None for no bound of its own."""
        if bound is None:
            self._bounds.pop(address, None)
        else:
            self._bounds[address] = bound

    def record(self, address: str, now_ms: int) -> int:
        """It connects; for how many milliseconds to hold it before it is closed, 0: it may stay."""
        bound = self._bounds.get(address, self._bounds.get(DEFAULT))
        if bound is None:
            return 0
        rate = self._sensors.of(address, now_ms)
        rate.record(1, now_ms)
        observed = rate.measure(now_ms)
        if observed <= bound:
            return 0
        held_ms = throttle_ms(observed, bound, rate.span_ms(now_ms), self._windows)
        rate.record(-1, now_ms)
        return max(min(held_ms, self._windows.size_ms), 1)
