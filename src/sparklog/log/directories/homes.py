"""In which log directory a partition lies, of several that have a directory of its name: its home.

A crash, or a disk without room, may leave a directory in which the making of a partition was begun; it was then made in
another. Such a leftover is blank: nothing was ever appended there. It bears no topic id either, for the id is written
last, and only where no other directory will be the home. So a log is chosen before what is blank, and of what is blank
what is whole; what is not is a partition only if no log directory is out of service, for its log may be in that.

Two may bear different topic ids: one topic was deleted while its log directory was out of service, and the next of that
name was made in another. Which of them is none of the cluster's, a stray, the cluster says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from sparklog.errors import ConfigError, CorruptRecord
from sparklog.log.checkpoints import LEADER_EPOCHS, PARTITION_METADATA, read_topic_id
from sparklog.log.files import INDEX_SUFFIXES, LOG_SUFFIX, MISPLACED, TEMPORARY_SUFFIX, segment_path
from sparklog.log.loader import Knowledge
from sparklog.structs import TopicPartition

WhyStray = Callable[[TopicPartition, UUID], str | None]
"""Why a partition of that topic id is none of the cluster's; None if it is one, or may be."""


class Holding(IntEnum):
    """What a directory holds of a partition; the most counts."""

    NOTHING = 0
    """It is blank, and its making was not finished."""
    ID = 1
    """It is blank, and whole: it has its first segment, and a topic id."""
    RECORDS = 2
    """There are records, or were, or something that no making of a partition leaves."""


class Held(NamedTuple):
    """What was found in a directory, and the topic id that it bears, if any."""

    holding: Holding
    topic_id: UUID | None = None


def look_into(directory: Path, known: Knowledge) -> Held:
    """What is in ``directory``, of which the checkpoints say what is ``known``. Raises OSError if the disk refuses."""
    found = _holding(directory, known)
    try:
        return Held(found, read_topic_id(directory))
    except CorruptRecord:
        return Held(Holding.RECORDS)
    except OSError as error:
        if error.errno in MISPLACED:
            return Held(Holding.RECORDS)
        raise


def _holding(directory: Path, known: Knowledge) -> Holding:
    if known.recovery_point > 0 or known.log_start_offset > 0:
        return Holding.RECORDS
    try:
        files = list(directory.iterdir())
        if not all(_is_blank(path) for path in files):
            return Holding.RECORDS
    except OSError as error:
        if error.errno in MISPLACED:
            return Holding.RECORDS
        raise
    first = segment_path(directory, 0, LOG_SUFFIX)
    return Holding.ID if {first, directory / PARTITION_METADATA} <= set(files) else Holding.NOTHING


def _is_blank(path: Path) -> bool:
    """Whether a partition has such a file that was never appended to."""
    if path == segment_path(path.parent, 0, LOG_SUFFIX):
        return path.stat().st_size == 0
    indexes = [segment_path(path.parent, 0, suffix) for suffix in INDEX_SUFFIXES]
    is_ours = path in indexes or path.name in (PARTITION_METADATA, LEADER_EPOCHS) or path.suffix == TEMPORARY_SUFFIX
    return is_ours and path.is_file()


def in_doubt(found: Collection[Collection[TopicPartition]], *, is_complete: bool) -> frozenset[TopicPartition]:
    """Of which partitions it matters what their directories hold: those ``found`` in several log directories, and all
    of them unless the log directories are ``is_complete``, that is, none is out of service.
    """
    counts = Counter(tp for each in found for tp in each)
    return frozenset(tp for tp, count in counts.items() if count > 1 or not is_complete)


def strays_of(tp: TopicPartition, held: Mapping[Path, Held], why_stray: WhyStray) -> dict[Path, str]:
    """Which of several directories of one partition are strays, and why."""
    found = dict[Path, str]()
    for path, each in held.items() if len(held) > 1 else ():
        why = why_stray(tp, each.topic_id) if each.topic_id is not None else None
        if why is not None:
            found[path] = why
    return found


def home_of(tp: TopicPartition, held: Mapping[Path, Held], *, is_complete: bool) -> Path | None:
    """Which of the directories is the partition's, the first of equals; None if that may be another than these.

    Raises ConfigError if two of them have a log.
    """
    logs = [path for path, each in held.items() if each.holding is Holding.RECORDS]
    if len(logs) > 1:
        raise ConfigError(f"{tp} is both in {logs[0]} and in {logs[1]}: move one away")
    best = max(held, key=lambda path: held[path].holding)
    return best if is_complete or held[best].holding is not Holding.NOTHING else None
