"""Which users of this machine may read and write a log directory past the brokers, and so past their lists of rights.

Invariants, where the brokers ask who may do what: only the owner writes, only the owner and the directory's group read.
The group is for those that read segment files themselves: Spark tasks that hold a lease, and backups. New files and
directories are made with ``UMASK``; a directory that was there is looked at before anything in it is served.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sparklog.errors import ConfigError

UMASK = 0o027
_GROUP_WRITES = 0o020
_OTHERS = 0o007
_OTHERS_PASS = 0o001


def require_private(directories: Iterable[Path]) -> None:
    """Raises ConfigError for those that others can reach, with what to type for each."""
    said = [found for each in directories if (found := _complaint_if_there(each)) is not None]
    if said:
        raise ConfigError("; ".join(said))


def _complaint_if_there(path: Path) -> str | None:
    """None too of one that a disk refuses to tell of: it is out of service, and the others are not."""
    try:
        return complaint(path) if path.is_dir() else None
    except OSError:
        return None


def complaint(path: Path) -> str | None:
    """What is wrong with the permissions of a directory, and what to type; None if nothing is.

    Others are kept out by a directory above that they cannot pass, too.
    """
    own = path.resolve()
    mode = own.stat().st_mode
    if mode & _GROUP_WRITES:
        return f"the group of {path} may write there, and only the broker may; type: chmod g-w,o= {path}"
    if mode & _OTHERS and all(each.stat().st_mode & _OTHERS_PASS for each in own.parents):
        return (
            f"every user of this machine may look into {path}, whatever the brokers allow; type: chmod o= {path}"
            " (and make it its readers' group: chgrp GROUP, chmod g+s)"
        )
    return None
