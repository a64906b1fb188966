"""One log directory: its lock, whose it is, its checkpoints and the marker of a clean stop."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Collection, Mapping
from pathlib import Path

from sparklog.errors import ConfigError, CorruptRecord, LogDirFailed
from sparklog.log.checkpoints import (
    LOG_START_OFFSETS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    read_meta_properties,
    read_offsets,
    write_meta_properties,
    write_offsets,
)
from sparklog.log.files import CLEAN_SHUTDOWN_MARKER, LOCK_FILE, disk_refused, parse_partition_dir, sync_directory
from sparklog.log.loader import Knowledge
from sparklog.log.log import Log
from sparklog.structs import TopicPartition

_logger = logging.getLogger(__name__)


class LogDir:
    """Locked for as long as this object is open."""

    def __init__(self, path: Path) -> None:
        """Raises LogDirFailed if the directory cannot be used, ConfigError if another broker uses it."""
        self.path = path
        self._clean = False
        self._begun = False
        self._recovery_points: dict[TopicPartition, int] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._named: set[TopicPartition] = set()
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise LogDirFailed(f"cannot use log directory {path}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise ConfigError(f"log directory {path} is in use by another broker") from error

    def own(self, cluster_id: str, broker_id: int) -> None:
        """Write whose directory it is, or raise ConfigError if it is another's."""
        found = read_meta_properties(self.path)
        for name, ours in (("cluster.id", cluster_id), ("broker.id", str(broker_id))):
            theirs = found.get(name, ours)
            if theirs != ours:
                raise ConfigError(
                    f"log directory {self.path} belongs to {name}={theirs}, not {ours}, as its {META_PROPERTIES} says; "
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

    def look(self) -> None:
        """Take note of the marker and the checkpoints. One that cannot be read costs a scan, and is said in the log."""
        self._clean = (self.path / CLEAN_SHUTDOWN_MARKER).exists()
        points = self._read(RECOVERY_POINTS, "every log is scanned from its start")
        self._clean = self._clean and points is not None
        self._recovery_points = points or {}
        self._named.update(self._recovery_points)
        self._starts = self._read(LOG_START_OFFSETS, "every log starts with its first segment") or {}

    def _read(self, name: str, consequence: str) -> dict[TopicPartition, int] | None:
        try:
            return read_offsets(self.path / name)
        except CorruptRecord as error:
            _logger.error("%s; %s", error, consequence)
            return None

    def known(self, tp: TopicPartition) -> Knowledge:
        """What the directory's own files say of a partition."""
        was_closed = self._clean and tp in self._recovery_points  # one that could not be served was not closed
        return Knowledge(self._recovery_points.get(tp, 0), self._starts.get(tp, 0), was_closed)

    def begin(self) -> None:
        """Every log is open: remove the marker, durably, before anything is appended."""
        self._begun = True
        marker = self.path / CLEAN_SHUTDOWN_MARKER
        if marker.exists():
            marker.unlink()
            sync_directory(self.path)

    def names(self, tp: TopicPartition) -> bool:
        """Whether the checkpoints may hold an entry of a partition; if it is gone, one made anew must not find it."""
        return tp in self._named or tp in self._starts

    def checkpoint(self, logs: Mapping[TopicPartition, Log], unusable: Collection[TopicPartition]) -> None:
        """Write the recovery points and log start offsets of ``logs``, which are all of this directory.

        What the ``unusable`` began with is kept. Raises LogDirFailed if the disk refuses.
        """
        self._named = {*logs, *unusable}
        kept = {tp: offset for tp, offset in self._starts.items() if tp in unusable}
        starts = kept | {tp: log.log_start_offset for tp, log in logs.items() if log.log_start_offset > 0}
        self._starts = kept
        try:
            write_offsets(self.path / RECOVERY_POINTS, {tp: log.recovery_point for tp, log in logs.items()})
            write_offsets(self.path / LOG_START_OFFSETS, starts)
        except OSError as error:
            raise disk_refused(f"cannot write the checkpoints of {self.path}", error) from error

    def end(self, logs: Mapping[TopicPartition, Log], unusable: Collection[TopicPartition]) -> None:
        """Every log is closed: checkpoint, and leave the marker; durable on return. Nothing if they were never open."""
        if not self._begun:
            return
        self.checkpoint(logs, unusable)
        (self.path / CLEAN_SHUTDOWN_MARKER).touch()
        sync_directory(self.path)

    def close(self) -> None:
        """Give up the lock."""
        os.close(self._lock)
