"""The marker of a clean stop, and since when a broker has lost nothing.

Invariants: the marker is durable only after every log of its directory has been flushed and closed, and is removed,
durably, before anything is appended again (``directory``). It names the broker epoch since which nothing was lost, if
all directories of the broker were in service until the end; so a broker reads it back only where every directory that
it has says the same, and none is missing that was there before.

It proves nothing in a copy of the directory, which may be older than what was lost: it names the lock file that lay
beside it, by its number and the time of its last change, which no program can set.

The marker is Kafka's, as Kafka 4.1 writes it (``CleanShutdownFileHandler``), and these two besides. Kafka's own, which
lacks them, is taken for the marker of a clean stop, and proves nothing to a controller.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from sparklog.log.files import CLEAN_SHUTDOWN_MARKER, LOCK_FILE, sync_directory, write_atomically


class CleanStop(NamedTuple):
    """What the markers of a broker's directories say."""

    unbroken_since: int
    """The epoch of the broker's registration since which it has lost nothing."""
    directories: int
    """How many log directories the broker had."""


def write_marker(directory: Path, stop: CleanStop | None) -> None:
    """Durable on return. None: the logs are closed, but the broker cannot say that all of it has lost nothing."""
    if stop is None:
        (directory / CLEAN_SHUTDOWN_MARKER).touch()
        sync_directory(directory)
        return
    content = {
        "version": 0,
        "brokerEpoch": stop.unbroken_since,
        "directories": stop.directories,
        "lock": _lock_of(directory),
    }
    write_atomically(directory / CLEAN_SHUTDOWN_MARKER, json.dumps(content).encode())


def _lock_of(directory: Path) -> list[int]:
    """What tells its lock file from a copy of it."""
    found = (directory / LOCK_FILE).stat()
    return [found.st_ino, found.st_ctime_ns]


def unbroken_since(directories: Collection[Path]) -> int | None:
    """The broker epoch since which nothing was lost in these log directories; None if they do not all say so."""
    found = {_read_marker(directory) for directory in directories}
    (stop,) = found if len(found) == 1 else (None,)
    return stop.unbroken_since if stop is not None and stop.directories == len(directories) else None


def _read_marker(directory: Path) -> CleanStop | None:
    """None if there is no marker, or the disk refuses it: which disks serve, the broker does not know yet."""
    marker = directory / CLEAN_SHUTDOWN_MARKER
    try:
        if not marker.is_file():  # a pipe would be waited for
            return None
        content = json.loads(marker.read_bytes())
        stop = CleanStop(content["brokerEpoch"], content["directories"])
        is_copy = content["lock"] != _lock_of(directory)
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return stop if not is_copy and all(type(each) is int and each >= 0 for each in stop) else None
