"""One type of quota that is held as a rate: bytes or time, by user and client id (``ClientQuotaManager.scala``).

What was used is recorded first, and the client waits until the rate is within the bound again. With no bound for
anybody nothing is recorded. With one for somebody everybody is recorded, so that a bound set later finds what was used
before it.

It is asked with each request, so what is the same each time is kept: a client's sensor is looked for once in a window,
and a rate that is far below its bound is not measured.
"""

from __future__ import annotations

from math import inf
from typing import Final

from sparklog.quota.limits import Limits, Tags
from sparklog.quota.rate import LONGEST_MS, Rate, Windows, throttle_ms
from sparklog.quota.sensors import Sensors

_MOST_KNOWN: Final = 10_000
"""Clients whose sensors are kept at hand; with more all are looked for again."""


class _Sensor:
    __slots__ = ("bound", "found_ms", "rate", "version")

    def __init__(self, windows: Windows) -> None:
        self.rate = Rate(windows)
        self.bound: float | None = None
        self.version = -1
        self.found_ms = 0


class ClientQuota:
    """What each client has used, and how long it is to wait."""

    def __init__(self, windows: Windows, longest_ms: int = LONGEST_MS) -> None:
        """``longest_ms``: nobody waits longer for one request."""
        self.limits = Limits()
        self._windows = windows
        self._longest_ms = longest_ms
        self._sensors: Sensors[Tags | bytes, _Sensor] = Sensors(lambda: _Sensor(windows))
        self._known: dict[tuple[str, str], _Sensor] = {}  # under the limits of ``_known_version``
        self._known_version = -1

    @property
    def is_set(self) -> bool:
        """Whether anybody has a quota: if not, ask for nothing else."""
        return self.limits.is_set

    def record(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """The client has used so much; how many milliseconds it is to wait."""
        sensor = self._sensor(user, client_id, now_ms)
        sensor.rate.record(value, now_ms)
        if sensor.bound is None or sensor.rate.is_surely_within(sensor.bound):
            return 0
        observed = sensor.rate.measure(now_ms)
        if observed <= sensor.bound:
            return 0
        wait_ms = throttle_ms(observed, sensor.bound, sensor.rate.span_ms(now_ms), self._windows)
        return min(wait_ms, self._longest_ms)

    def take(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """As ``record``, where what is too much is not used, and does not count.

        A client that has used nothing for all windows may use any amount: else one that is larger than the quota of all
        windows could never be used.
        """
        wait_ms = self.record(user, client_id, value, now_ms)
        if not wait_ms:
            return 0
        sensor = self._sensor(user, client_id, now_ms)
        sensor.rate.record(-value, now_ms)
        if sensor.bound and sensor.rate.measure(now_ms) <= 0:
            sensor.rate.record(value, now_ms)
            return 0
        return wait_ms

    def take_back(self, user: str, client_id: str, value: float, now_ms: int) -> None:
        """What was just recorded was not used after all."""
        self._sensor(user, client_id, now_ms).rate.record(-value, now_ms)

    def most_at_once(self, user: str, client_id: str, now_ms: int) -> float:
        """What can be used at once without a wait, by a client that has used nothing."""
        bound = self._sensor(user, client_id, now_ms).bound
        return inf if bound is None else bound * (self._windows.samples - 1) * self._windows.size_ms / 1000

    def _sensor(self, user: str, client_id: str, now_ms: int) -> _Sensor:
        sensor = self._known.get((user, client_id))
        if (
            sensor is None
            or self._known_version != self.limits.version
            or now_ms - sensor.found_ms >= self._windows.size_ms
        ):
            sensor = self._find(user, client_id, now_ms)
        return sensor

    def _find(self, user: str, client_id: str, now_ms: int) -> _Sensor:
        version = self.limits.version
        if self._known_version != version or len(self._known) >= _MOST_KNOWN:
            self._known.clear()
            self._known_version = version
        tags = self.limits.tags(user, client_id)
        sensor = self._sensors.of(tags.key, now_ms)
        if Tags(user, client_id).is_short:
            self._known[user, client_id] = sensor
        sensor.found_ms = now_ms
        if sensor.version != version:
            sensor.bound = self.limits.bound(tags)
            sensor.version = version
        return sensor
