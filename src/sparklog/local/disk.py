"""Whether a program died because the disk is full, and how to say so."""

from __future__ import annotations

import shutil
from pathlib import Path

_TOO_LITTLE = 1 << 20
"""Bytes free with which neither ZooKeeper nor a broker can begin a file."""
_WORDS = "No space left on device"


def shortage(directory: Path, said: str) -> str | None:
    """In words, if the disk of ``directory`` is full, or the program ``said`` so: a full disk may keep that back."""
    there = next((each for each in (directory, *directory.parents) if each.exists()), Path("/"))
    usage = shutil.disk_usage(there)
    has_room = usage.free >= _TOO_LITTLE or not usage.total  # one of no size, such as /proc, is not full
    if has_room and _WORDS not in said:
        return None
    free, total = usage.free / 1e6, usage.total / 1e6
    return f"the disk is full: {free:,.1f} MB of {total:,.0f} MB are free in {directory}; free some space there"
