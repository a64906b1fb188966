"""What waits for the disk when partitions are made or taken away: many at a time, on any thread.

Nothing here decides: which partitions, and what becomes of them, ``LogManager`` says before and after.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from sparklog.config.topic import TopicConfig
from sparklog.errors import LogError
from sparklog.log.files import partition_path, remove_tree, sync_directory
from sparklog.log.log import Log
from sparklog.structs import TopicPartition


class NewPartition(NamedTuple):
    """A partition that may have to be made."""

    tp: TopicPartition
    config: TopicConfig | None
    topic_id: UUID | None
    leader_epoch: int = -1
    """Under which this broker is to lead it; -1 if it is not."""
    is_new: bool = True
    """Whether no log directory can hold it already."""


@dataclass(slots=True)
class MadePartition:
    """A log that is there and not served yet; both ``log`` and ``error`` if its files could not all be written."""

    path: Path
    log: Log | None = None
    error: LogError | None = None
    is_fresh: bool = False
    """Whether its directory was made for it."""


class Begun(NamedTuple):
    """A partition whose making was begun, and which is neither served nor gone from the disk for certain."""

    directory: Path
    is_named: bool = False
    """Whether the directory may bear the topic's id: then no other can be the partition's."""


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


def make_directories(home: Path, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
    """Make the partitions' directories in ``home``; durable on return. Returns those that were not there."""
    fresh = set()
    for tp in partitions:
        try:
            partition_path(home, tp).mkdir()
        except FileExistsError:  # what is left of an attempt for which there was no room
            continue
        fresh.add(tp)
    sync_directory(home)
    return fresh


def remove_directory(path: Path, doomed: Path) -> None:
    """Remove ``path``, under another name first: a crash leaves it whole under its own, or to be removed."""
    path.rename(doomed)
    sync_directory(doomed.parent)
    remove_tree(doomed)


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
    for each in _with_futures(departures):
        if each.directory is not None:
            found.setdefault(each.directory.parent, []).append(each)
    return found


def _with_futures(departures: Iterable[Departure]) -> Iterable[Departure]:
    for each in departures:
        yield each
        if each.future is not None:
            yield each.future


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
