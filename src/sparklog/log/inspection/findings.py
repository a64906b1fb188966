"""What a check of files on disk finds: how bad, where, what, and what to do about it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

RECOVERS = "a broker that starts on the directory cuts it off, if it was not stopped cleanly; back the file up first"
REBUILT = "delete the file while no broker runs here: the next start rebuilds it from the .log file"
AHEAD = f"{REBUILT}, and does so by itself after a crash"
"""Of an index that has more than its log, while it is not known how the broker was, or will be, stopped."""
RESTORE = "restore the file from a replica or a backup: no start repairs this"
DAMAGE = f"{RESTORE}, and a start after a crash cuts the log here"
"""Of bytes that are no good batch, while it is not known how the broker was, or will be, stopped."""
REMOVE = "delete it while no broker runs here, if you do not know it"
WAIT = "nothing, if a broker is at work here; otherwise run this again"


class Severity(StrEnum):
    """An error is damage, a warning may be; a note is neither."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Finding(NamedTuple):
    """One thing found. ``position`` is in bytes, ``offset`` one of the log's."""

    severity: Severity
    path: Path
    what: str
    advice: str
    position: int | None = None
    offset: int | None = None

    @property
    def is_problem(self) -> bool:
        """Whether the directory cannot be called sound."""
        return self.severity is not Severity.NOTE


def error(path: Path, what: str, advice: str, position: int | None = None, offset: int | None = None) -> Finding:
    return Finding(Severity.ERROR, path, what, advice, position, offset)


def warning(path: Path, what: str, advice: str, position: int | None = None, offset: int | None = None) -> Finding:
    return Finding(Severity.WARNING, path, what, advice, position, offset)


def note(path: Path, what: str, advice: str, position: int | None = None, offset: int | None = None) -> Finding:
    return Finding(Severity.NOTE, path, what, advice, position, offset)
