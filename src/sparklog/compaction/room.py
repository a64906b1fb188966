"""Whether the disk has room for what a cleaning is about to write."""

from __future__ import annotations

import os
from pathlib import Path

from sparklog.errors import DiskFull


def check_room(directory: Path, size: int, purpose: str) -> None:
    """Raises DiskFull unless there are ``size`` bytes left where ``directory`` lies; ``purpose`` is what takes them."""
    status = os.statvfs(directory)
    left = status.f_bavail * status.f_frsize
    if left < size:
        raise DiskFull(
            f"{directory} has {left:,} bytes left, and {purpose} takes {size:,}: "
            "free some room, or delete records that are needed no more"
        )
