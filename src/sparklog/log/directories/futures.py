"""Future replicas on the disk: a copy of a partition in another log directory, which takes its place when it has all.

Steps, of which each can be the last before a crash:

1. The copy is made in ``TOPIC-PARTITION.UNIQUE-future``. It is never served; after a crash it goes on, unless segments
   of the partition were replaced meanwhile.
2. It is flushed and closed in order, marked (``moved.MARK``) and renamed to the partition's own name, durably, while
   the old directory still has that name and is served.
3. What came meanwhile is copied too. In one turn of the loop the new log stands in for the old one.
4. The new log is flushed and its checkpoint written; then the old directory is renamed ``-delete``, durably; then the
   mark goes.

So the partition has its name in one of the directories at least, and where it has it in two, ``moved`` says which one
is it. Source: Kafka 3.9, ``LogManager.replaceCurrentWithFutureLog``, which renames in this order, and does not start
where it finds two.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from sparklog.errors import CorruptRecord, DiskFull, LogClosed, LogError
from sparklog.log.directories import moved
from sparklog.log.directories.directory import LogDir
from sparklog.log.directories.manager import LogManager
from sparklog.log.files import (
    COPY_NAME,
    SNAPSHOT_SUFFIX,
    disk_refused,
    future_path,
    partition_path,
    segment_path,
    sync_directory,
    write_atomically,
)
from sparklog.log.leader_epochs import EpochEntry
from sparklog.log.loader import Knowledge
from sparklog.log.log import Log
from sparklog.log.producer_snapshot import encode_snapshot, entries_before, read_snapshot
from sparklog.structs import FileSlice, TopicPartition


def common_end(one: Iterable[EpochEntry], one_end: int, other: Iterable[EpochEntry], other_end: int) -> int:
    """Up to where two logs have the same history, by their leader epochs and ends."""
    end = min(one_end, other_end)
    mine, theirs = list(one), list(other)
    if not mine or not theirs:
        return end
    first = max(mine[0].start_offset, theirs[0].start_offset)
    bounds = sorted({each.start_offset for each in (*mine, *theirs)} | {first})
    return next((at for at in bounds if first <= at < end and _epoch_at(mine, at) != _epoch_at(theirs, at)), end)


def _epoch_at(entries: list[EpochEntry], offset: int) -> int:
    return next(each.epoch for each in reversed(entries) if each.start_offset <= offset)


def _producers_at(log: Log, base: int) -> bytes:
    """The snapshot of the producers at the first segment of ``log``: its own or, where that lacks, of what it knows.

    It may lack: several rolls have one snapshot where there are many producers, and a power cut takes one that was
    just written.
    """
    try:
        return encode_snapshot(read_snapshot(segment_path(log.directory, base, SNAPSHOT_SUFFIX)).values())
    except (OSError, CorruptRecord):
        return encode_snapshot(entries_before(tuple(log.producers), base))


class FutureLogs:
    """``swap`` belongs to the loop's thread; what is said to be for the disk thread waits for the disk there."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs

    def begin(self, tp: TopicPartition, home: LogDir) -> Log:
        """Begin an empty copy, where the first segment of the partition begins; on the disk thread.

        It knows the producers whose batches were deleted before. Raises LogError; then nothing is left of it, unless
        the disk refuses that too.
        """
        path = future_path(home.path, tp)
        try:
            return self._begin(tp, home, path)
        except LogError:
            if path.exists():
                with suppress(OSError):
                    moved.remove(path, tp)
            raise

    def _begin(self, tp: TopicPartition, home: LogDir, path: Path) -> Log:
        current = self._current(tp)
        base = current.base_offset
        try:
            if home.names(tp):  # or a crash would find the offsets of a log that was there before
                self._logs.checkpoint_dir(home)
            path.mkdir()
            write_atomically(path / COPY_NAME, path.name.encode())
            with suppress(OSError):  # a full disk is to be left all the same; a restart begins the copy anew then
                write_atomically(current.directory / COPY_NAME, path.name.encode())
            if base:
                write_atomically(segment_path(path, base, SNAPSHOT_SUFFIX), _producers_at(current, base))
            sync_directory(home.path)
        except OSError as error:
            raise disk_refused(f"cannot begin a copy of {tp} in {home.path}", error) from error
        log = self._logs.open_log(path, tp, current.config, Knowledge(base, base))
        if current.topic_id is not None:
            try:
                log.assign_topic_id(current.topic_id)
            except LogError:
                log.abandon()
                raise
        return log

    def go_on(self, tp: TopicPartition, path: Path) -> Log | None:
        """Open the copy that an earlier start began; None, and it is gone, if it is of another topic; on the disk
        thread. Raises LogError.
        """
        current = self._current(tp)
        log = self._logs.open_log(path, tp, current.config, self._logs.dirs.of(path).known(tp))
        if log.topic_id is None and current.topic_id is not None and not log.size:  # a crash came before the id
            log.assign_topic_id(current.topic_id)
        if log.topic_id == current.topic_id:
            return log
        log.abandon()
        self.remove(tp, path)
        return None

    def is_outdated(self, tp: TopicPartition, future: Log) -> bool:
        """Whether the copy may have what a cleaning or an erasure has taken from the partition's log since; on the disk
        thread. Raises LogError.
        """
        names = [each.directory / COPY_NAME for each in (self._current(tp), future)]
        try:
            return not all(each.exists() for each in names) or len({each.read_bytes() for each in names}) > 1
        except OSError as error:
            raise disk_refused(f"cannot go on with the copy {future.directory}", error) from error

    def copy(self, future: Log, piece: FileSlice) -> OSError | None:
        """Append ``piece`` of the partition's log; on any one thread. Raises LogError or CorruptRecord.

        Returns the error if the partition's own disk refused the reading.
        """
        try:
            records = memoryview(piece.read())
        except OSError as error:
            return error
        future.append_as_follower(records)
        return None

    def give_name(self, tp: TopicPartition, future: Log) -> Log:
        """Step 2; the log under its new name. On the disk thread. Raises LogError.

        Where the disk refuses that, the copy may be closed, and may lie under either name: as ``future`` says then.
        """
        home = self._logs.dirs.of(future.directory)
        path = partition_path(home.path, tp)
        try:
            if future.directory != path:
                future.close()
                self._logs.checkpoint_dir(home)  # or a start that finds the name would know of no start of the log
                moved.mark(future.directory)
                os.rename(future.directory, path)
                future.directory = path
            sync_directory(home.path)  # also of a name that it got before: that may not have been made durable
        except OSError as error:
            raise disk_refused(f"cannot rename {future.directory}", error) from error
        return self.open_again(future) if future.is_over else future

    def open_again(self, future: Log) -> Log:
        """A copy that was closed in order; on the disk thread. Raises LogError."""
        known = Knowledge(future.recovery_point, future.log_start_offset, high_watermark=future.high_watermark)
        return self._logs.open_log(future.directory, future.tp, future.config, known)

    def swap(self, tp: TopicPartition) -> Log:
        """Step 3: the copy, which has all, is the partition's log from now on. Returns the one that was."""
        old, new = self._current(tp), self._logs.futures[tp]
        new.take_over(old)
        self._logs.replace(tp, new)
        old.abandon()
        return old

    def secure(self, new: Log) -> None:
        """The first half of step 4; on the disk thread. Raises LogDirFailed."""
        new.flush()
        self._logs.checkpoint_dir(self._logs.dirs.of(new.directory))

    def retire(self, old: Log, new: Log) -> Path:
        """The second half of step 4; on the disk thread. What it returns is to be removed. Raises LogDirFailed."""
        home = self._logs.dirs.of(old.directory)
        try:
            doomed = moved.rename_doomed(old.directory, old.tp)
        except OSError as error:
            raise disk_refused(f"cannot rename {old.directory}", error) from error
        home.cleaner_points.forget(old.tp)
        self._logs.leaving.pop(old.tp, None)
        with suppress(OSError):  # it costs the next start a look
            moved.unmark(new.directory)
        try:
            self._logs.checkpoint_dir(home)
        except DiskFull as error:  # there may be room when what is returned is gone; a later checkpoint says the same
            self._logs.report(error, old.directory)
        return doomed

    def unmark(self, log: Log) -> None:
        """The partition that ``log`` was copied from is gone for certain; on the disk thread. Raises LogDirFailed."""
        try:
            if moved.is_marked(log.directory):
                moved.unmark(log.directory)
        except OSError as error:
            raise disk_refused(f"cannot change {log.directory}", error) from error

    def remove(self, tp: TopicPartition, path: Path) -> None:
        """Remove a copy; on the disk thread. Raises LogDirFailed."""
        try:
            moved.remove(path, tp)
        except OSError as error:
            raise disk_refused(f"cannot remove {path}", error) from error

    def _current(self, tp: TopicPartition) -> Log:
        log = self._logs.logs.get(tp)
        if log is None:
            raise LogClosed(f"{tp} is not served here any more")
        return log
