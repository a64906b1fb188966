"""What brokers have asked a client to wait, since it began: quotas slow a program down, and this is where it shows."""

from __future__ import annotations

from threading import Lock


class Throttling:
    """Adds up the times of silence that answers came with. Any thread may add and read."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._count = 0
        self._total_s = 0.0
        self._longest_s = 0.0

    def add(self, seconds: float) -> None:
        """An answer wants nothing to be sent for so long."""
        self._add(1, seconds, seconds)

    def include(self, other: Throttling) -> None:
        """Add what another one has added up."""
        self._add(other._count, other._total_s, other._longest_s)

    def _add(self, count: int, total_s: float, longest_s: float) -> None:
        with self._lock:
            self._count += count
            self._total_s += total_s
            self._longest_s = max(self._longest_s, longest_s)

    def metrics(self) -> dict[str, float]:
        """``throttle-count`` answers had a time; ``throttle-time-avg``, ``-max`` and ``-total`` are ms, of these."""
        average = self._total_s / self._count if self._count else 0.0
        times = {"avg": average, "max": self._longest_s, "total": self._total_s}
        return {"throttle-count": self._count} | {f"throttle-time-{name}": at * 1000 for name, at in times.items()}
