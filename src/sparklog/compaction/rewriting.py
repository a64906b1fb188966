"""The second half of a cleaning: groups of segments are written anew, without what the map outdates.

Each becomes one segment, or more where an index could not hold its offsets, beside those that are there: complete and
synced when it is handed out. Nothing that is there is changed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sparklog.compaction.plan import group_segments
from sparklog.compaction.room import check_room
from sparklog.compaction.stats import CleanerStats
from sparklog.compaction.task import CleaningTask
from sparklog.compaction.transactions import CleanedTransactions
from sparklog.compaction.walk import SegmentWalk, segments_between
from sparklog.log.files import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    naming,
    segment_path,
    segment_paths,
    sync_file,
    write_all,
)
from sparklog.log.indexes.offset_index import OffsetIndex
from sparklog.log.indexes.time_index import TimeIndex
from sparklog.log.indexes.transaction_index import TransactionIndex
from sparklog.log.segment import MAX_RELATIVE_OFFSET, index_interval
from sparklog.record.batch import RecordBatch
from sparklog.record.compacting import (
    BatchRewriter,
    OffsetMap,
    RewriteRules,
    Verdict,
    make_rewriter,
    rewrite_batch,
)
from sparklog.record.scanner import ScanLimits

_WRITTEN_AT_ONCE = 1 << 20


class CleanedGroup(NamedTuple):
    """Segments that are to go, and those that were written to take their place; base offsets."""

    old: tuple[int, ...]
    new: tuple[int, ...]


def groups_of(task: CleaningTask, end_offset: int) -> list[list[int]]:
    """The groups of segments that are written anew, by base offsets; the map is of offsets below ``end_offset``."""
    cleaned = [segment for segment, _ in segments_between(task, 0, end_offset)]
    return group_segments(cleaned, task.config, task.first_uncleanable)


class GroupRewriting:
    """Rewrites groups of one log, in the order of their offsets."""

    def __init__(
        self,
        task: CleaningTask,
        walk: SegmentWalk,
        keys: OffsetMap,
        transactions: CleanedTransactions,
        suffix: str = CLEANED_SUFFIX,
        rules: RewriteRules | None = None,
    ) -> None:
        """``transactions`` have been shown all that lies before the first group. ``suffix`` is put behind the names of
        the files that are written; there must be none of these names. ``rules`` are by default those of the task.
        """
        self._task = task
        self._directory = Path(task.directory)
        self._walk = walk
        self._keys = keys
        self._transactions = transactions
        self._suffix = suffix
        config = task.config
        of_task = RewriteRules(task.now_ms, config.delete_retention_ms, task.last_offsets, task.last_of_log)
        self._rules = rules or of_task

    def rewrite(self, bases: Sequence[int], stats: CleanerStats) -> CleanedGroup:
        """Write a group anew, and count it. Raises CorruptRecord, DiskFull, OSError, with nothing of it left."""
        wanted = frozenset(bases)
        group = [each for each in self._task.segments if each.base_offset in wanted]
        size = sum(each.size for each in group)  # it is never larger when it is written anew, but for horizons
        check_room(self._directory, size, "to clean its next segments")
        writer = _GroupWriter(
            self._task, self._keys, bases[0], self._transactions, self._walk, self._suffix, self._rules
        )
        try:
            for segment in group:
                self._walk.walk(segment, writer.take, writer.visit)
            writer.finish(self._mtime_of(bases[-1]))
        except BaseException:
            writer.discard()
            raise
        writer.count_into(stats)
        stats.bytes_read += self._walk.take_read()
        return CleanedGroup(tuple(bases), tuple(writer.bases))

    def _mtime_of(self, base: int) -> int:
        return segment_path(self._directory, base, LOG_SUFFIX).stat().st_mtime_ns


class _GroupWriter:
    """Writes what stays of a group of segments, into one segment, or more where an index could not hold its offsets."""

    def __init__(
        self,
        task: CleaningTask,
        offset_map: OffsetMap,
        base_offset: int,
        transactions: CleanedTransactions,
        walk: SegmentWalk,
        suffix: str,
        rules: RewriteRules,
    ) -> None:
        self._task = task
        self._directory = Path(task.directory)
        self._map = offset_map
        self._transactions = transactions
        self._walk = walk
        self._suffix = suffix
        self._rules = rules
        self._counted: list[BatchRewriter] = []
        self.bases: list[int] = []
        self._begin(base_offset)

    def _begin(self, base_offset: int) -> None:
        self._base = base_offset
        interval, largest = index_interval(self._task.config), self._task.config.segment_index_bytes
        limits = ScanLimits(
            base_offset,
            base_offset + MAX_RELATIVE_OFFSET + 1,
            interval,
            largest // OffsetIndex.FORM.size,
            largest // TimeIndex.FORM.size - 1,
        )
        self._rewriter = make_rewriter(self._map, self._rules, limits)
        self._counted.append(self._rewriter)
        self.bases.append(base_offset)
        self._fd = os.open(self._path(LOG_SUFFIX), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._written = 0

    def _path(self, kind: str) -> Path:
        return segment_path(self._directory, self._base, kind + self._suffix)

    def take(self, view: memoryview) -> int:
        """Write what stays of the plain batches at the beginning of ``view``; how many bytes they take."""
        taken = self._rewriter.take(view)
        self._drain(_WRITTEN_AT_ONCE)
        return taken

    def visit(self, batch: RecordBatch) -> bool:
        """Write what stays of a batch that is compressed, of a transaction, or that ends one."""
        if batch.last_offset - self._base > MAX_RELATIVE_OFFSET:
            self.finish(None)
            self._begin(batch.base_offset)
        rewrite_batch(self._rewriter, batch, self._verdict(batch))
        self._drain(_WRITTEN_AT_ONCE)
        return True

    def _verdict(self, batch: RecordBatch) -> Verdict:
        task, stays = self._task, False
        if batch.producer_id >= 0:
            last = task.last_offsets.get(batch.producer_id)
            is_marker = batch.is_control and task.marker_epochs.get(batch.producer_id) == batch.producer_epoch
            stays = is_marker if last is None else batch.last_offset == last
        if not batch.is_control:
            return Verdict(self._transactions.is_aborted(batch), stays, needs_horizon=False)
        is_last_trace = self._transactions.is_last_trace(batch)
        is_over = batch.has_delete_horizon and batch.base_timestamp <= task.now_ms
        return Verdict(is_last_trace and is_over, stays, needs_horizon=is_last_trace)

    def _drain(self, least: int) -> None:
        if self._rewriter.size - self._written < max(least, 1):
            return
        data = self._rewriter.drain()
        with naming(self._path(LOG_SUFFIX)):
            write_all(self._fd, data, self._written)
        self._written += len(data)
        self._walk.pay(len(data))

    def finish(self, modified_ns: int | None) -> None:
        """Complete the segment: its files are on the disk, the indexes too. ``modified_ns`` is to be the time of the
        log file's last change.
        """
        rewriter = self._rewriter
        self._drain(0)
        self._write_indexes(rewriter)
        aborted = self._transactions.take_listed()
        if aborted:
            index = TransactionIndex(self._path(TRANSACTION_INDEX_SUFFIX), self._base)
            for each in aborted:
                index.append(each)
            index.flush()
        with naming(self._path(LOG_SUFFIX)):
            os.fsync(self._fd)
        self._close()
        if modified_ns is not None:
            os.utime(self._path(LOG_SUFFIX), ns=(modified_ns, modified_ns))

    def _write_indexes(self, rewriter: BatchRewriter) -> None:
        offsets, times = rewriter.entries()
        largest = self._task.config.segment_index_bytes
        offset_index = OffsetIndex(self._path(OFFSET_INDEX_SUFFIX), self._base, largest)
        offset_index.replace(offsets)
        time_index = TimeIndex(self._path(TIME_INDEX_SUFFIX), self._base, largest)
        time_index.replace(times)
        time_index.maybe_append(rewriter.latest_timestamp, rewriter.latest_offset, beyond_full=True)
        for index in (offset_index, time_index):
            with naming(index.path):
                index.close()
            sync_file(index.path)

    def discard(self) -> None:
        """Remove what was written."""
        self._close()
        for base in self.bases:
            for path in segment_paths(self._directory, base, self._suffix):
                path.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def count_into(self, stats: CleanerStats) -> None:
        """Add what was read and written to ``stats``."""
        for each in self._counted:
            stats.messages_read += each.messages_read
            stats.messages_written += each.messages_kept
            stats.invalid_messages += each.invalid
            stats.bytes_written += each.size
