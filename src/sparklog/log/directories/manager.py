"""All logs of one broker, over its log directories: opening them, keeping them durable, losing one disk at a time.

Durable across a clean stop: everything; the marker ``.kafka_cleanshutdown`` says so, and is removed before the first
append of the next run, so that a crash is never taken for a clean stop. Across a crash: everything below the recovery
points, which are written every ``log.flush.offset.checkpoint.interval.ms``, before a truncation, and where a start cut
a log below its own: nothing is appended below what the file says.

A directory whose disk fails goes out of service with its partitions, which are ``unusable`` from then on; the others
go on. A partition whose own files cannot be used is unusable alone. Neither is made anew elsewhere.

A partition has one home, from the first step of its making: where the disk refuses a later step, the next attempt goes
to the same directory, until that bears the partition, is removed durably, or goes out of service before it bore the
topic's id, which is written last. What a crash leaves of a making is blank; a start never takes it for a partition that
has, or while a directory is out of service may have, its log elsewhere (``homes``).

A partition is deleted, or set aside, by one rename of its directory and a sync of the one above: that needs no room and
writes nothing of the partition. It is served no more before that, and counts as gone only after it. What is in a
directory that bears another topic's id is never served.

What waits for the disk is kept apart from what decides, so that it may run on another thread, many partitions at a
time: ``plan`` decides which are made and where, what it returns makes them, ``get_or_create`` takes one over or
``discard`` removes it; ``depart`` ends the service of one, ``rename_away`` renames, ``departed`` counts it as gone.
Between the two ends of one partition the caller lets no other task make it or take it away.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from sparklog.clock import Clock, monotonic_ms
from sparklog.config.topic import TopicConfig
from sparklog.errors import (
    CorruptRecord,
    DiskFull,
    InconsistentTopicId,
    LogClosed,
    LogDirFailed,
    LogError,
)
from sparklog.log.checkpoints import CLEANER_OFFSETS, RECOVERY_POINTS, read_topic_id
from sparklog.log.cut import name_some
from sparklog.log.directories.behind import Behind
from sparklog.log.directories.clean_stop import CleanStop
from sparklog.log.directories.departures import Departure, departure_of, remove_doomed, rename_all, say_aside
from sparklog.log.directories.directory import LogDir
from sparklog.log.directories.homes import WhyStray
from sparklog.log.directories.inventory import Inventory
from sparklog.log.directories.log_dirs import LogDirs, OnFailure
from sparklog.log.directories.making import (
    Begun,
    MadePartition,
    NewPartition,
    make_directories,
    remove_directory,
)
from sparklog.log.directories.room import Room
from sparklog.log.directories.unusable import UnusablePartitions
from sparklog.log.directories.usage import DirectoryUse, usage_of
from sparklog.log.durability import Flushes
from sparklog.log.files import (
    DELETED_DIR_SUFFIX,
    check_partition,
    disk_refused,
    partition_path,
    path_aside,
)
from sparklog.log.loader import Knowledge
from sparklog.log.log import Log
from sparklog.log.retention import GivenUp
from sparklog.structs import TopicPartition

_logger = logging.getLogger(__name__)
_T = TypeVar("_T")


def _say_empty(home: Path, fresh: Iterable[NewPartition]) -> None:
    """What is made where there should be something, and is not copied from another replica, has lost what it had."""
    lost = [str(each.tp) for each in fresh if not each.is_new and each.leader_epoch >= 0]
    if lost:
        _logger.error(
            "nothing is here of %d partition(s) that this broker leads and that are not new, so they begin empty in "
            "%s: %s. If a disk is not mounted, stop the broker, mount it, and start it again: what is written until "
            "then is hidden",
            len(lost),
            home,
            name_some(lost),
        )


class LogManager:
    """``executor`` runs flushes and deletions; everything else happens on the caller's one thread."""

    def __init__(
        self,
        dirs: list[Path],
        default_config: TopicConfig,
        clock: Clock,
        executor: Executor,
        *,
        recovery_threads: int = 1,
        defaults: Knowledge | None = None,
    ) -> None:
        """Lock ``dirs``; ``recovery_threads`` open the logs of each. Raises LogDirFailed if none can be used."""
        self.dirs = LogDirs(dirs)
        self._default_config = default_config
        self._clock = clock
        self._executor = executor
        self._behind = Behind(executor)
        self._recovery_threads = recovery_threads
        self._defaults = defaults or Knowledge()
        self._room = Room(clock)
        self.flushes = Flushes()
        self.on_failure: OnFailure = self.fail
        self.logs: dict[TopicPartition, Log] = {}
        self.futures: dict[TopicPartition, Log] = {}
        """Copies under way, in other directories than the logs: changed by ``FutureLogs`` and its caller."""
        self.dormant: dict[TopicPartition, Path] = {}
        """Copies that an earlier start began and that are not open."""
        self.leaving: dict[TopicPartition, Log] = {}
        """What a copy has taken the place of, until it is gone: after a power cut it may be the partition again."""
        self.unusable = UnusablePartitions()
        self.being_cut: set[TopicPartition] = set()
        """Partitions that the disk thread cuts: no other thread reads them, appends to them or changes them."""
        self._held = Counter[Path]()  # how many logs each directory in service has, from the end of ``load`` on
        self._preferred: dict[TopicPartition, Path] = {}  # where those that are not here yet are to be made
        self._begun: dict[TopicPartition, Begun] = {}  # all of them in directories in service
        self.unbroken_since: int | None = None
        """The broker epoch since which nothing was lost here, for the markers of a clean stop; None: not known."""
        self._doomed: list[tuple[int, Path]] = []
        self._old_topics: set[str] = set()  # those there were at the start: a partition of theirs is not new

    def own(self, cluster_id: str, broker_id: int) -> None:
        """Claim the directories. Raises ConfigError if one is another broker's or cluster's."""
        for log_dir in list(self.dirs.in_service):
            try:
                log_dir.own(cluster_id, broker_id)
            except OSError as error:
                self.fail(log_dir.path, str(disk_refused(f"cannot claim log directory {log_dir.path}", error)))
        self.dirs.check_any()

    def load(self, configs: Mapping[str, TopicConfig], why_stray: WhyStray = lambda *_: None) -> None:
        """Open every partition found; ``configs`` holds the settings of every topic that there is. ``why_stray`` is
        asked of a partition that is in several directories.

        Raises ConfigError where two directories hold a log of the same partition, LogDirFailed if no directory can be
        used.
        """
        started = self._clock.monotonic()
        self._old_topics.update(configs)
        with ThreadPoolExecutor(len(self.dirs.in_service), thread_name_prefix="load") as pool:
            inventory = Inventory(self.dirs, why_stray, self.fail)
            inventory.take(pool)
            self.dormant = inventory.copies
            for tp, path in inventory.unclear:
                self._refuse(tp, path, self.dirs.maybe_in_failed(tp))
            for tp, path, error in inventory.unsettled:
                self._refuse(tp, path, error)
            found = inventory.found
            self.dirs.in_each(pool, lambda log_dir: self._load_dir(log_dir, found[log_dir], configs), self.fail)
        self._held.update(log.directory.parent for log in self.logs.values())
        self._see_what_is_lost()
        self._say_loaded(self._clock.monotonic() - started)

    def _see_what_is_lost(self) -> None:
        """A broker that was stopped in order, and lacks what it had then, has lost something all the same."""
        if self.unbroken_since is None:
            return
        for log_dir in self.dirs.in_service:
            lost = [tp for tp, point in log_dir.recovery_points.items() if self._has_lost(tp, point)]
            if lost:
                self.unbroken_since = None
                _logger.error(
                    "%d partition(s) of %s have lost what they held at the last stop: %s. This broker leads nothing "
                    "that another one has whole until it has copied it",
                    len(lost),
                    log_dir.path,
                    name_some([str(tp) for tp in sorted(lost)]),
                )

    def _has_lost(self, tp: TopicPartition, end: int) -> bool:
        if tp in self.unusable:
            return False  # it is not served, and says so
        return end > (self.logs[tp].log_end_offset if tp in self.logs else 0)

    def _say_loaded(self, seconds: float) -> None:
        scanned = sum(log.scanned_bytes for log in self.logs.values())
        dropped = sum(log.recovered_bytes_dropped for log in self.logs.values())
        _logger.log(
            logging.INFO if scanned or dropped or self.unusable else logging.DEBUG,  # after a clean stop all is well
            "opened %d logs in %.1f s; %d MB scanned, %d bytes dropped, %d logs unusable",
            len(self.logs),
            seconds,
            scanned // 1_000_000,
            dropped,
            len(self.unusable),
        )

    def _load_dir(
        self, log_dir: LogDir, found: Mapping[TopicPartition, Path], configs: Mapping[str, TopicConfig]
    ) -> None:
        """Open the partitions of one directory. Raises LogDirFailed or OSError if it cannot be used."""
        with ThreadPoolExecutor(self._recovery_threads, thread_name_prefix="recover") as pool:
            for _ in pool.map(lambda tp: self._load_log(log_dir, tp, found[tp], configs), found):
                pass
        self._write_lowered_points(log_dir)
        log_dir.begin()

    def _load_log(self, log_dir: LogDir, tp: TopicPartition, path: Path, configs: Mapping[str, TopicConfig]) -> None:
        try:
            self.logs[tp] = self.open_log(path, tp, configs.get(tp.topic), log_dir.known(tp))
        except LogError as error:
            if isinstance(error, LogDirFailed) and not isinstance(error, DiskFull):
                raise
            self._refuse(tp, path, error)

    def _refuse(self, tp: TopicPartition, path: Path, error: LogError) -> None:
        self.unusable.refuse(tp, path, error)
        if isinstance(error, DiskFull):
            _logger.warning("%s is not served until the disk takes it: %s", tp, error)
            self.report(error, path)
        else:
            _logger.error("%s is not served: %s", tp, error)

    def _write_lowered_points(self, log_dir: LogDir) -> None:
        """Where the start cut a log below its recovery point, what is appended next must not count as flushed."""
        logs = self._logs_in(log_dir, self.logs.copy())
        cut = [tp for tp, log in logs.items() if log.recovery_point < log_dir.known(tp).recovery_point]
        if not cut:
            return
        try:
            self.checkpoint_dir(log_dir)
        except DiskFull as error:
            for tp in cut:
                log = self.logs.pop(tp)
                log.abandon()
                self._refuse(tp, log.directory, error)
                log_dir.keep_start(tp, log.log_start_offset)

    def open_log(self, path: Path, tp: TopicPartition, config: TopicConfig | None, known: Knowledge) -> Log:
        def submit(work: Callable[[], None]) -> None:
            self._behind.submit(partial(self._guarded, work, path))

        known = replace(known, producer_expiration_ms=self._defaults.producer_expiration_ms)
        return Log(path, tp, config or self._default_config, self._clock, submit, known, flushes=self.flushes)

    def get_or_create(
        self,
        tp: TopicPartition,
        config: TopicConfig | None,
        topic_id: UUID | None,
        *,
        is_new: bool = True,
        made: MadePartition | None = None,
    ) -> Log:
        """The partition's log; if there is none, the one that was ``made`` ahead, else one that is made now.

        Raises InconsistentTopicId where there is one of another topic, with nothing changed; LogError where there is
        one that cannot be used, or, unless the partition ``is_new``, may be one in a directory that is out of service;
        ApiError if there can be no such partition. One that a full disk kept from being opened is tried again ahead.
        """
        if tp in self.unusable and (made is None or not self.unusable.waits_for_room(tp)):
            raise LogError(self.unusable[tp])
        log = self.logs.get(tp)
        if log is None:
            if self._may_be_elsewhere(tp, is_new=is_new):
                error = self.dirs.maybe_in_failed(tp)
                self.unusable[tp] = str(error)
                raise error
            if made is None:
                made = self.plan([NewPartition(tp, config, topic_id, is_new=is_new)])().get(tp)
            log = self._adopt(tp, made)
        self._identify(log, topic_id)
        return log

    def _may_be_elsewhere(self, tp: TopicPartition, *, is_new: bool) -> bool:
        """Whether a partition that is not served may lie in a directory that is out of service."""
        if tp in self._begun or self.unusable.waits_for_room(tp):
            return False
        return bool(self.dirs.failed) and (not is_new or tp.topic in self._old_topics)

    def plan(self, asked: Iterable[NewPartition]) -> Callable[[], dict[TopicPartition, MadePartition]]:
        """What makes, on any thread, those of the partitions that are not here and may be made, each in the directory
        that is the emptiest then, or in which its making was begun; and what opens those that a full disk kept from
        being opened, where they are.
        Raises ApiError if there can be no such partition.
        """
        filled = {log_dir: self._held[log_dir.path] for log_dir in self.dirs.in_service}
        planned = defaultdict[LogDir, list[NewPartition]](list)
        for each in asked:
            check_partition(each.tp)
            if self.unusable.waits_for_room(each.tp):
                planned[self.dirs.of(self.unusable.places[each.tp])].append(each)
                continue
            is_here = each.tp in self.logs or each.tp in self.unusable
            if filled and not is_here and not self._may_be_elsewhere(each.tp, is_new=each.is_new):
                begun = self._begun.get(each.tp)
                home = self.dirs.of(begun.directory) if begun else self._place_of(each.tp, filled)
                filled[home] += 1
                planned[home].append(each)
                self._begun[each.tp] = begun or Begun(partition_path(home.path, each.tp))
        return lambda: {tp: made for home, new in planned.items() for tp, made in self._make(home, new).items()}

    def _place_of(self, tp: TopicPartition, filled: Mapping[LogDir, int]) -> LogDir:
        """The directory that somebody wished for the partition, or the emptiest."""
        wished = self._preferred.get(tp)
        return next((each for each in filled if each.path == wished), min(filled, key=lambda each: filled[each]))

    def prefer(self, tp: TopicPartition, home: LogDir) -> None:
        """Have the partition made in ``home``, if it is not there already, when it is made the next time."""
        if home.path not in (self.home_of(tp), self.future_home_of(tp)):
            self._preferred[tp] = home.path

    def home_of(self, tp: TopicPartition) -> Path | None:
        """The log directory in which the partition's log lies."""
        log = self.logs.get(tp)
        return None if log is None else log.directory.parent

    def future_of(self, tp: TopicPartition) -> Path | None:
        """The directory of the partition's copy, if one is under way."""
        log = self.futures.get(tp)
        return self.dormant.get(tp) if log is None else log.directory

    def future_home_of(self, tp: TopicPartition) -> Path | None:
        """The log directory in which it lies."""
        path = self.future_of(tp)
        return None if path is None else path.parent

    def replace(self, tp: TopicPartition, log: Log) -> None:
        """The partition's copy is the partition's log."""
        self._move_cleaner_point(tp, self.logs[tp], log)
        self._held[self.logs[tp].directory.parent] -= 1
        self.leaving[tp] = self.logs[tp]
        self.logs[tp] = log  # before the other is changed: see _state_of
        self._held[log.directory.parent] += 1
        del self.futures[tp]

    def _move_cleaner_point(self, tp: TopicPartition, before: Log, log: Log) -> None:
        """The directory of the one before keeps its own: after a power cut that may be the partition again."""
        theirs = self.dirs.of(log.directory).cleaner_points
        offset = self.dirs.of(before.directory).cleaner_points.of(tp)
        if offset is None:
            theirs.forget(tp)  # of a time when the partition was there before
        else:
            theirs.set(tp, offset)

    def cleaner_point(self, tp: TopicPartition) -> int | None:
        """Up to where the partition's log is clean; None if it never was cleaned."""
        return self.dirs.of(self.logs[tp].directory).cleaner_points.of(tp)

    def set_cleaner_point(self, tp: TopicPartition, offset: int) -> None:
        """The partition's log is clean up to ``offset``; the file says so soon."""
        home = self.dirs.of(self.logs[tp].directory)
        home.cleaner_points.set(tp, offset)
        self._in_background(partial(self._write_cleaner_points, home), home.path / CLEANER_OFFSETS)

    @staticmethod
    def _write_cleaner_points(home: LogDir) -> None:
        try:
            home.cleaner_points.write()
        except OSError as error:
            raise disk_refused(f"cannot write {home.path / CLEANER_OFFSETS}", error) from error

    def _make(self, home: LogDir, new: list[NewPartition]) -> dict[TopicPartition, MadePartition]:
        """On any thread. One sync makes all the directories last; each log is opened and has its files."""
        try:
            for each in new:
                # Of one that is gone: a crash may have come before the file said so. What waits for room was cleaned.
                if not self.unusable.waits_for_room(each.tp):
                    home.cleaner_points.forget(each.tp)
            home.cleaner_points.write()
            if any(home.names(each.tp) for each in new):
                self.checkpoint_dir(home)
            fresh = make_directories(home.path, [each.tp for each in new])
        except (LogDirFailed, OSError) as error:
            what = f"cannot create partitions in {home.path}"
            refused = disk_refused(what, error) if isinstance(error, OSError) else error
            return {each.tp: MadePartition(partition_path(home.path, each.tp), error=refused) for each in new}
        _say_empty(home.path, [each for each in new if each.tp in fresh])
        return {each.tp: self._open_new(home, each, is_fresh=each.tp in fresh) for each in new}

    def _open_new(self, home: LogDir, new: NewPartition, *, is_fresh: bool) -> MadePartition:
        """One that was tried before has no recovery point on the disk any more, so a crash costs it a scan."""
        path = partition_path(home.path, new.tp)
        made = MadePartition(path, is_fresh=is_fresh)
        was_tried = self.unusable.waits_for_room(new.tp)
        known = replace(home.known(new.tp), clean=False) if was_tried else self._defaults
        try:
            made.log = self.open_log(path, new.tp, new.config, known)
            if new.topic_id is not None and made.log.topic_id is None:
                made.log.assign_topic_id(new.topic_id)
            made.log.begin_epoch(new.leader_epoch)
            made.log.write_epochs()
        except LogError as error:
            made.error = error
        return made

    def _adopt(self, tp: TopicPartition, made: MadePartition | None) -> Log:
        if made is None:
            raise LogDirFailed("no log directory is left in service")
        if made.log is None:
            assert made.error is not None
            self._was_refused(tp, made.path, made.error)
            raise made.error
        self._preferred.pop(tp, None)
        self.logs[tp] = made.log
        self._held[made.log.directory.parent] += 1
        self._begun.pop(tp, None)
        self.unusable.forget(tp)
        if made.error is not None:
            raise made.error
        self.written(made.path)
        return made.log

    def _was_refused(self, tp: TopicPartition, path: Path, error: LogError) -> None:
        """The partition could not be opened: what is to be known of that when it is asked for again."""
        has_failed = isinstance(error, LogDirFailed) and not isinstance(error, DiskFull)
        if tp in self.unusable:
            self.unusable.refuse_again(tp, error)
        elif has_failed and tp in self._begun and not self._begun[tp].is_named:
            del self._begun[tp]
        if isinstance(error, LogDirFailed):
            self.report(error, path)

    def discard(self, unwanted: Mapping[TopicPartition, MadePartition]) -> None:
        """Remove what was made ahead and is not taken over; on any thread. What was there before it stays."""
        for tp, made in unwanted.items():
            if made.log is not None:
                made.log.abandon()
                if tp in self._begun:
                    self._begun[tp] = Begun(made.path, is_named=True)
            if made.is_fresh:
                self._guarded(partial(self._remove_made, tp, made.path), made.path)

    def _remove_made(self, tp: TopicPartition, path: Path) -> None:
        remove_directory(path, path_aside(path, tp, DELETED_DIR_SUFFIX))
        self._begun.pop(tp, None)

    @staticmethod
    def _identify(log: Log, topic_id: UUID | None) -> None:
        found = log.topic_id
        if topic_id is None or found == topic_id:
            return
        if found:
            raise InconsistentTopicId(f"{log.directory} belongs to topic id {found}, not to {topic_id}")
        log.assign_topic_id(topic_id)

    def topic_id(self, tp: TopicPartition) -> UUID | None:
        """Which topic the partition's directory belongs to; None if it does not say, or there is none."""
        log = self.logs.get(tp)
        if log is not None:
            return log.topic_id
        directory = self.unusable.places.get(tp)
        try:
            return None if directory is None else read_topic_id(directory)
        except (CorruptRecord, OSError):
            return None

    def delete(self, tp: TopicPartition) -> None:
        """Take the partition away: renamed at once, its files removed in the background or at the next start.

        Raises LogDirFailed if the disk refuses; it is not served then, and may be deleted again.
        """
        self._take_away(tp, None)

    def set_aside(self, tp: TopicPartition, why: str) -> None:
        """Take the partition away, but keep its files under another name, for a person to look at: it is a stray.

        Raises LogDirFailed if the disk refuses; it is not served then, and may be set aside again.
        """
        self._take_away(tp, why)

    def _take_away(self, tp: TopicPartition, why: str | None) -> None:
        departure = self.depart(tp, why)
        self.rename_away([departure])
        self.departed(departure)

    def depart(self, tp: TopicPartition, why: str | None) -> Departure:
        """Serve the partition no more: ``rename_away`` is to follow, then ``departed``. Why it is kept, if it is."""
        self.unusable.give_up(tp)
        log, begun = self.logs.get(tp), self._begun.pop(tp, None)
        here = log.directory if log is not None else begun.directory if begun is not None else None
        if here is not None:
            self.unusable[tp] = f"{tp} is being taken away"
            self.unusable.places[tp] = here
        if log is not None:
            log.abandon()
            home = self.dirs.of(log.directory)
            home.keep_start(tp, log.log_start_offset)
            home.cleaner_points.forget(tp)
            del self.logs[tp]
            self._held[log.directory.parent] -= 1
        departure = departure_of(tp, self.unusable.places.get(tp), why)
        departure.future, departure.left = self._depart_future(tp), self._depart_left(tp)
        return departure

    def _depart_future(self, tp: TopicPartition) -> Departure | None:
        self._preferred.pop(tp, None)
        path = self.future_of(tp)
        self.drop_future(tp)
        self.dormant.pop(tp, None)
        return None if path is None else departure_of(tp, path, None)

    def _depart_left(self, tp: TopicPartition) -> Departure | None:
        """A checkpoint that still told of it would tell it of the next partition of the name."""
        left = self.leaving.pop(tp, None)
        if left is None or left.directory.parent in self.dirs.failed:
            return None
        self.dirs.of(left.directory).cleaner_points.forget(tp)
        return departure_of(tp, left.directory, None)

    def add_future(self, tp: TopicPartition, log: Log) -> None:
        """A copy of the partition is under way, where it was wished to lie."""
        self.futures[tp] = log
        self.dormant.pop(tp, None)
        self._preferred.pop(tp, None)

    def drop_future(self, tp: TopicPartition) -> None:
        """Write to the partition's copy no more; it stays on the disk."""
        log = self.futures.pop(tp, None)
        if log is not None:
            log.abandon()
            self.dormant[tp] = log.directory

    @staticmethod
    def rename_away(departures: Iterable[Departure]) -> None:
        """Give the partitions' directories their last names, durable on return; on any thread."""
        rename_all(departures)

    def departed(self, departure: Departure) -> None:
        """The partition is gone, unless the disk refused: raises LogDirFailed then.

        One in a log directory that is out of service is forgotten; when that comes back, its topic id tells.
        """
        for each in departure.others:
            self._other_departed(each)
        tp, directory, away = departure.tp, departure.directory, departure.away
        if directory is not None and tp in self.unusable.places:
            assert away is not None
            if departure.is_renamed:
                self.unusable.places[tp] = away
            if departure.error is not None:
                refused = disk_refused(f"cannot rename {directory}", departure.error)
                self.unusable[tp] = f"{tp} could not be taken away: {refused}"
                self.report(refused, directory)
                raise refused from departure.error
        self._begun.pop(tp, None)
        self.unusable.forget(tp)
        self._old_topics.discard(tp.topic)
        if away is None or not departure.is_renamed:
            return
        if departure.why is None:
            self.remove_later(away)
        else:
            say_aside(departure)

    def _other_departed(self, departure: Departure) -> None:
        """What stays of it, a start that has no other use for it removes."""
        directory, away = departure.directory, departure.away
        assert directory is not None
        assert away is not None
        if departure.error is not None:
            self.report(disk_refused(f"cannot rename {directory}", departure.error), directory)
        elif departure.is_renamed:
            self.remove_later(away)

    def remove_later(self, doomed: Path) -> None:
        """Remove a directory in the background, or at the next start."""
        self._in_background(partial(remove_doomed, doomed), doomed)

    def unlink_later(self, path: Path) -> None:
        """Remove a file of a partition in the background; a start removes one that stays."""
        self._in_background(lambda: path.unlink(missing_ok=True), path.parent)

    def truncate_to(self, tp: TopicPartition, offset: int) -> None:
        """Drop what the partition holds at or beyond ``offset``, the recovery point on the disk first.

        Where the log then ends before the start that is on the disk, that is lowered too, or what is appended next
        would count as deleted after a crash.
        """
        self.cut(self._held_log(tp), offset)

    def cut(self, log: Log, offset: int) -> None:
        """``truncate_to``, of a log that is the partition's or a copy of it."""
        start = log.log_start_offset
        end = log.end_after_truncation(offset)  # ``offset`` may lie within a batch, all of which goes
        is_less_clean = self.dirs.of(log.directory).cleaner_points.lower(log.tp, end)
        if end < log.recovery_point:
            log.lower_recovery_point(end)
            is_less_clean = True
        if is_less_clean:
            self._checkpoint_dir_of(log)
        try:
            log.truncate_to(offset)
        finally:  # refused half way, it ends there too
            if log.log_start_offset < start:
                self._checkpoint_dir_of(log)

    def restart_at(self, tp: TopicPartition, offset: int) -> None:
        """Drop all that the partition holds, and begin anew at ``offset``, beyond its end; the recovery point on the
        disk first. Raises LogDirFailed if the disk refuses.
        """
        log = self._held_log(tp)
        self.dirs.of(log.directory).cleaner_points.forget(tp)
        log.lower_recovery_point(0)
        self._checkpoint_dir_of(log)
        log.restart_at(offset)

    def make_certain(self, log: Log, offset: int) -> None:
        """All of the log below ``offset`` is on the disk, and so is the recovery point that says so, when this returns:
        a start after a crash believes what is there. On the disk thread. Raises LogDirFailed if the disk refuses.
        """
        if log.recovery_point < offset:
            log.flush()
        self._checkpoint_dir_of(log)

    def _held_log(self, tp: TopicPartition) -> Log:
        """Raises LogClosed if the partition is not here any more, for its disk failed a moment ago."""
        log = self.logs.get(tp)
        if log is None:
            raise LogClosed(f"{tp} is not served: {self.unusable.get(tp, 'it was taken away')}")
        return log

    def run_on_disk(self, work: Callable[..., _T], *arguments: object) -> Future[_T]:
        """Begin it on the disk thread, on which one thing is done after another."""
        return self._executor.submit(work, *arguments)

    def start_truncation(self, tp: TopicPartition, offset: int) -> Future[None]:
        """Begin ``truncate_to`` on the disk thread."""
        return self._executor.submit(self.truncate_to, tp, offset)

    def start_restart(self, tp: TopicPartition, offset: int) -> Future[None]:
        """Begin ``restart_at`` on the disk thread."""
        return self._executor.submit(self.restart_at, tp, offset)

    def advance_start(self, tp: TopicPartition, offset: int) -> None:
        """The partition begins at ``offset`` from now on, its segments go with the next retention. Also after a crash,
        once a checkpoint has been written.

        Raises LogError where ``offset`` lies beyond the end of the log.
        """
        log = self.logs[tp]
        if offset > log.log_end_offset:
            raise LogError(f"{tp} ends at {log.log_end_offset}; it cannot begin at {offset}")
        log.advance_start(offset)

    def _checkpoint_dir_of(self, log: Log) -> None:
        self.checkpoint_dir(self.dirs.of(log.directory))

    def usage(self) -> Generator[None, None, list[DirectoryUse]]:
        """Every log directory: its partitions and copies, some of them a step, and the room on its disk."""
        found = yield from usage_of([each.path for each in self.dirs.in_service], self.logs, self.futures)
        return found + [DirectoryUse(path, reason) for path, reason in self.dirs.failed.items()]

    def delete_old_segments(self, tp: TopicPartition, high_watermark: int, policies: GivenUp | None = None) -> bool:
        """Apply ``policies``, by default the built-in ones that the topic's settings name; the files are unlinked by
        ``unlink_due`` after ``file.delete.delay.ms``.

        Whether something was deleted: then more may be to go.
        """
        log = self.logs[tp]
        due = monotonic_ms(self._clock) + log.config.file_delete_delay_ms
        doomed = log.delete_old_segments(high_watermark, policies)
        if doomed:
            _logger.info("%s now begins at offset %d", tp, log.log_start_offset)
        self._doomed.extend((due, path) for path in doomed)
        return bool(doomed)

    def unlink_due(self) -> Generator[None, None, None]:
        """Remove the files whose time has come, one a step; those of a partition that was deleted meanwhile are gone
        already.
        """
        now = monotonic_ms(self._clock)
        due = deque(path for at, path in self._doomed if at <= now)
        self._doomed = [each for each in self._doomed if each[0] > now]
        try:
            while due:
                path = due.popleft()
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    self.report(disk_refused(f"cannot remove {path}", error), path.parent)
                yield
        finally:
            self._doomed.extend((now, path) for path in due)

    def start_flush(self, log: Log) -> Future[None]:
        """Flush the log in the background. Where the disk refuses, that is reported, and the future's LogDirFailed."""
        return self._executor.submit(self._flush, log)

    def _flush(self, log: Log) -> None:
        try:
            log.flush()
        except LogDirFailed as error:
            self.report(error, log.directory)
            raise

    def flush_due(self) -> None:
        """Begin flushing, in the background, the logs with something unflushed for their ``flush.ms``."""
        now = monotonic_ms(self._clock)
        for log in self.logs.values():
            if log.flush_is_due(now):
                self._in_background(log.flush, log.directory)

    def remember_producers(self, expiration_ms: int) -> None:
        """Forget a producer, from now on and in logs that are yet to come, when it has been silent for so long."""
        self._defaults = replace(self._defaults, producer_expiration_ms=expiration_ms)
        for log in (*self.logs.values(), *self.futures.values()):
            log.remember_producers(expiration_ms)

    def expire_producers(self) -> Generator[None, None, None]:
        """Forget the producers that have been silent too long, a log's a step."""
        for tp, log in list(self.logs.items()):
            if tp not in self.being_cut:
                log.expire_producers()
            yield

    def fail(self, path: Path, reason: str) -> None:
        """Take the log directory ``path`` out of service; the caller tells the requests that wait."""
        served = sum(len(self._logs_in(each, self.logs)) for each in self.dirs.in_service if each.path == path)
        self.dirs.note_failed(path, reason, served)
        why = f"its log directory {path} failed: {reason}"
        for log_dir in [each for each in self.dirs.in_service if each.path == path]:
            self.dirs.in_service.remove(log_dir)
            for tp, log in self._logs_in(log_dir, self.logs).items():
                log.abandon()
                self.unusable[tp] = why
                del self.logs[tp]
            self._fail_futures(path)
            for tp in [tp for tp, begun in self._begun.copy().items() if begun.directory.parent == path]:
                self.unusable[tp] = why
                self._begun.pop(tp, None)
            self.unusable.lose(path, why)
            log_dir.close()

    def _fail_futures(self, path: Path) -> None:
        """Those in the directory are gone; those of partitions that were in it have nothing to be copied from."""
        for tp in [tp for tp in self.futures if tp not in self.logs or self.future_home_of(tp) == path]:
            self.drop_future(tp)
        self.dormant = {tp: copy for tp, copy in self.dormant.items() if copy.parent != path}

    def report(self, error: LogDirFailed, directory: Path) -> None:
        """The disk refused something in a partition's ``directory``, and the log says so.

        If it is full, that is all; else the log directory has failed.
        """
        if isinstance(error, DiskFull):
            self._room.refused(directory.parent, error)
        else:
            self.on_failure(directory.parent, str(error))

    def written(self, directory: Path) -> None:
        """The disk took something in a partition's ``directory``: if it was full, it is not."""
        if self._room.is_short:  # asked at every append
            self._room.written(directory.parent)

    def _in_background(self, work: Callable[[], None], directory: Path) -> None:
        """Run ``work`` on a partition's ``directory``; what fails there is logged, for no caller waits for it."""
        self._executor.submit(self._guarded, work, directory)

    def _guarded(self, work: Callable[[], None], directory: Path) -> None:
        try:
            work()
        except (LogDirFailed, OSError) as error:
            failed = disk_refused(f"cannot remove {directory}", error) if isinstance(error, OSError) else error
            if not isinstance(failed, DiskFull):
                _logger.error("%s", failed)
            self.report(failed, directory)
        except Exception:
            _logger.exception("a disk operation failed")

    def checkpoint(self) -> None:
        """Write the recovery points and log start offsets."""
        for log_dir in self.dirs.in_service:
            self.checkpoint_dir(log_dir)

    def checkpoints(self) -> list[tuple[Path, Callable[[], None]]]:
        """For each directory a file in it, and what writes its checkpoints as they stand then, on any thread."""
        return [
            (log_dir.path / RECOVERY_POINTS, partial(self.checkpoint_dir, log_dir)) for log_dir in self.dirs.in_service
        ]

    def checkpoint_later(self) -> None:
        """Write the checkpoints in the background, as they stand then."""
        for path, write in self.checkpoints():
            self._in_background(write, path)

    def checkpoint_dir(self, log_dir: LogDir) -> None:
        if log_dir in self.dirs.in_service:  # or it is out of service, and nothing in it is touched
            log_dir.checkpoint(partial(self._state_of, log_dir))
            self._room.written(log_dir.path)

    def _state_of(self, log_dir: LogDir) -> tuple[Mapping[TopicPartition, Log], Collection[TopicPartition]]:
        """What a checkpoint is to tell of. On any thread: each copy is made in one step.

        A partition that becomes unusable is among those before it leaves the logs, and one that is opened after all is
        among the logs before it leaves those: so none is missed between two looks at the unusable.
        """
        before = frozenset(self.unusable)
        futures = self._logs_in(log_dir, self.futures.copy())  # first: one that becomes the log is one of those then
        logs = self._logs_in(log_dir, self.logs.copy())  # before the next: what it gives way to is one of those then
        return self._logs_in(log_dir, self.leaving.copy()) | futures | logs, before.union(self.unusable)

    @staticmethod
    def _logs_in(log_dir: LogDir, logs: Mapping[TopicPartition, Log]) -> dict[TopicPartition, Log]:
        return {tp: log for tp, log in logs.items() if log.directory.parent == log_dir.path}

    def close(self) -> None:
        """Flush and close every log, checkpoint, and leave the marker of a clean stop where all of that succeeded.

        All directories at once, or a slow disk would take the time in which the others could be closed in order. As
        many threads as open the logs of a directory close them: each waits for the disk, and the disk takes several.
        """
        self._behind.drop()  # to close a log is to write all that waits to be written of it
        since = None if self.dirs.failed else self.unbroken_since
        stop = None if since is None else CleanStop(since, len(self.dirs.in_service))
        with ThreadPoolExecutor(max(len(self.dirs.in_service), 1), thread_name_prefix="close-dir") as pool:
            deque(pool.map(partial(self._close_dir, stop=stop), self.dirs.in_service), maxlen=0)

    def _close_dir(self, log_dir: LogDir, stop: CleanStop | None) -> None:
        try:
            with ThreadPoolExecutor(self._recovery_threads, thread_name_prefix="close") as pool:
                for logs in (self.logs, self.futures):
                    closed = pool.map(Log.close, self._logs_in(log_dir, logs).values())
                    deque(closed, maxlen=0)
            log_dir.end(partial(self._state_of, log_dir), stop)
        except (LogError, OSError) as error:
            _logger.error("%s was not closed in order, so its logs are recovered next time: %s", log_dir.path, error)
        log_dir.close()
