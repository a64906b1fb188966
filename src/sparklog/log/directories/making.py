"""What waits for the disk when partitions are made: many at a time, on any thread.

Nothing here decides: which partitions, and what becomes of them, ``LogManager`` says before and after.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from sparklog.config.topic import TopicConfig
from sparklog.errors import LogError
from sparklog.log.files import partition_path, remove_tree, rename_aside, sync_directory
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
    rename_aside(path, doomed)
    remove_tree(doomed)
