"""One log directory: its lock, whose it is, its checkpoints and the marker of a clean stop.

What a checkpoint says is decided in the moment it is written, and one is written at a time, whatever thread writes it:
a partition that was deleted meanwhile, or deleted and made again, never leaves the offsets of its former log behind.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from sparklog.errors import ConfigError, CorruptRecord, LogDirFailed
from sparklog.log.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    read_meta_properties,
    read_offsets,
    write_meta_properties,
    write_offsets,
)
from sparklog.log.directories.clean_stop import CleanStop, write_marker
from sparklog.log.directories.cleaner_points import CleanerPoints
from sparklog.log.files import (
    CLEAN_SHUTDOWN_MARKER,
    LOCK_FILE,
    STRAY_DIR_SUFFIX,
    disk_refused,
    make_directory,
    parse_future_dir,
    parse_partition_dir,
    remove_temporaries,
    sync_directory,
)
from sparklog.log.loader import Knowledge
from sparklog.log.log import Log
from sparklog.structs import TopicPartition

_logger = logging.getLogger(__name__)

_CHECKPOINTS = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)
Choose = Callable[[], tuple[Mapping[TopicPartition, Log], Collection[TopicPartition]]]
"""The logs of a directory, all of them, and the partitions that cannot be used, as they are now; from any thread."""


def _check_placed(directory: Path) -> None:
    """Raises LogDirFailed where what has a name of ours is a link to nothing, a pipe, a socket or a device: to open it
    might never end.
    """
    for name in (LOCK_FILE, CLEAN_SHUTDOWN_MARKER, META_PROPERTIES, *_CHECKPOINTS):
        path = directory / name
        if os.path.lexists(path) and not (path.is_file() or path.is_dir()):
            raise LogDirFailed(
                f"cannot use log directory {directory}: {path} is no file, or a link to nothing; remove it"
            )


class LogDir:
    """Locked for as long as this object is open."""

    def __init__(self, path: Path) -> None:
        """Raises LogDirFailed if the directory cannot be used, ConfigError if another broker uses it."""
        self.path = path
        self._clean = False
        self._begun = False
        self._recovery_points: dict[TopicPartition, int] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}
        self.cleaner_points = CleanerPoints(path)
        self._named: frozenset[TopicPartition] = frozenset()
        self._writing = threading.Lock()  # held while the checkpoints are written: one writer at a time
        self._choosing = threading.Lock()  # held for a moment, while it is decided what is written
        try:
            make_directory(path)
            _check_placed(path)
            self._lock = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            where = f" ({error.filename})" if error.filename not in (None, str(path)) else ""
            raise LogDirFailed(f"cannot use log directory {path}: {error.strerror}{where}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise ConfigError(f"log directory {path} is in use by another broker") from error
        except OSError as error:
            os.close(self._lock)
            raise LogDirFailed(f"cannot lock log directory {path}: {error.strerror}") from error

    def own(self, cluster_id: str, broker_id: int) -> None:
        """Write whose directory it is, or raise ConfigError if it is another's, or nobody can tell."""
        try:
            found = read_meta_properties(self.path)
        except CorruptRecord as error:
            raise ConfigError(
                f"nobody can tell whose log directory {self.path} is: {error}; if it is this broker's, remove that file"
            ) from error
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
        """The partition directories, those being deleted and those set aside left out."""
        found = {}
        for path in self.path.iterdir():
            if path.name.endswith(STRAY_DIR_SUFFIX):
                _logger.warning("%s was set aside; nothing of it is served. Remove it when you need it no more", path)
            tp = parse_partition_dir(path.name) if path.is_dir() else None
            if tp is not None:
                found[tp] = path
        return found

    def futures(self) -> dict[TopicPartition, list[Path]]:
        """The directories of future copies."""
        found: dict[TopicPartition, list[Path]] = {}
        for path in self.path.iterdir():
            tp = parse_future_dir(path.name) if path.is_dir() else None
            if tp is not None:
                found.setdefault(tp, []).append(path)
        return found

    def look(self) -> None:
        """Take note of the marker and the checkpoints. One that cannot be read costs a scan, and is said in the log."""
        remove_temporaries(self.path)
        self._clean = (self.path / CLEAN_SHUTDOWN_MARKER).exists()
        points = self._read(RECOVERY_POINTS, "every log is scanned from its start")
        self._clean = self._clean and points is not None
        self._recovery_points = points or {}
        self._starts = self._read(LOG_START_OFFSETS, "every log starts with its first segment") or {}
        self._high_watermarks = self._read(HIGH_WATERMARKS, "followers tell anew what is committed") or {}
        self._named = frozenset({*self._recovery_points, *self._starts, *self._high_watermarks})
        self.cleaner_points.load()

    @property
    def recovery_points(self) -> Mapping[TopicPartition, int]:
        """Those that ``look`` found; after a clean stop they are where the logs ended."""
        return self._recovery_points

    def _read(self, name: str, consequence: str) -> dict[TopicPartition, int] | None:
        try:
            return read_offsets(self.path / name)
        except CorruptRecord as error:
            _logger.error("%s; %s", error, consequence)
            return None

    def known(self, tp: TopicPartition) -> Knowledge:
        """What the directory's own files say of a partition."""
        was_closed = self._clean and tp in self._recovery_points  # one that could not be served was not closed
        start, committed = self._starts.get(tp, 0), self._high_watermarks.get(tp, 0)
        cleaned_to = self.cleaner_points.of(tp) or 0
        return Knowledge(
            self._recovery_points.get(tp, 0), start, was_closed, high_watermark=committed, cleaned_to=cleaned_to
        )

    def begin(self) -> None:
        """Every log is open: remove the marker, durably, before anything is appended."""
        self._begun = True
        marker = self.path / CLEAN_SHUTDOWN_MARKER
        if marker.exists():
            marker.unlink()
            sync_directory(self.path)

    def names(self, tp: TopicPartition) -> bool:
        """Whether the checkpoints may hold an entry of a partition; if it is gone, one made anew must not find it."""
        with self._choosing:
            return tp in self._named or tp in self._starts

    def keep_start(self, tp: TopicPartition, offset: int) -> None:
        """A partition cannot be used from now on; its log start offset stays in the checkpoint while that is so."""
        with self._choosing:
            self._starts[tp] = offset

    def checkpoint(self, choose: Choose) -> None:
        """Write the recovery points, log start offsets and high watermarks of the logs there are in this moment; from
        any thread.

        What the unusable began with is kept. Raises LogDirFailed if the disk refuses.
        """
        with self._writing:
            with self._choosing:
                logs, unusable = choose()
                chosen = frozenset({*logs, *unusable})
                self._named |= chosen  # until all files are written they may hold any of them
                self._starts = {tp: offset for tp, offset in self._starts.items() if tp in unusable}
                begun = {tp: log.log_start_offset for tp, log in logs.items()}
                starts = self._starts | {tp: offset for tp, offset in begun.items() if offset > 0}
            try:
                write_offsets(self.path / RECOVERY_POINTS, {tp: log.recovery_point for tp, log in logs.items()})
                write_offsets(self.path / LOG_START_OFFSETS, starts)
                write_offsets(self.path / HIGH_WATERMARKS, {tp: log.high_watermark for tp, log in logs.items()})
                self.cleaner_points.write()
            except OSError as error:
                raise disk_refused(f"cannot write the checkpoints of {self.path}", error) from error
            with self._choosing:
                self._named = chosen

    def end(self, choose: Choose, stop: CleanStop | None = None) -> None:
        """Every log is closed: checkpoint, and leave the marker; durable on return. Nothing if they were never open."""
        if not self._begun:
            return
        self.checkpoint(choose)
        write_marker(self.path, stop)

    def close(self) -> None:
        """Give up the lock."""
        os.close(self._lock)
