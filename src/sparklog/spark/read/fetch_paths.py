"""Counts how much a Python worker read from segment files and how much by Fetch, and why it fetched.

A Python data source has no metrics in Spark. So the sums of a task go to the worker's log, and the sums of the worker
process are in ``PROCESS``.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field

_log = logging.getLogger(__name__)
_logged_reasons: set[str] = set()


@dataclass
class ReadPathCounters:
    """The counts of one task, or of a process. Bytes are those of whole record batches, so compressed."""

    direct_bytes: int = 0
    fetched_bytes: int = 0
    ranges: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter)
    """Reason → number of ranges, or remainders of ranges, that were fetched instead of read from files."""

    def add(self, other: ReadPathCounters) -> None:
        self.direct_bytes += other.direct_bytes
        self.fetched_bytes += other.fetched_bytes
        self.ranges += other.ranges
        self.fallbacks.update(other.fallbacks)

    def fell_back(self, reason: str, detail: str, level: int = logging.INFO) -> None:
        """Count a range that is fetched instead. The first one for each reason in this process is logged."""
        self.fallbacks[reason] += 1
        if reason not in _logged_reasons:
            _logged_reasons.add(reason)
            _log.log(level, "reading by Fetch where segment files were to be read (%s): %s", reason, detail)

    def report(self) -> None:
        """Log the counts of a task that has ended, and add them to the sums of the process."""
        PROCESS.add(self)
        why = ", ".join(f"{reason}: {count}" for reason, count in sorted(self.fallbacks.items()))
        _log.info(
            "read %d ranges: %d bytes from segment files, %d bytes by Fetch%s",
            self.ranges,
            self.direct_bytes,
            self.fetched_bytes,
            f" ({why})" if why else "",
        )


PROCESS = ReadPathCounters()
"""The sums of all tasks of this Python process that have ended."""
