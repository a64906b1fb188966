"""All logs of one broker, over its log directories: opening them, keeping them durable, losing one disk at a time.

Durable across a clean stop: everything; the marker ``.kafka_cleanshutdown`` says so, and is removed before the first
append of the next run, so that a crash is never taken for a clean stop. Across a crash: everything below the recovery
points, which are written every ``log.flush.offset.checkpoint.interval.ms`` and before a truncation.

A directory whose disk fails goes out of service with its partitions, which are ``unusable`` from then on; the others
go on. A partition whose own files cannot be used is unusable alone. Neither is made anew elsewhere.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID, uuid4

from sparklog.clock import Clock
from sparklog.config.topic import TopicConfig
from sparklog.errors import ConfigError, DiskFull, LogDirFailed, LogError
from sparklog.log.checkpoints import read_topic_id
from sparklog.log.directory import LogDir
from sparklog.log.files import DELETED_DIR_SUFFIX, disk_refused, sync_directory
from sparklog.log.loader import Knowledge
from sparklog.log.log import Log
from sparklog.structs import TopicPartition

_logger = logging.getLogger(__name__)

OnFailure = Callable[[Path, str], None]
"""Told that the disk under a log directory failed, and how; from any thread."""


class DirectoryUse(NamedTuple):
    """One log directory, and what is in it unless it failed; sizes in bytes."""

    path: Path
    failure: str | None
    partitions: Mapping[TopicPartition, int] = MappingProxyType({})
    total_bytes: int = -1
    usable_bytes: int = -1


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
        self._default_config = default_config
        self._clock = clock
        self._executor = executor
        self._recovery_threads = recovery_threads
        self._defaults = defaults or Knowledge()
        self.on_failure: OnFailure = self.fail
        self.logs: dict[TopicPartition, Log] = {}
        self.unusable: dict[TopicPartition, str] = {}
        """Partitions that are on a disk here and cannot be served, and why."""
        self._dirs: list[LogDir] = []
        self._offline: dict[Path, str] = {}
        self._doomed: list[tuple[int, Path]] = []
        self._old_topics: set[str] = set()  # those there were at the start: a partition of theirs is not new
        self._lock_dirs(dirs)

    def _lock_dirs(self, dirs: list[Path]) -> None:
        try:
            for path in dirs:
                try:
                    self._dirs.append(LogDir(path))
                except LogDirFailed as error:
                    if len(dirs) == 1:
                        raise
                    self._take_offline(path, str(error))
            self._require_directory()
        except BaseException:
            for opened in self._dirs:
                opened.close()
            raise

    def _require_directory(self) -> None:
        if not self._dirs:
            raise LogDirFailed(f"no log directory can be used: {'; '.join(self._offline.values())}")

    @property
    def has_directory(self) -> bool:
        """Whether any directory is left in service."""
        return bool(self._dirs)

    def own(self, cluster_id: str, broker_id: int) -> None:
        """Claim the directories. Raises ConfigError if one is another broker's or cluster's."""
        for log_dir in list(self._dirs):
            try:
                log_dir.own(cluster_id, broker_id)
            except OSError as error:
                self.fail(log_dir.path, str(disk_refused(f"cannot claim log directory {log_dir.path}", error)))
        self._require_directory()

    def load(self, configs: Mapping[str, TopicConfig]) -> None:
        """Open every partition found; ``configs`` holds the settings of every topic that there is.

        Raises ConfigError where two directories hold the same partition, LogDirFailed if no directory can be used.
        """
        started = self._clock.monotonic()
        self._old_topics.update(configs)
        dirs, homes = list(self._dirs), dict[TopicPartition, Path]()
        with ThreadPoolExecutor(len(dirs), thread_name_prefix="load") as pool:
            errors = list(pool.map(lambda each: self._load_dir(each, configs, homes), dirs))
        for log_dir, error in zip(dirs, errors, strict=True):
            if error is not None:
                self.fail(log_dir.path, str(error))
        self._require_directory()
        self._say_loaded(self._clock.monotonic() - started)

    def _say_loaded(self, seconds: float) -> None:
        scanned = sum(log.scanned_bytes for log in self.logs.values())
        _logger.info(
            "opened %d logs in %.1f s; %d MB scanned, %d bytes dropped, %d logs unusable",
            len(self.logs),
            seconds,
            scanned // 1_000_000,
            sum(log.recovered_bytes_dropped for log in self.logs.values()),
            len(self.unusable),
        )

    def _load_dir(
        self, log_dir: LogDir, configs: Mapping[str, TopicConfig], homes: dict[TopicPartition, Path]
    ) -> LogDirFailed | None:
        """Open the partitions of one directory; returns why it cannot be used. ``homes``: where each was found."""
        try:
            log_dir.look()
            for leftover in log_dir.path.glob(f"*{DELETED_DIR_SUFFIX}"):
                shutil.rmtree(leftover)
            found = log_dir.partitions()
            for tp, path in found.items():
                if homes.setdefault(tp, path) != path:  # setdefault: the directories are loaded at the same time
                    raise ConfigError(f"{tp} is both in {homes[tp]} and in {path}: move one away")
            with ThreadPoolExecutor(self._recovery_threads, thread_name_prefix="recover") as pool:
                for _ in pool.map(lambda tp: self._load_log(log_dir, tp, found[tp], configs), found):
                    pass
            log_dir.begin()
        except OSError as error:
            return disk_refused(f"cannot use log directory {log_dir.path}", error)
        except LogDirFailed as error:
            return error
        return None

    def _load_log(self, log_dir: LogDir, tp: TopicPartition, path: Path, configs: Mapping[str, TopicConfig]) -> None:
        known = replace(log_dir.known(tp), producer_expiration_ms=self._defaults.producer_expiration_ms)
        try:
            read_topic_id(path)
            self.logs[tp] = self._open(path, tp, configs.get(tp.topic), known)
        except LogError as error:
            if isinstance(error, LogDirFailed) and not isinstance(error, DiskFull):
                raise
            self._cannot_use(tp, str(error))

    def _cannot_use(self, tp: TopicPartition, reason: str) -> None:
        _logger.error("%s is not served: %s", tp, reason)
        self.unusable[tp] = reason

    def _open(self, path: Path, tp: TopicPartition, config: TopicConfig | None, known: Knowledge) -> Log:
        def submit(work: Callable[[], None]) -> None:
            self._in_background(work, path)

        return Log(path, tp, config or self._default_config, self._clock, submit, known)

    def get_or_create(
        self, tp: TopicPartition, config: TopicConfig | None, topic_id: UUID | None, *, is_new: bool = True
    ) -> Log:
        """The partition's log, made in the emptiest directory if there is none.

        Raises LogError where there is one that cannot be used, or, unless the partition ``is_new``, may be one in a
        directory that is out of service.
        """
        if tp in self.unusable:
            raise LogError(self.unusable[tp])
        log = self.logs.get(tp)
        if log is None:
            if self._offline and (not is_new or tp.topic in self._old_topics):
                where = ", ".join(map(str, self._offline))
                self.unusable[tp] = f"{tp} may lie in a directory that is out of service: {where}"
                raise LogError(self.unusable[tp])
            log = self.logs[tp] = self._create(tp, config)
        if topic_id is not None and log.topic_id != topic_id:
            log.assign_topic_id(topic_id)
        return log

    def _create(self, tp: TopicPartition, config: TopicConfig | None) -> Log:
        if not self._dirs:
            raise LogDirFailed("no log directory is left in service")
        home = min(self._dirs, key=lambda each: len(self._logs_in(each, self.logs)))
        path = home.path / str(tp)
        if home.names(tp):
            home.checkpoint(self._logs_in(home, self.logs), self.unusable)
        try:
            path.mkdir(exist_ok=True)  # it may be what is left of an attempt for which there was no room
            sync_directory(home.path)
        except OSError as error:
            raise disk_refused(f"cannot create {path}", error) from error
        return self._open(path, tp, config, self._defaults)

    def delete(self, tp: TopicPartition) -> None:
        """Take the partition away: renamed at once, its files removed in the background or at the next start."""
        self._old_topics.discard(tp.topic)
        self.unusable.pop(tp, None)
        log = self.logs.pop(tp, None)
        if log is None:
            return
        try:
            log.close()
            doomed = log.directory.with_name(f"{tp}.{uuid4().hex}{DELETED_DIR_SUFFIX}")
            log.directory.rename(doomed)
            sync_directory(doomed.parent)
        except OSError as error:
            raise disk_refused(f"cannot delete {log.directory}", error) from error
        self._in_background(lambda: shutil.rmtree(doomed), doomed)

    def truncate_to(self, tp: TopicPartition, offset: int) -> None:
        """Drop what the partition holds at or beyond ``offset``, the recovery point on the disk first."""
        log = self.logs[tp]
        if offset < log.recovery_point:
            log.lower_recovery_point(offset)
            self._checkpoint_dir_of(log)
        log.truncate_to(offset)

    def advance_start(self, tp: TopicPartition, offset: int) -> None:
        """The partition begins at ``offset`` from now on, also after a crash; its segments go with the next retention.

        Raises LogError where ``offset`` lies beyond the end of the log.
        """
        log = self.logs[tp]
        if offset > log.log_end_offset:
            raise LogError(f"{tp} ends at {log.log_end_offset}; it cannot begin at {offset}")
        log.advance_start(offset)
        self._checkpoint_dir_of(log)

    def _checkpoint_dir_of(self, log: Log) -> None:
        for log_dir in self._dirs:
            if log_dir.path == log.directory.parent:
                log_dir.checkpoint(self._logs_in(log_dir, self.logs), self.unusable)

    def usage(self) -> list[DirectoryUse]:
        """Every log directory: the sizes of its partitions, and the room on its disk."""
        found = []
        for log_dir in self._dirs:
            sizes = {tp: log.size for tp, log in self._logs_in(log_dir, self.logs).items()}
            try:
                room = shutil.disk_usage(log_dir.path)
            except OSError as error:
                found.append(DirectoryUse(log_dir.path, str(disk_refused(f"cannot look at {log_dir.path}", error))))
            else:
                found.append(DirectoryUse(log_dir.path, None, sizes, room.total, room.free))
        return found + [DirectoryUse(path, reason) for path, reason in self._offline.items()]

    def delete_old_segments(self, tp: TopicPartition, high_watermark: int) -> None:
        """Apply the topic's retention; the files are unlinked by ``unlink_due`` after ``file.delete.delay.ms``."""
        log = self.logs[tp]
        due = self._clock.now_ms() + log.config.file_delete_delay_ms
        doomed = log.delete_old_segments(high_watermark)
        if doomed:
            _logger.info("%s now begins at offset %d", tp, log.log_start_offset)
        self._doomed.extend((due, path) for path in doomed)

    def unlink_due(self) -> None:
        """Remove the files whose time has come; those of a partition that was deleted meanwhile are gone already."""
        now = self._clock.now_ms()
        due = [path for at, path in self._doomed if at <= now]
        self._doomed = [each for each in self._doomed if each[0] > now]
        for path in due:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                self.report(disk_refused(f"cannot remove {path}", error), path.parent)

    def flush_due(self) -> None:
        """Begin flushing, in the background, the logs with something unflushed for their ``flush.ms``."""
        now = self._clock.now_ms()
        for log in self.logs.values():
            if log.flush_is_due(now):
                self._in_background(log.flush, log.directory)

    def remember_producers(self, expiration_ms: int) -> None:
        """Forget a producer, from now on and in logs that are yet to come, when it has been silent for so long."""
        self._defaults = replace(self._defaults, producer_expiration_ms=expiration_ms)
        for log in self.logs.values():
            log.remember_producers(expiration_ms)

    def expire_producers(self) -> None:
        """Forget the producers that have been silent too long."""
        for log in self.logs.values():
            log.expire_producers()

    def fail(self, path: Path, reason: str) -> None:
        """Take the log directory ``path`` out of service; whoever waits for its partitions is the caller's to tell."""
        self._take_offline(path, reason)
        for log_dir in [each for each in self._dirs if each.path == path]:
            self._dirs.remove(log_dir)
            for tp, log in self._logs_in(log_dir, self.logs).items():
                log.abandon()
                del self.logs[tp]
                self.unusable[tp] = f"its log directory {path} failed: {reason}"
            log_dir.close()

    def _take_offline(self, path: Path, reason: str) -> None:
        if path not in self._offline:
            _logger.error("log directory %s is out of service until the broker is started again: %s", path, reason)
            self._offline[path] = reason

    def report(self, error: LogDirFailed, directory: Path) -> None:
        """The disk refused something in a ``directory``: unless it is full, the log directory has failed."""
        if not isinstance(error, DiskFull):
            self.on_failure(directory.parent, str(error))

    def _in_background(self, work: Callable[[], None], directory: Path) -> None:
        """Run ``work`` on a partition's ``directory``; what fails there is logged, for nobody waits for it."""

        def guarded() -> None:
            try:
                work()
            except (LogDirFailed, OSError) as error:
                failed = disk_refused(f"cannot remove {directory}", error) if isinstance(error, OSError) else error
                _logger.error("%s", failed)
                self.report(failed, directory)
            except Exception:
                _logger.exception("a disk operation failed")

        self._executor.submit(guarded)

    def checkpoint(self) -> None:
        """Write the recovery points and log start offsets."""
        for log_dir in self._dirs:
            log_dir.checkpoint(self._logs_in(log_dir, self.logs), self.unusable)

    def checkpoint_later(self) -> None:
        """Write the checkpoints in the background, as they stand now."""
        unusable = frozenset(self.unusable)
        for log_dir in self._dirs:
            write = partial(log_dir.checkpoint, self._logs_in(log_dir, self.logs), unusable)
            self._in_background(write, log_dir.path / "checkpoints")

    @staticmethod
    def _logs_in(log_dir: LogDir, logs: Mapping[TopicPartition, Log]) -> dict[TopicPartition, Log]:
        return {tp: log for tp, log in logs.items() if log.directory.parent == log_dir.path}

    def close(self) -> None:
        """Flush and close every log, checkpoint, and leave the marker of a clean stop where all of that succeeded."""
        for log_dir in self._dirs:
            logs = self._logs_in(log_dir, self.logs)
            try:
                for log in logs.values():
                    log.close()
                log_dir.end(logs, self.unusable)
            except (LogError, OSError) as error:
                _logger.error(
                    "%s was not closed in order, so its logs are recovered next time: %s", log_dir.path, error
                )
            log_dir.close()
