"""What a start finds in the log directories, before it opens a log: which partition lies where, and nothing twice.

On return the moves that a crash interrupted are finished, and what else is in the directories of a partition that is in
several is renamed, durably: removed if it is blank, kept if it is a stray (``homes`` says which). What was left of
deleted partitions is removed too. A disk that refuses takes its log directory out of service; the rest is found. So it
is where a partition that was being moved cannot be read: that one is ``unsettled``, and stays where it is.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import Executor
from pathlib import Path

from sparklog.errors import LogError
from sparklog.log.directories.departures import Departure, departure_of, remove_left, rename_all, say_aside
from sparklog.log.directories.directory import LogDir
from sparklog.log.directories.homes import WhyStray, home_of, in_doubt, look_into, strays_of
from sparklog.log.directories.log_dirs import LogDirs, OnFailure
from sparklog.log.directories.moved import settle, settle_futures
from sparklog.log.files import disk_refused
from sparklog.log.loader import Knowledge
from sparklog.structs import TopicPartition

_logger = logging.getLogger(__name__)


class Inventory:
    """Of ``dirs``, taken once. ``on_failure`` takes a directory out of service."""

    def __init__(self, dirs: LogDirs, why_stray: WhyStray, on_failure: OnFailure) -> None:
        self._dirs = dirs
        self._why_stray = why_stray
        self._on_failure = on_failure
        self.found: dict[LogDir, dict[TopicPartition, Path]] = {}
        """The partitions of each directory, each in one of them."""
        self.copies: dict[TopicPartition, Path] = {}
        """Copies of partitions that were being moved to another directory."""
        self.unclear: list[tuple[TopicPartition, Path]] = []
        """Partitions that may rather lie in a directory that is out of service, and what is here of them."""
        self.unsettled: list[tuple[TopicPartition, Path, LogError]] = []
        """Partitions that were being moved and cannot be read: where to, and why a person is to decide."""

    def take(self, pool: Executor) -> None:
        """The directories side by side, on the threads of ``pool``.

        Raises ConfigError where two directories hold a log of the same partition, LogDirFailed if no directory can be
        used.
        """
        self.found = self._dirs.in_each(pool, _look, self._on_failure)
        self._settle_moves()
        away = self._without_homes(pool, is_complete=not self._dirs.failed)
        self._dirs.in_each(pool, lambda log_dir: _clear(log_dir, away[log_dir]), self._on_failure)
        served = {each.path for each in self._dirs.in_service}
        self.copies = {tp: copy for tp, copy in self.copies.items() if copy.parent in served}
        self.unclear = [(tp, path) for tp, path in self.unclear if path.parent in served]
        self.unsettled = [each for each in self.unsettled if each[1].parent in served]

    def _without_homes(self, pool: Executor, *, is_complete: bool) -> dict[LogDir, list[Departure]]:
        """What is in another directory than its partition's home, and ``found`` no more."""
        found = self.found
        doubted = in_doubt(found.values(), is_complete=is_complete)
        held = self._dirs.in_each(
            pool,
            lambda each: {tp: look_into(found[each][tp], each.known(tp)) for tp in doubted & found[each].keys()},
            self._on_failure,
        )
        away = defaultdict[LogDir, list[Departure]](list)
        for tp in sorted(doubted):
            places = {found[each][tp]: held[each][tp] for each in held if tp in held[each]}
            are_all = is_complete and len(places) == sum(tp in each for each in found.values())
            strays = strays_of(tp, places, self._why_stray)
            rest = {path: each for path, each in places.items() if path not in strays}
            home = home_of(tp, rest, is_complete=are_all) if rest else None
            for log_dir in [each for each in held if tp in held[each] and found[each][tp] != home]:
                path = found[log_dir].pop(tp)
                if home is None and path in rest:
                    self.unclear.append((tp, path))
                else:
                    away[log_dir].append(departure_of(tp, path, strays.get(path)))
        return away

    def _settle_moves(self) -> None:
        """Finish the moves that a crash interrupted; a disk that refuses that is out of service."""
        while True:
            try:
                places = {each.path: here for each, here in self.found.items()}
                settle(places, self._known, self._keep_start, self._refuse, is_complete=not self._dirs.failed)
                for log_dir, here in self.found.items():
                    self.copies |= settle_futures(log_dir.futures(), here)
                return
            except OSError as error:
                refused = disk_refused("cannot finish moving a partition", error)
                failed = [each for each in self.found if Path(error.filename or "/").is_relative_to(each.path)]
                if not failed:
                    raise refused from error
                self._on_failure(failed[0].path, str(refused))
                del self.found[failed[0]]
                self._dirs.check_any()

    def _known(self, path: Path, tp: TopicPartition) -> Knowledge:
        return self._dirs.of(path).known(tp)

    def _refuse(self, tp: TopicPartition, path: Path, error: LogError) -> None:
        self.unsettled.append((tp, path, error))

    def _keep_start(self, path: Path, tp: TopicPartition, offset: int) -> None:
        self._dirs.of(path).keep_start(tp, offset)


def _look(log_dir: LogDir) -> dict[TopicPartition, Path]:
    log_dir.look()
    return log_dir.partitions()


def _clear(log_dir: LogDir, away: Iterable[Departure]) -> None:
    """Rename what is to go ``away``, and remove what is left of partitions that were deleted.

    One of the latter that stays does no harm. Raises OSError if one of the former keeps its name.
    """
    rename_all(away)
    for each in away:
        if each.error is not None:
            raise each.error
        if each.why is None:
            _logger.warning("%s is removed: nothing was ever in it, and the partition is elsewhere", each.directory)
        else:
            say_aside(each)
    remove_left(log_dir.path)
