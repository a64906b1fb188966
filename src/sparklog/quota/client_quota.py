"""One type of quota that is held as a rate: bytes or time, by user and client id (``ClientQuotaManager.scala``).

What was used is recorded first, and the client waits until the rate is within the bound again. With no bound for
anybody nothing is recorded. With one for somebody everybody is recorded, so that a bound set later finds what was used
before it.
"""

from __future__ import annotations

from math import inf

from sparklog.quota.limits import Limits, Tags
from sparklog.quota.rate import LONGEST_MS, Rate, Windows, throttle_ms
from sparklog.quota.sensors import Sensors


class _Sensor:
    __slots__ = ("bound", "rate", "version")

    def __init__(self, windows: Windows) -> None:
        self.rate = Rate(windows)
        self.bound: float | None = None
        self.version = -1


class ClientQuota:
    """What each client has used, and how long it is to wait."""

    def __init__(self, windows: Windows, longest_ms: int = LONGEST_MS) -> None:
        """``longest_ms``: nobody waits longer for one request."""
        self.limits = Limits()
        self._windows = windows
        self._longest_ms = longest_ms
        self._sensors: Sensors[Tags, _Sensor] = Sensors(lambda: _Sensor(windows))

    @property
    def is_set(self) -> bool:
        """Whether anybody has a quota: if not, ask for nothing else."""
        return self.limits.is_set

    def record(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """The client has used so much; how many milliseconds it is to wait."""
        sensor = self._sensor(user, client_id, now_ms)
        sensor.rate.record(value, now_ms)
        if sensor.bound is None:
            return 0
        observed = sensor.rate.measure(now_ms)
        if observed <= sensor.bound:
            return 0
        wait_ms = throttle_ms(observed, sensor.bound, sensor.rate.span_ms(now_ms), self._windows)
        return min(wait_ms, self._longest_ms)

    def take(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """As ``record``, where what is too much is not used, and does not count.

        Who has used nothing for all windows may use any amount, or one that is larger than the quota of all windows
        would never be.
        """
        sensor = self._sensor(user, client_id, now_ms)
        if sensor.bound and sensor.rate.measure(now_ms) <= 0:
            sensor.rate.record(value, now_ms)
            return 0
        wait_ms = self.record(user, client_id, value, now_ms)
        if wait_ms:
            sensor.rate.record(-value, now_ms)
        return wait_ms

    def take_back(self, user: str, client_id: str, value: float, now_ms: int) -> None:
        """What was just recorded was not used after all."""
        self._sensor(user, client_id, now_ms).rate.record(-value, now_ms)

    def most_at_once(self, user: str, client_id: str, now_ms: int) -> float:
        """What can be used at once without a wait, by who has used nothing."""
        bound = self._sensor(user, client_id, now_ms).bound
        return inf if bound is None else bound * (self._windows.samples - 1) * self._windows.size_ms / 1000

    def _sensor(self, user: str, client_id: str, now_ms: int) -> _Sensor:
        tags = self.limits.tags(user, client_id)
        sensor = self._sensors.of(tags, now_ms)
        if sensor.version != self.limits.version:
            sensor.bound = self.limits.bound(tags)
            sensor.version = self.limits.version
        return sensor
