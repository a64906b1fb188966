"""Partitions on their way out of a log directory: each is renamed, and then removed or kept for a person to look at.

Nothing here decides: which partitions, and what becomes of them, ``LogManager`` says before and after.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sparklog.log.files import (
    DELETED_DIR_SUFFIX,
    STRAY_DIR_SUFFIX,
    UNREMOVABLE,
    path_aside,
    remove_tree,
    sync_directory,
)
from sparklog.structs import TopicPartition

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Departure:
    """A partition that is served no more, and whose directory is to get another name."""

    tp: TopicPartition
    why: str | None
    """Why its files are kept; None if they are to be removed."""
    directory: Path | None
    """None if it has no directory in service."""
    away: Path | None
    is_renamed: bool = False
    error: OSError | None = None
    future: Departure | None = None
    """Of the copy that was to be the partition's in another log directory."""
    left: Departure | None = None
    """Of what a copy has taken the place of in another log directory, and what the disk did not let go then."""

    @property
    def others(self) -> list[Departure]:
        """What goes with the partition, and of which no answer tells."""
        return [each for each in (self.future, self.left) if each is not None]


def departure_of(tp: TopicPartition, directory: Path | None, why: str | None) -> Departure:
    """Of the partition in ``directory``, if it has one in service. ``why`` its files are kept, if they are."""
    suffix = DELETED_DIR_SUFFIX if why is None else STRAY_DIR_SUFFIX
    return Departure(tp, why, directory, None if directory is None else path_aside(directory, tp, suffix))


def say_aside(departure: Departure) -> None:
    """Log that the partition's files are kept, where, and why."""
    assert departure.away is not None
    _logger.error(
        "%s is set aside as %s: %s. Remove it when you need it no more",
        departure.away.parent / str(departure.tp),
        departure.away.name,
        departure.why,
    )


def rename_all(departures: Iterable[Departure]) -> None:
    """Rename the directories; durable on return, but for those that bear an error then."""
    for parent, together in _by_parent(departures).items():
        for each in together:
            _rename(each)
        try:
            sync_directory(parent)
        except OSError as error:
            for each in together:
                each.error = each.error or error


def _by_parent(departures: Iterable[Departure]) -> dict[Path, list[Departure]]:
    found: dict[Path, list[Departure]] = {}
    for each in _with_others(departures):
        if each.directory is not None:
            found.setdefault(each.directory.parent, []).append(each)
    return found


def _with_others(departures: Iterable[Departure]) -> Iterable[Departure]:
    for each in departures:
        yield each
        yield from each.others


def _rename(departure: Departure) -> None:
    assert departure.directory is not None
    assert departure.away is not None
    try:
        os.rename(departure.directory, departure.away)
        departure.is_renamed = True
    except FileNotFoundError:
        pass  # a person has removed it; if all of the log directory is gone, the sync says
    except OSError as error:
        departure.error = error


def remove_doomed(doomed: Path) -> None:
    """Remove a renamed directory. What a person has to see to stays, and does no harm.

    Raises OSError if the disk refuses.
    """
    try:
        remove_tree(doomed)
    except OSError as error:
        if error.errno not in UNREMOVABLE:
            raise
        _say_left(doomed, error)


def remove_left(log_dir: Path) -> None:
    """Remove what is left of partitions that were deleted. What stays does no harm."""
    for leftover in log_dir.glob(f"*{DELETED_DIR_SUFFIX}"):
        try:
            remove_tree(leftover)
        except OSError as error:
            _say_left(leftover, error)


def _say_left(doomed: Path, error: OSError) -> None:
    what = "%s is left of a deleted partition and cannot be removed: %s (%s); the next start tries again"
    _logger.warning(what, doomed, error.strerror or error, error.filename)
