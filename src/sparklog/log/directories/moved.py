"""What a start makes of partitions that were on their way from one log directory to another (``futures``).

A copy that is complete gets the file ``MARK``, and then the partition's own name; only after that the old directory
gives up the name. So a crash may leave two of one name, one of them marked, and both may be the partition: the old one
until the last records were copied, the new one from then on. The one that goes further is: the other has nothing that
this one lacks. A marked one that goes less far is a copy under way again; an old one is removed. What was deleted in
either stays deleted in the one that is kept.

The mark goes when the old directory is gone for certain. While a log directory is out of service it may be in that.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sparklog.errors import LogError
from sparklog.log.checkpoints import LEADER_EPOCHS
from sparklog.log.files import (
    DELETED_DIR_SUFFIX,
    future_path,
    naming,
    path_aside,
    remove_tree,
    rename_aside,
    sync_directory,
    write_atomically,
)
from sparklog.log.leader_epochs import read_epochs
from sparklog.log.loader import Knowledge, finish_what_was_interrupted
from sparklog.log.stopped import StoppedPartition
from sparklog.structs import TopicPartition

_logger = logging.getLogger(__name__)
MARK = ".sparklog-moved"
"""In a partition's directory: it was copied here, and the one that it was copied from may still be there."""
Found = dict[TopicPartition, Path]
Know = Callable[[Path, TopicPartition], Knowledge]
"""What the checkpoints of a directory's log directory say of its partition."""
KeepStart = Callable[[Path, TopicPartition, int], None]
"""Told that the partition in a directory begins at that offset, whatever the checkpoints say."""
Refuse = Callable[[TopicPartition, Path, LogError], None]
"""Told of a partition that cannot be settled, why, and of the directory to which it was being moved."""


class LogEnd(NamedTuple):
    """How far a log goes: of two that were written by the same leaders, the greater one has all that the other has."""

    epoch: int
    """Of the last batch; without any, the last that the log knows, for what had it was deleted; -1 without both."""
    offset: int


def mark(directory: Path) -> None:
    """Durable on return."""
    write_atomically(directory / MARK, b"")


def unmark(directory: Path) -> None:
    """Durable on return."""
    (directory / MARK).unlink(missing_ok=True)
    sync_directory(directory)


def is_marked(directory: Path) -> bool:
    """Whether the partition that it was copied from may still be there."""
    return (directory / MARK).exists()


def end_of(directory: Path, known: Knowledge) -> LogEnd:
    """How far the log in ``directory`` goes, as a start would find it: what a crash interrupted there is finished or
    undone. Raises LogError, or OSError, which names the directory or something in it.
    """
    with naming(directory):
        finish_what_was_interrupted(directory, frozenset(os.listdir(directory)))
        stopped = StoppedPartition(directory, known)
        last = next((each for each in reversed(stopped.segments) if each.size), None)
        if last is None:
            epochs = [entry.epoch for entry in read_epochs(directory / LEADER_EPOCHS)]
        else:
            epochs = [batch.leader_epoch for batch in last.batches()]
        return LogEnd(max(epochs, default=-1), stopped.end_offset)


def settle(
    found: Mapping[Path, Found], know: Know, keep_start: KeepStart, refuse: Refuse, *, is_complete: bool
) -> None:
    """Leave one directory of each partition that was being moved, in ``found`` (by log directory) and on the disk; of
    one that cannot be read, both on the disk and none in ``found``.

    ``is_complete``: no log directory is out of service. Raises OSError.
    """
    marked = [(home, tp) for home, here in found.items() for tp in here if is_marked(here[tp])]
    for home, tp in marked:
        if tp not in found[home]:  # it gave way to another marked one
            continue
        others = [each for each, here in found.items() if each != home and tp in here]
        if len(others) == 1:
            old, new = found[others[0]][tp], found[home][tp]
            try:
                ends = [end_of(each, know(each, tp)) for each in (old, new)]
            except LogError as error:
                refuse(tp, new, _not_settled(tp, old, new, error))
                del found[others[0]][tp], found[home][tp]
                continue
            start = max(know(each, tp).log_start_offset for each in (old, new))
            if ends[1] >= ends[0]:
                _give_up_old(found[others[0]], tp, new)
                keep_start(new, tp, start)
            else:  # it may lack the end of what was deleted while the new one was the partition
                _make_copy_again(found[home], tp, old)
                keep_start(old, tp, min(start, ends[0].offset))
        elif not others and is_complete:
            unmark(found[home][tp])


def _not_settled(tp: TopicPartition, old: Path, new: Path, error: LogError) -> LogError:
    return LogError(
        f"{tp} was being moved from {old} to {new}, and it cannot be said which of them is the partition: {error}; "
        "put that right, or move one of the two away, while the broker is stopped"
    )


def _give_up_old(here: Found, tp: TopicPartition, after: Path) -> None:
    before = here[tp]
    _logger.warning("%s was moved to %s: what is left of the former is removed", before, after)
    remove(before, tp)
    del here[tp]
    unmark(after)


def _make_copy_again(here: Found, tp: TopicPartition, before: Path) -> None:
    after = here[tp]
    copy = future_path(after.parent, tp)
    _logger.warning("%s was being moved to %s: that goes on when the broker has its partitions", before, after)
    os.rename(after, copy)
    sync_directory(after.parent)
    unmark(copy)
    del here[tp]


def settle_futures(here: Mapping[TopicPartition, list[Path]], partitions: Found) -> Found:
    """The copies under way in a log directory, one a partition; those of which nothing can come are removed."""
    kept: Found = {}
    for tp, paths in here.items():
        rest = sorted(paths)
        if tp not in partitions:
            kept[tp] = rest.pop(0)
        for path in rest:
            _logger.warning("%s is removed: it is no copy that is under way", path)
            remove(path, tp)
    return kept


def rename_doomed(directory: Path, tp: TopicPartition) -> Path:
    """The name under which it is to be removed, now or by the next start; durable on return."""
    doomed = path_aside(directory, tp, DELETED_DIR_SUFFIX)
    rename_aside(directory, doomed)
    return doomed


def remove(directory: Path, tp: TopicPartition) -> None:
    """A crash leaves it whole under its own name, or to be removed."""
    doomed = rename_doomed(directory, tp)
    with suppress(OSError):
        remove_tree(doomed)
