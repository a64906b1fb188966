"""How far a log is written, and how far of that is on its disk.

Invariants: below ``recovery_point`` every batch is on the disk, with the leader epochs that began there; what lies
between that and ``end`` is as durable as the page cache. The recovery point rises by a flush, and never past a segment
whose indexes are not flushed: a start believes the indexes of a segment that lies below it and is not the last. A sync
that failed is never tried again: the system forgets what it failed to write, so that another would succeed.

One thread writes, rolls and cuts; any thread may flush meanwhile.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

from sparklog.clock import Clock
from sparklog.errors import LogDirFailed, LogError
from sparklog.log.files import disk_refused, sync_directory
from sparklog.log.leader_epochs import LeaderEpochCache
from sparklog.log.segments import LogSegments


class Flushes:
    """How often the logs of a broker were flushed, and for how long, also where that failed; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0
        self.seconds = 0.0

    def note(self, seconds: float) -> None:
        """A log was flushed, which took so long."""
        with self._lock:
            self.count += 1
            self.seconds += seconds


class Durability:
    """That of one log, while it is open."""

    def __init__(
        self,
        directory: Path,
        segments: LogSegments,
        epochs: LeaderEpochCache,
        clock: Clock,
        flushes: Flushes,
        end: int,
        recovery_point: int,
    ) -> None:
        self._directory = directory
        self._segments = segments
        self._epochs = epochs
        self._clock = clock
        self._flushes = flushes
        self.end = end
        """One past the last batch."""
        self.recovery_point = recovery_point
        self.truncations = 0
        """How often the log was cut since it was opened."""
        self.has_new_names = False
        """Whether files were made in the directory since it was synced."""
        self.is_over = False
        """Nothing is written any more: the log is closed, or given up."""
        self._lock = threading.Lock()
        self._is_rolling = False
        self._wanted = 0  # up to which offset, by flush.messages
        self._unflushed_since_ms: int | None = None
        self._failure: LogDirFailed | None = None

    def note_written(self, end: int, now_ms: int, flush_messages: int) -> None:
        """The log has more batches, up to ``end``; ``now_ms`` is of ``monotonic_ms``."""
        self.end = end
        if self._unflushed_since_ms is None:
            self._unflushed_since_ms = now_ms
        if self.is_wanted(flush_messages):
            self._wanted = end

    def is_wanted(self, flush_messages: int) -> bool:
        """Whether so many offsets or more wait for a flush."""
        return self.end - self.recovery_point >= flush_messages

    @property
    def awaits_flush(self) -> bool:
        """Whether ``flush.messages`` wants a flush before a client is told of what was written last."""
        return self.recovery_point < self._wanted

    def is_due(self, now_ms: int, flush_ms: int) -> bool:
        """Whether something has been unflushed for so long; ``now_ms`` is of ``monotonic_ms``."""
        since = self._unflushed_since_ms
        return since is not None and now_ms - since >= flush_ms

    def take_over(self, before: Durability, now_ms: int) -> None:
        """What was wanted of ``before`` is wanted of this log; all of it counts as not flushed."""
        self._wanted = before._wanted
        self._unflushed_since_ms = now_ms

    # Cutting and rolling

    def lower(self, offset: int) -> None:
        """What lies at or beyond ``offset`` counts as not flushed, and is about to be cut off."""
        with self._lock:
            self._lower(offset)

    def end_at(self, offset: int) -> None:
        """The log ends at ``offset`` from now on."""
        with self._lock:  # a flush that asks for the end sees the cut with it
            self._lower(offset)
            self.end = offset

    def _lower(self, offset: int) -> None:
        self.truncations += 1
        self.recovery_point = min(self.recovery_point, offset)
        self._wanted = min(self._wanted, offset)

    def begin_roll(self) -> bool:
        """Whether all that is written counts as flushed. Until ``end_roll`` the recovery point stays."""
        with self._lock:
            self._is_rolling = True
            return self.recovery_point >= self.end

    def end_roll(self) -> None:
        """The last segment is the last, or has all that a flush is to see of it."""
        self._is_rolling = False

    # Flushing

    def flush(self) -> None:
        """Everything written so far is on the disk when this returns.

        Raises LogDirFailed if the disk refuses: what was written may be lost then, whatever a later fsync says.
        """
        since = self._unflushed_since_ms
        self._unflushed_since_ms = None  # before the end is looked at: what is written meanwhile sets it again
        try:
            self.flush_to(self.end)
        except LogError:
            self._unflushed_since_ms = since
            raise

    def flush_to(self, end: int) -> None:
        """As ``flush``, of what lies below ``end`` and is still there."""
        if self.is_over:  # and so flushed already, or given up
            return
        began = self._clock.monotonic()
        try:
            self._flush_open_to(end)
        finally:
            self._flushes.note(self._clock.monotonic() - began)

    def _flush_open_to(self, end: int) -> None:
        with self._lock:
            truncations = self.truncations
            end = min(end, self.end)  # which a truncation may have lowered since the flush was asked for
        try:
            self.sync(lambda: self._flush_segments(end))
            while not self._raise_recovery_point(end, truncations):  # a roll came between
                self.sync(lambda: self._flush_segments(end))
        except LogDirFailed:
            if self.is_over:  # meanwhile: its directory may have another name by now
                return
            raise

    def _raise_recovery_point(self, end: int, truncations: int) -> bool:
        """Let all below ``end`` count as flushed; false while a segment below has indexes that are not, or soon has."""
        with self._lock:
            if truncations != self.truncations:
                return True
            if self._is_rolling:
                return False
            below = [each for each in self._segments.from_offset(self.recovery_point) if each.base_offset < end]
            if any(each.awaits_index_flush for each in below):
                return False
            self.recovery_point = max(self.recovery_point, end)
            return True

    def _flush_segments(self, end: int) -> None:
        self.write_epochs()  # or a start after a crash would not look for them in batches below the recovery point
        if self.has_new_names:
            self.has_new_names = False  # before the sync: a name that is made meanwhile sets it again
            try:
                sync_directory(self._directory)
            except OSError:
                self.has_new_names = True
                raise
        for segment in self._segments.from_offset(self.recovery_point):
            if segment.base_offset < end:
                segment.flush()

    def write_epochs(self) -> None:
        """The leader epochs are on the disk when this returns. Raises LogDirFailed; the next flush tries again."""
        if self.is_over:
            return
        try:
            self._epochs.write()
        except OSError as error:
            if self.is_over:  # meanwhile: its directory may have another name by now
                return
            raise disk_refused(f"cannot write the leader epochs of {self._directory}", error) from error

    def sync(self, flush: Callable[[], None]) -> None:
        """Have ``flush`` sync files of the log, unless that failed before.

        Raises LogDirFailed, and not DiskFull where the disk was full: what was appended before is lost, so the log
        cannot stay in service.
        """
        if self._failure is not None:
            raise self._failure
        try:
            flush()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):  # a file could not be opened: nothing was tried
                raise disk_refused(f"cannot flush {self._directory}", error) from error
            self._failure = LogDirFailed(f"cannot flush {self._directory}: {error.strerror}")
            raise self._failure from error
