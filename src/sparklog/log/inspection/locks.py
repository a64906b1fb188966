"""Whether a broker is at work in a directory, asked without touching its lock.

Trying the lock, even for an instant, could make a broker fail that starts at that instant. ``/proc/locks`` lists the
locks that this system's processes hold: ours is a ``flock``, Kafka's a POSIX lock. A broker on another host, or in
another process namespace, is not seen.
"""

from __future__ import annotations

import os
from pathlib import Path

from sparklog.log.files import LOCK_FILE

LOCKS = Path("/proc/locks")
_PROCESS_FIELD, _FILE_FIELD = 4, 5


def is_in_use(log_dir: Path) -> bool:
    """Whether a process of this system holds the lock of ``log_dir``."""
    return holder(log_dir, LOCKS) is not None


def holder(log_dir: Path, locks: Path) -> int | None:
    """The process that holds the lock of ``log_dir``, by the list ``locks``; 0 for one that has no number here."""
    try:
        status = (log_dir / LOCK_FILE).stat()
        lines = locks.read_text().splitlines()
    except OSError:
        return None
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    held = (fields for fields in map(_held, lines) if len(fields) > _FILE_FIELD and fields[_FILE_FIELD] == file)
    return next((int(fields[_PROCESS_FIELD]) for fields in held), None)


def _held(line: str) -> list[str]:
    """The fields of a lock that is held; of one that is waited for (``1: -> FLOCK ...``) none."""
    fields = line.split()
    return [] if "->" in fields else fields
