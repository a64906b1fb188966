"""What the broker's log says of full disks: a line at the first refusal, few of the next, a line when there is room.

A full disk refuses and stays in service, so nothing else would tell an operator. Of a log directory's refusals one in
ten seconds is told, with how many were not, also where there was room in between: a disk that others fill and empty,
or a table of open files at its limit, refuses one file and takes the next many times a second. There is room again when
something could be written and the disk has more free than at the last refusal, bytes or inodes: it refuses for want of
either. A quota and the table of open files show in no number, so there a write is enough. That there is room again is
told once, of a refusal that was told.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from pathlib import Path
from typing import NamedTuple

from sparklog.clock import Clock
from sparklog.errors import DiskFull
from sparklog.rate_limit import RateLimit

_logger = logging.getLogger(__name__)
_INTERVAL_S = 10.0
_OPEN_FILES = (errno.EMFILE, errno.ENFILE)


class _Free(NamedTuple):
    """What a disk has left."""

    bytes: int
    inodes: int | None
    """None where the file system has no number of them."""

    def __str__(self) -> str:
        inodes = " and no inode" if self.inodes == 0 else ""
        return f"{self.bytes} bytes{inodes} free"

    def is_more_than(self, before: _Free) -> bool:
        return self.bytes > before.bytes or (self.inodes or 0) > (before.inodes or 0)


class Room:
    """Which log directories are short of room; from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._lock = threading.Lock()
        self._limit = RateLimit(clock.monotonic, _INTERVAL_S)
        self._short: dict[Path, _Free | None] = {}
        """What was free at the last refusal; None where that does not tell whether there is room."""
        self._told: dict[Path, int | None] = {}
        """Of what refusal, by its errno, the log has a line, and none yet that it is over."""

    @property
    def is_short(self) -> bool:
        """Whether any of them is."""
        return bool(self._short)

    def refused(self, log_dir: Path, error: DiskFull) -> None:
        """Something in ``log_dir`` could not be written."""
        free = _free(log_dir)
        with self._lock:
            self._short[log_dir] = free if error.errno == errno.ENOSPC else None
            untold = self._limit.admit(log_dir)
            if untold is None:
                return
            self._told[log_dir] = error.errno
        _logger.warning(
            "log directory %s %s: %s. What it refuses is answered KAFKA_STORAGE_ERROR, and nothing that was "
            "acknowledged is lost; %s%s",
            log_dir,
            _lack(error.errno, free),
            error,
            _advice(error.errno, free),
            f" (refused {untold} times more since the last such line)" if untold else "",
        )

    def written(self, log_dir: Path) -> None:
        """Something in ``log_dir`` was written."""
        if log_dir not in self._short:
            return
        free = _free(log_dir)
        with self._lock:
            before = self._short.get(log_dir)
            if log_dir not in self._short or (before and not (free and free.is_more_than(before))):
                return
            del self._short[log_dir]
            if log_dir not in self._told:
                return
            number = self._told.pop(log_dir)
        _logger.warning("log directory %s %s", log_dir, _relief(number, free))


def _free(log_dir: Path) -> _Free | None:
    try:
        found = os.statvfs(log_dir)
    except OSError:
        return None
    return _Free(found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None)


def _lack(number: int | None, free: _Free | None) -> str:
    if number in _OPEN_FILES:
        return "cannot open another file"
    if number == errno.EDQUOT:
        return "has no room left of its quota"
    return f"has no room ({free or 'free bytes unknown'})"


def _relief(number: int | None, free: _Free | None) -> str:
    if number in _OPEN_FILES:
        return "can open files again"
    if number == errno.EDQUOT:
        return "has room again"
    return f"has room again ({free or 'free bytes unknown'})"


def _advice(number: int | None, free: _Free | None) -> str:
    if number == errno.EMFILE:
        return "let the process open more files"
    if number == errno.ENFILE:
        return "all programs of this host together have too many files open: raise fs.file-max (sysctl)"
    if number == errno.EDQUOT:
        return "raise the quota of the broker's user, delete topics, or lower their retention.ms or retention.bytes"
    if number == errno.ENOSPC and free is not None and free.inodes == 0:
        return "there is no inode for another file on that disk: delete files or topics, or raise segment.bytes"
    return "make room on that disk: delete topics, or lower their retention.ms or retention.bytes"
