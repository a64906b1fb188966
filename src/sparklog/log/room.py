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
from dataclasses import dataclass
from pathlib import Path

from sparklog.clock import Clock
from sparklog.errors import DiskFull

_logger = logging.getLogger(__name__)
_WINDOW_S = 10.0
_UNKNOWN = -1


@dataclass(slots=True)
class _Shortage:
    """A log directory that refused; ``told_at`` is None while nothing was said of it."""

    told_at: float | None = None
    untold: int = 0
    free: int = _UNKNOWN
    """Bytes at the last refusal; unknown where they do not tell whether there is room."""


class Room:
    """Which log directories are short of room; from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._short: dict[Path, _Shortage] = {}

    @property
    def is_short(self) -> bool:
        """Whether any of them is."""
        return bool(self._short)

    def refused(self, log_dir: Path, error: DiskFull) -> None:
        """Something in ``log_dir`` could not be written."""
        free = _free(log_dir)
        with self._lock:
            shortage = self._short.setdefault(log_dir, _Shortage())
            shortage.free = free if error.errno == errno.ENOSPC else _UNKNOWN
            now = self._clock.monotonic()
            if shortage.told_at is not None and now - shortage.told_at < _WINDOW_S:
                shortage.untold += 1
                return
            untold, shortage.told_at, shortage.untold = shortage.untold, now, 0
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
            shortage = self._short.get(log_dir)
            if shortage is None or (shortage.free != _UNKNOWN and free <= shortage.free):
                return
            del self._short[log_dir]
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
