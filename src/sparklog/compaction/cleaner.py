"""Cleaning one log: its keys are put into a map, then its segments are written anew without what the map outdates.

Nothing that is there is changed. Each group of segments becomes one under the suffix ``.cleaned``, complete and synced
when it is handed out; whoever owns the log puts it in the group's place, or removes it. The rules are those of Kafka
3.9's ``Cleaner``:

- A record stays if no record of its key with a greater offset is known, and it has a value. Behind the last offset in
  the map every record stays. A record without a key goes.
- A tombstone stays until the delete horizon of its batch. The horizon is set by the first cleaning that meets the
  tombstone as the last of its key: ``delete.retention.ms`` from then (attribute bit 6; the base timestamp holds it).
- Records of aborted transactions go. A marker stays until none of its transaction's batches is left, and then until its
  own delete horizon.
- The last batch of each producer that is remembered stays, without records if need be, for its sequence numbers.
- Order, offsets, timestamps, headers, epochs, compression and a batch's last offset stay as they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from sparklog.clock import Clock
from sparklog.compaction.plan import group_segments
from sparklog.compaction.stats import CleanerStats
from sparklog.compaction.task import CleaningTask
from sparklog.compaction.transactions import CleanedTransactions
from sparklog.errors import CorruptRecord, DiskFull
from sparklog.log.file_records import FileRecords
from sparklog.log.files import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_path,
    segment_paths,
    sync_file,
    write_all,
)
from sparklog.log.indexes.offset_index import OffsetIndex
from sparklog.log.indexes.time_index import TimeIndex
from sparklog.log.indexes.transaction_index import AbortedTransaction, TransactionIndex, read_aborted
from sparklog.log.segment import MAX_RELATIVE_OFFSET, SegmentFacts, index_interval
from sparklog.rate_limit import ByteRate
from sparklog.record import layout
from sparklog.record.batch import RecordBatch
from sparklog.record.compacting import (
    BatchRewriter,
    OffsetMap,
    RewriteRules,
    Verdict,
    make_offset_map,
    make_rewriter,
    rewrite_batch,
)
from sparklog.record.records import batch_fields, records_section
from sparklog.record.scanner import ScanLimits

_WRITTEN_AT_ONCE = 1 << 20


class CleanedGroup(NamedTuple):
    """Segments that are to go, and those under ``.cleaned`` that take their place; base offsets."""

    old: tuple[int, ...]
    new: tuple[int, ...]


class LogCleaning:
    """One pass over one log."""

    def __init__(self, task: CleaningTask, clock: Clock, seed: bytes, is_wanted: Callable[[], None] = lambda: None):
        """``seed``, 16 bytes, is of the keys' hashes. ``is_wanted`` is asked often, and raises what ends the pass."""
        self._task = task
        self._directory = Path(task.directory)
        self._clock = clock
        self._is_wanted = is_wanted
        self._rate = ByteRate(clock, task.buffers.bytes_per_second)
        self._map = make_offset_map(task.buffers.map_bytes, task.buffers.load_factor, seed)
        self._buffer = bytearray(max(task.buffers.read_bytes, layout.HEADER_SIZE))
        self._read = 0
        self._aborted: list[AbortedTransaction] = []
        self.stats = CleanerStats(first_offset=task.first_dirty)

    def run(self) -> Iterator[CleanedGroup]:
        """Clean the log, a group a step: it is in the place of the old segments, or not wanted, before the next.

        Raises CorruptRecord where a segment cannot be read, DiskFull where there is no room for a group, OSError if the
        disk refuses.
        """
        started = self._clock.monotonic()
        self._aborted = [*self._read_aborted()]
        self._fill_map()
        self.stats.index_seconds = self._clock.monotonic() - started
        transactions = CleanedTransactions(self._aborted)
        for group in self._groups():
            yield self._rewrite(group, transactions)
            self.stats.seconds = self._clock.monotonic() - started

    # The map

    def _fill_map(self) -> None:
        task, stats = self._task, self.stats
        transactions = CleanedTransactions(each for each in self._aborted if each.last_offset >= task.first_dirty)
        for segment, next_base in self._segments(task.first_dirty, task.first_uncleanable):
            self._index(segment, transactions)
            if self._map.latest_offset >= next_base:  # no CRC covers the offsets of a batch
                path = segment_path(self._directory, segment.base_offset, LOG_SUFFIX)
                raise CorruptRecord(f"{path}: a batch has offsets beyond {next_base}, where the next segment begins")
            if self._map.is_full:
                break
            self._map.advance(next_base - 1)
        stats.end_offset = self._map.latest_offset + 1
        if stats.end_offset <= task.first_dirty:
            raise MemoryError("the map of keys has no room for one: log.cleaner.dedupe.buffer.size is too small")
        stats.map_messages_read += self._map.messages
        stats.keys = self._map.size
        stats.buffer_utilization = self._map.size / max(self._map.slots, 1)
        stats.map_bytes_read, self._read = self._read, 0

    def _index(self, segment: SegmentFacts, transactions: CleanedTransactions) -> None:
        keys, start = self._map, self._task.first_dirty

        def take(view: memoryview) -> int:
            return keys.index_batches(view, start)

        def visit(batch: RecordBatch) -> bool:
            if batch.is_control:
                transactions.is_last_trace(batch)
                self.stats.map_messages_read += 1
            elif transactions.is_aborted(batch):
                self.stats.map_messages_read += batch.record_count
            elif batch.record_count:
                keys.index(records_section(batch), batch_fields(batch), start)
                if keys.is_full:
                    return False
            if batch.last_offset >= start:
                keys.advance(batch.last_offset)
            return True

        self._walk(segment, take, visit)

    # The segments written anew

    def _groups(self) -> list[list[int]]:
        task = self._task
        cleaned = [segment for segment, _ in self._segments(0, self.stats.end_offset)]
        return group_segments(cleaned, task.config, task.first_uncleanable)

    def _rewrite(self, bases: Sequence[int], transactions: CleanedTransactions) -> CleanedGroup:
        group = [each for each in self._task.segments if each.base_offset in bases]
        self._check_room(sum(each.size for each in group))
        writer = _GroupWriter(self._task, self._map, bases[0], transactions, self._rate, self._clock)
        try:
            for segment in group:
                self._walk(segment, writer.take, writer.visit)
            writer.finish(self._mtime_of(bases[-1]))
        except BaseException:
            writer.discard()
            raise
        writer.count_into(self.stats)
        self.stats.bytes_read += self._read
        self._read = 0
        return CleanedGroup(tuple(bases), tuple(writer.bases))

    def _check_room(self, size: int) -> None:
        """A group is never larger when it is written anew than it was, but for what horizons add."""
        status = os.statvfs(self._directory)
        left = status.f_bavail * status.f_frsize
        if left < size:
            raise DiskFull(
                f"{self._directory} has {left >> 20} MB left, and to clean its next segments takes {size >> 20} MB: "
                "free some room, or delete records that are needed no more"
            )

    def _mtime_of(self, base: int) -> int:
        return segment_path(self._directory, base, LOG_SUFFIX).stat().st_mtime_ns

    # Reading

    def _segments(self, start: int, end: int) -> Iterator[tuple[SegmentFacts, int]]:
        """Those that hold offsets in ``start`` to ``end``, each with the base of the next one; the active one never."""
        segments = self._task.segments
        for segment, after in pairwise(segments):
            if segment.base_offset < end and after.base_offset > start:
                yield segment, after.base_offset

    def _read_aborted(self) -> Iterator[AbortedTransaction]:
        """Those of all segments: what was aborted in one has its marker in that or in a later one."""
        for segment in self._task.segments:
            with suppress(FileNotFoundError):
                path = segment_path(self._directory, segment.base_offset, TRANSACTION_INDEX_SUFFIX)
                yield from (each for each in read_aborted(path) if each.last_offset >= self._task.log_start_offset)

    def _walk(
        self, segment: SegmentFacts, take: Callable[[memoryview], int], visit: Callable[[RecordBatch], bool]
    ) -> None:
        """Have ``take`` take batches as far as it can; ``visit`` is shown each at which it stops; false ends it."""
        log = FileRecords(segment_path(self._directory, segment.base_offset, LOG_SUFFIX), writable=False)
        position = 0
        while position < segment.size:
            self._is_wanted()
            view = log.read_into(self._buffer, position)[: segment.size - position]
            at, goes_on = self._walk_block(view, take, visit)
            self._read += at
            self._pay(at)
            if not goes_on:
                return
            if not at:
                self._grow(log, view, segment.size - position)
            position += at

    @staticmethod
    def _walk_block(
        view: memoryview, take: Callable[[memoryview], int], visit: Callable[[RecordBatch], bool]
    ) -> tuple[int, bool]:
        """How many bytes of whole batches were taken, and whether to go on."""
        at = 0
        while at < len(view):
            at += take(view[at:])
            batch = _whole_batch(view[at:])
            if batch is None:
                break
            if not visit(batch):
                return at, False
            at += batch.size_in_bytes
        return at, True

    def _grow(self, log: FileRecords, view: memoryview, left: int) -> None:
        """Make room for one batch that is larger than the buffer; ``left`` bytes of the segment are not read yet."""
        size = 0
        if len(view) >= layout.LOG_OVERHEAD:
            size = layout.OFFSET_AND_LENGTH.unpack_from(view)[1] + layout.LOG_OVERHEAD
        if not len(self._buffer) < size <= left:
            raise CorruptRecord(f"{log.path}: {left} bytes at the end hold no whole batch")
        self._buffer = bytearray(size)

    def _pay(self, size: int) -> None:
        wait_s = self._rate.owe(size)
        if wait_s > 0:
            self._clock.sleep(wait_s)


def _whole_batch(view: memoryview) -> RecordBatch | None:
    """The batch at the beginning of ``view``, checked; None if it is cut short. Raises CorruptRecord."""
    if len(view) < layout.LOG_OVERHEAD:
        return None
    size = layout.OFFSET_AND_LENGTH.unpack_from(view)[1] + layout.LOG_OVERHEAD
    if size >= layout.HEADER_SIZE and size > len(view):
        return None
    batch = RecordBatch(view)
    batch.validate()
    return batch


class _GroupWriter:
    """Writes what stays of a group of segments, into one segment, or more where an index could not hold its offsets."""

    def __init__(
        self,
        task: CleaningTask,
        offset_map: OffsetMap,
        base_offset: int,
        transactions: CleanedTransactions,
        rate: ByteRate,
        clock: Clock,
    ) -> None:
        self._task = task
        self._directory = Path(task.directory)
        self._map = offset_map
        self._transactions = transactions
        self._rate = rate
        self._clock = clock
        self._rules = RewriteRules(task.now_ms, task.config.delete_retention_ms, task.last_offsets)
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
        return segment_path(self._directory, self._base, kind + CLEANED_SUFFIX)

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
        write_all(self._fd, data, self._written)
        self._written += len(data)
        wait_s = self._rate.owe(len(data))
        if wait_s > 0:
            self._clock.sleep(wait_s)

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
            index.close()
            sync_file(index.path)

    def discard(self) -> None:
        """Remove what was written."""
        self._close()
        for base in self.bases:
            for path in segment_paths(self._directory, base, CLEANED_SUFFIX):
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
