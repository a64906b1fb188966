"""What the broker's log says of full disks: a line at the first refusal, few of the next, a line when there is room.

A full disk refuses and stays in service, so nothing else would tell an operator. Of a log directory's refusals one in
ten seconds is told, with how many were not. There is room again when something could be written and the disk has more
free than at the last refusal; a quota and the table of open files show in no number, so there a write is enough.
"""

from __future__ import annotations

import errno
import logging
import shutil
import threading
from pathlib import Path

from sparklog.clock import Clock
from sparklog.errors import DiskFull
from sparklog.rate_limit import RateLimit

_logger = logging.getLogger(__name__)
_INTERVAL_S = 10.0
_UNKNOWN = -1


class Room:
    """Which log directories are short of room; from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._lock = threading.Lock()
        self._limit = RateLimit(clock.monotonic, _INTERVAL_S)
        self._short: dict[Path, int] = {}
        """Bytes free at the last refusal; unknown where they do not tell whether there is room."""

    @property
    def is_short(self) -> bool:
        """Whether any of them is."""
        return bool(self._short)

    def refused(self, log_dir: Path, error: DiskFull) -> None:
        """Something in ``log_dir`` could not be written."""
        free = _free(log_dir)
        with self._lock:
            self._short[log_dir] = free if error.errno == errno.ENOSPC else _UNKNOWN
            untold = self._limit.admit(log_dir)
        if untold is None:
            return
        _logger.warning(
            "log directory %s has no room (%s): %s. What it refuses is answered KAFKA_STORAGE_ERROR, and nothing that "
            "was acknowledged is lost; %s%s",
            log_dir,
            "free bytes unknown" if free == _UNKNOWN else f"{free} bytes free",
            error,
            _advice(error.errno),
            f" (refused {untold} times more since the last such line)" if untold else "",
        )

    def written(self, log_dir: Path) -> None:
        """Something in ``log_dir`` was written."""
        if log_dir not in self._short:
            return
        free = _free(log_dir)
        with self._lock:
            before = self._short.get(log_dir)
            if before is None or (before != _UNKNOWN and free <= before):
                return
            del self._short[log_dir]
            self._limit.forget(log_dir)
        _logger.warning("log directory %s has room again (%d bytes free)", log_dir, free)


def _free(log_dir: Path) -> int:
    try:
        return shutil.disk_usage(log_dir).free
    except OSError:
        return _UNKNOWN


def _advice(number: int | None) -> str:
    if number in (errno.EMFILE, errno.ENFILE):
        return "let the process open more files"
    return "make room on that disk: delete topics, or lower their retention.ms or retention.bytes"
