"""How much a Python worker read from segment files itself, and how much by Fetch, and why.

Spark gives a Python data source no metrics of its own: the sums of a task go to the worker's log, those of the worker
process are in ``PROCESS``.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field

_log = logging.getLogger(__name__)
_told: set[str] = set()


@dataclass
class PathsTaken:
    """Bytes are those of whole batches, as they lie in the files or come in the answers."""

    direct_bytes: int = 0
    fetched_bytes: int = 0
    ranges: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter)
    """Ranges, or rests of them, that were fetched though they were to be read from files: how many for which reason."""

    def add(self, other: PathsTaken) -> None:
        self.direct_bytes += other.direct_bytes
        self.fetched_bytes += other.fetched_bytes
        self.ranges += other.ranges
        self.fallbacks.update(other.fallbacks)

    def fell_back(self, reason: str, detail: str, level: int = logging.INFO) -> None:
        """Count it; the first of a reason in this process is said in the log."""
        self.fallbacks[reason] += 1
        if reason not in _told:
            _told.add(reason)
            _log.log(level, "reading by Fetch where segment files were to be read (%s): %s", reason, detail)

    def report(self) -> None:
        """A task has ended: say what it did, and add it to the sums of the process."""
        PROCESS.add(self)
        why = ", ".join(f"{reason}: {count}" for reason, count in sorted(self.fallbacks.items()))
        _log.info(
            "read %d ranges: %d bytes from segment files, %d bytes by Fetch%s",
            self.ranges,
            self.direct_bytes,
            self.fetched_bytes,
            f" ({why})" if why else "",
        )


PROCESS = PathsTaken()
"""Of all tasks of this Python process that have ended."""
