"""The log directories of a broker: which partitions they hold, opening them all, closing them all.

Durable across a clean stop: everything; the marker ``.kafka_cleanshutdown`` says so, and is removed before the first
append of the next run, so that a crash is never taken for a clean stop. Across a crash: everything below the recovery
points, which are written every ``log.flush.offset.checkpoint.interval.ms``.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import NamedTuple
from uuid import UUID, uuid4

from sparklog.clock import Clock
from sparklog.config.topic import TopicConfig
from sparklog.errors import ConfigError, LogDirFailed
from sparklog.log.checkpoints import (
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_meta_properties,
    read_offsets,
    write_meta_properties,
    write_offsets,
)
from sparklog.log.files import CLEAN_SHUTDOWN_MARKER, DELETED_DIR_SUFFIX, LOCK_FILE, parse_partition_dir, sync_directory
from sparklog.log.log import Log
from sparklog.structs import TopicPartition

_logger = logging.getLogger(__name__)


class LogDir:
    """One directory, locked for as long as this object is open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise LogDirFailed(f"cannot use log directory {path}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise LogDirFailed(f"log directory {path} is in use by another broker") from error

    def own(self, cluster_id: str, broker_id: int) -> None:
        """Write whose directory it is, or raise ConfigError if it is another's."""
        found = read_meta_properties(self.path)
        for name, ours in (("cluster.id", cluster_id), ("broker.id", str(broker_id))):
            theirs = found.get(name, ours)
            if theirs != ours:
                raise ConfigError(
                    f"log directory {self.path} belongs to {name}={theirs}, not {ours}; "
                    "give this broker a directory of its own (log.dirs)"
                )
        if not found:
            write_meta_properties(self.path, cluster_id, broker_id)

    def partitions(self) -> dict[TopicPartition, Path]:
        """The partition directories, those being deleted left out."""
        found = {}
        for path in self.path.iterdir():
            tp = parse_partition_dir(path.name) if path.is_dir() else None
            if tp is not None:
                found[tp] = path
        return found

    def close(self) -> None:
        os.close(self._lock)


class Checkpointed(NamedTuple):
    """What the checkpoints of a log directory say of one partition."""

    recovery_point: int
    log_start_offset: int


class LogManager:
    """All logs of one broker. ``executor`` runs flushes and deletions."""

    def __init__(self, dirs: list[Path], default_config: TopicConfig, clock: Clock, executor: Executor) -> None:
        self._default_config = default_config
        self._clock = clock
        self._executor = executor
        self.logs: dict[TopicPartition, Log] = {}
        self._dirs: list[LogDir] = []
        self._doomed: list[tuple[int, Path]] = []
        try:
            for path in dirs:
                self._dirs.append(LogDir(path))
        except BaseException:
            for opened in self._dirs:
                opened.close()
            raise

    def own(self, cluster_id: str, broker_id: int) -> None:
        """Claim the directories. Raises ConfigError if one is another broker's or cluster's."""
        for log_dir in self._dirs:
            log_dir.own(cluster_id, broker_id)

    def load(self, configs: dict[str, TopicConfig]) -> None:
        """Open every partition found; ``configs`` holds the settings of topics that have their own."""
        for log_dir in self._dirs:
            marker = log_dir.path / CLEAN_SHUTDOWN_MARKER
            clean = marker.exists()
            recovery_points = read_offsets(log_dir.path / RECOVERY_POINTS)
            starts = read_offsets(log_dir.path / LOG_START_OFFSETS)
            for leftover in log_dir.path.glob(f"*{DELETED_DIR_SUFFIX}"):
                shutil.rmtree(leftover)
            for tp, path in log_dir.partitions().items():
                config = configs.get(tp.topic, self._default_config)
                points = Checkpointed(recovery_points.get(tp, 0), starts.get(tp, 0))
                self.logs[tp] = self._open(path, tp, config, points, clean=clean)
            if clean:
                marker.unlink()
                sync_directory(log_dir.path)

    def _open(self, path: Path, tp: TopicPartition, config: TopicConfig, points: Checkpointed, *, clean: bool) -> Log:
        return Log(
            path,
            tp,
            config,
            self._clock,
            self._in_background,
            recovery_point=points.recovery_point,
            log_start_offset=points.log_start_offset,
            clean=clean,
        )

    def get_or_create(self, tp: TopicPartition, config: TopicConfig | None, topic_id: UUID | None) -> Log:
        """The partition's log, made in the emptiest directory if there is none."""
        log = self.logs.get(tp)
        if log is None:
            home = min(self._dirs, key=lambda each: len(each.partitions())) if len(self._dirs) > 1 else self._dirs[0]
            path = home.path / str(tp)
            try:
                path.mkdir()
                sync_directory(home.path)
            except OSError as error:
                raise LogDirFailed(f"cannot create {path}: {error.strerror}") from error
            log = self.logs[tp] = self._open(path, tp, config or self._default_config, Checkpointed(0, 0), clean=True)
        if topic_id is not None and log.topic_id != topic_id:
            log.assign_topic_id(topic_id)
        return log

    def delete(self, tp: TopicPartition) -> None:
        """Take the partition away: renamed at once, its files removed in the background or at the next start."""
        log = self.logs.pop(tp, None)
        if log is None:
            return
        log.close()
        doomed = log.directory.with_name(f"{tp}.{uuid4().hex}{DELETED_DIR_SUFFIX}")
        log.directory.rename(doomed)
        sync_directory(doomed.parent)
        self._in_background(lambda: shutil.rmtree(doomed))

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
        for _, path in (each for each in self._doomed if each[0] <= now):
            path.unlink(missing_ok=True)
        self._doomed = [each for each in self._doomed if each[0] > now]

    def _in_background(self, work: Callable[[], None]) -> None:
        """Run on the executor; what fails there is logged, for nobody waits for it."""

        def guarded() -> None:
            try:
                work()
            except Exception:
                _logger.exception("a disk operation failed")

        self._executor.submit(guarded)

    def checkpoint(self) -> None:
        """Write the recovery points and log start offsets."""
        self._checkpoint(self.logs)

    def checkpoint_later(self) -> None:
        """Write the checkpoints in the background, as they stand now."""
        logs = dict(self.logs)
        self._in_background(lambda: self._checkpoint(logs))

    def _checkpoint(self, logs: dict[TopicPartition, Log]) -> None:
        for log_dir in self._dirs:
            here = {tp: log for tp, log in logs.items() if log.directory.parent == log_dir.path}
            write_offsets(log_dir.path / RECOVERY_POINTS, {tp: log.recovery_point for tp, log in here.items()})
            starts = {tp: log.log_start_offset for tp, log in here.items() if log.log_start_offset > 0}
            write_offsets(log_dir.path / LOG_START_OFFSETS, starts)

    def close(self) -> None:
        """Flush and close every log, checkpoint, and leave the marker of a clean stop."""
        for log in self.logs.values():
            log.close()
        self.checkpoint()
        for log_dir in self._dirs:
            (log_dir.path / CLEAN_SHUTDOWN_MARKER).touch()
            sync_directory(log_dir.path)
            log_dir.close()
