"""A rate that the processes of one machine and user keep together, as the tasks of a job on one host do.

They share a leaky bucket: a file that has the time, of the machine's monotonic clock, at which all bytes that were
moved are waited for. Its name has the boot of the machine, where that is known, for each boot has a clock of its own.
A process that cannot have the file keeps the rate by itself.
"""

from __future__ import annotations

import fcntl
import logging
import os
import struct
import tempfile
from pathlib import Path

from sparklog.clock import Clock
from sparklog.log.files import OpenFile
from sparklog.rate_limit import ByteRate

_log = logging.getLogger(__name__)
_TIME = struct.Struct("<d")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_UNLIMITED = 1e15
"""Bytes a second that no machine moves: to ask the file would cost time for nothing."""
_SHORTEST_WAIT_S = 0.001


def shared_place() -> Path:
    """Where the processes of this user on this machine have the file."""
    try:
        boot = _BOOT.read_text().strip()
    except OSError:
        boot = "unknown"
    return Path(tempfile.gettempdir(), f"sparklog-cleaner-rate-{os.getuid()}-{boot}")


class HostRate(ByteRate):
    """A bucket of all processes that have the file at ``path``; their rates may differ."""

    def __init__(self, clock: Clock, bytes_per_second: float, path: Path) -> None:
        super().__init__(clock, bytes_per_second)
        self._file = None if bytes_per_second >= _UNLIMITED else _opened(path)

    def owe(self, size: int) -> float:
        if self._file is None:
            return super().owe(size)
        try:
            wait_s = self._owe_together(self._file.fileno(), size)
        except OSError as error:
            self._alone(error)
            return super().owe(size)
        return wait_s if wait_s > _SHORTEST_WAIT_S else 0.0

    def _owe_together(self, fd: int, size: int) -> float:
        fcntl.flock(fd, fcntl.LOCK_EX)
        try:
            told = os.pread(fd, _TIME.size, 0)
            now = self._clock.monotonic()
            free_at = max(_TIME.unpack(told)[0] if len(told) == _TIME.size else now, now)
            free_at += size / max(self.bytes_per_second, 1)
            os.pwrite(fd, _TIME.pack(free_at), 0)
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)
        return float(free_at - now)

    def _alone(self, error: OSError) -> None:
        _log.warning("the rate of cleaning is not shared with the other tasks of this machine: %s", error)
        self._file = None


def _opened(path: Path) -> OpenFile | None:
    try:
        found = OpenFile(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        if os.fstat(found.fileno()).st_uid != os.getuid():  # its owner could make the tasks wait for ever
            raise PermissionError(f"{path} belongs to another user; remove it")
        return found
    except OSError as error:
        _log.warning("the rate of cleaning is not shared with the other tasks of this machine: %s", error)
        return None
