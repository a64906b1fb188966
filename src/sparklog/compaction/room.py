"""Whether the disk has room for what a cleaning is about to write."""

from __future__ import annotations

import os
from pathlib import Path

from sparklog.errors import DiskFull
from sparklog.record.compacting import OffsetMap, map_file_size

NO_LIMIT = 1 << 62
"""Bytes: as many as the disk has room for."""


def check_room(directory: Path, size: int, purpose: str) -> None:
    """Raises DiskFull unless there are ``size`` bytes left where ``directory`` lies; ``purpose`` is what takes them."""
    status = os.statvfs(directory)
    left = status.f_bavail * status.f_frsize
    if left < size:
        raise DiskFull(
            f"{directory} has {left:,} bytes left, and {purpose} takes {size:,}: "
            "free some room, or delete records that are needed no more"
        )


def dumped_size(keys: OffsetMap) -> int:
    """Bytes that the file of a map has at most."""
    return map_file_size(max(min(keys.slots, 2 * keys.size), 1))


class SpillRoom:
    """What the files of one task's maps may take, in one directory."""

    def __init__(self, directory: Path, most: int) -> None:
        self._directory = directory
        self._most = most
        self._taken = 0

    def take(self, size: int) -> None:
        """Count a file of ``size`` bytes that is about to be written. Raises DiskFull where it may not be."""
        if self._taken + size > self._most:
            raise DiskFull(
                f"the maps of keys of {self._directory} take more than the {self._most:,} bytes that a task may spill:"
                " let the job spill more (--spill-gb), or leave the log to its broker's worker"
            )
        check_room(self._directory, size, "a map of its keys")
        self._taken += size
