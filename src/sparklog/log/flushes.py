"""How often logs were flushed to their disks, and for how long; from any thread."""

from __future__ import annotations

import threading


class Flushes:
    """Those of all logs of a broker, also the ones that failed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0
        self.seconds = 0.0

    def note(self, seconds: float) -> None:
        """A log was flushed, which took so long."""
        with self._lock:
            self.count += 1
            self.seconds += seconds
