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
_FILE_FIELD = 5


def is_in_use(log_dir: Path) -> bool:
    """Whether a process of this system holds the lock of ``log_dir``."""
    try:
        status = (log_dir / LOCK_FILE).stat()
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return False
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    held = (fields[_FILE_FIELD] for fields in map(_holder, lines) if len(fields) > _FILE_FIELD)
    return f"{device}:{status.st_ino}" in held


def _holder(line: str) -> list[str]:
    """The fields of a lock that is held; of one that is waited for (``1: -> FLOCK ...``) none."""
    fields = line.split()
    return [] if "->" in fields else fields
