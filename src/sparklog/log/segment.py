"""A segment: a stretch of the log in one ``.log`` file with its indexes, named by its first offset.

Invariants: every batch in the file has offsets at or beyond the base and beyond those of the batch before it; an index
entry is written only for a batch that is in the file; the indexes may lag behind the file but never run ahead of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from heapq import nlargest
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from sparklog.config.topic import TopicConfig
from sparklog.errors import CorruptRecord
from sparklog.log.file_records import BatchPosition, FileRecords
from sparklog.log.files import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    rename_deleted,
    segment_path,
    segment_paths,
)
from sparklog.log.indexes.offset_index import OffsetIndex
from sparklog.log.indexes.time_index import TimeIndex, TimestampOffset
from sparklog.log.indexes.transaction_index import TransactionIndex
from sparklog.log.lease import Lease
from sparklog.log.search import Search, first_record_in, greatest_time_in
from sparklog.record import layout
from sparklog.record.batch import RecordBatch
from sparklog.record.layout import NO_TIMESTAMP
from sparklog.structs import FileSlice

MAX_RELATIVE_OFFSET = (1 << 31) - 1
_BATCHES_A_STEP = 200
"""To read the headers of so many takes half a millisecond."""

_MOST_BETWEEN_ENTRIES = 4096
_NOTABLE_GAP = 4 * _MOST_BETWEEN_ENTRIES
_GAPS_LOOKED_AT = 16


def index_interval(config: TopicConfig) -> int:
    """The bytes after which an entry is written to the indexes.

    No more than Kafka's default, whatever ``index.interval.bytes`` says: every read walks from an entry to its offset,
    and has to be short even where the batches are as small as can be. Kafka reads indexes of any density.
    """
    return min(config.index_interval_bytes, _MOST_BETWEEN_ENTRIES)


class Mark(NamedTuple):
    """Where a segment and its indexes end."""

    size: int
    offset_entries: int
    time_entries: int
    txn_size: int
    latest: TimestampOffset
    first_timestamp: int | None
    bytes_since_index_entry: int


class SegmentFacts(NamedTuple):
    """What decides whether and with what others a segment is cleaned."""

    base_offset: int
    size: int
    """Bytes of its ``.log`` file."""
    index_size: int
    """Bytes of its offset index."""
    time_index_size: int
    latest_timestamp: int
    """ms; of its newest record, or of the file's last change if no record has one."""


class LogSegment:
    """One segment, open. Only the last of a log is appended to."""

    def __init__(
        self, directory: Path, base_offset: int, config: TopicConfig, *, active: bool, create: bool = False
    ) -> None:
        self.base_offset = base_offset
        self.config = config
        self.log = FileRecords(segment_path(directory, base_offset, LOG_SUFFIX), create=create)
        if create:
            for path in segment_paths(directory, base_offset)[1:]:  # of a deleted one: see delete_indexes
                path.unlink()
        size = config.segment_index_bytes
        self.offset_index = OffsetIndex(segment_path(directory, base_offset, OFFSET_INDEX_SUFFIX), base_offset, size)
        self.time_index = TimeIndex(segment_path(directory, base_offset, TIME_INDEX_SUFFIX), base_offset, size)
        self.txn_index = TransactionIndex(segment_path(directory, base_offset, TRANSACTION_INDEX_SUFFIX), base_offset)
        self.jitter_ms = 0
        """Taken off ``segment.ms``."""
        self.created_ms: int | None = None
        """When the segment was begun, by ``monotonic_ms``; None for one that was found on the disk."""
        self.leases: list[Lease] = []
        """While one of them runs, the files keep their names."""
        self._sealed = not active
        self._indexes_flushed = not active
        self._bytes_since_index_entry = 0
        self._latest: TimestampOffset | None = None
        self._lacks_times = False
        self.first_timestamp: int | None = None

    @property
    def size(self) -> int:
        return self.log.size

    @property
    def latest(self) -> TimestampOffset:
        """The greatest timestamp in the segment and the last offset of the batch that carries it."""
        if self._latest is None:
            self._latest = self.time_index.last
        return self._latest

    def latest_or_mtime(self) -> int:
        """The greatest timestamp in the segment; where no record has one, when the file was last changed. ms."""
        if self.latest.timestamp >= 0:
            return self.latest.timestamp
        return int(os.fstat(self.log.fileno()).st_mtime * 1000)

    def facts(self) -> SegmentFacts:
        """As it is now."""
        indexes = self.offset_index.size_in_bytes, self.time_index.size_in_bytes
        return SegmentFacts(self.base_offset, self.size, *indexes, self.latest_or_mtime())

    def append(self, records: memoryview, first_offset: int, last_offset: int, latest: TimestampOffset) -> int:
        """Write ``records``, whole batches with their final offsets, and return the position.

        ``latest`` is their greatest timestamp and the last offset of its batch. The index gains an entry for the first
        append past every ``index_interval``. If the disk refuses, nothing has changed.
        """
        before, position = self.latest, self.log.append(records)
        if latest.timestamp > before.timestamp:
            self._latest = latest
        try:
            self._index(last_offset, position, len(records))
        except OSError:
            self._latest = before
            self.offset_index.truncate_to(first_offset)
            self.log.truncate(position)  # last: the disk may refuse it
            raise
        if self.first_timestamp is None:
            self.first_timestamp = latest.timestamp
        return position

    def mark(self) -> Mark:
        """Where it ends now, for ``return_to``."""
        return Mark(
            self.log.size,
            self.offset_index.entries,
            self.time_index.entries,
            self.txn_index.size_in_bytes,
            self.latest,
            self.first_timestamp,
            self._bytes_since_index_entry,
        )

    def return_to(self, mark: Mark) -> None:
        """Drop what was appended since ``mark`` was made, without looking at it.

        If the disk refuses, that counts as gone all the same, and goes before anything else is written.
        """
        self._latest, self.first_timestamp = mark.latest, mark.first_timestamp
        self._bytes_since_index_entry = mark.bytes_since_index_entry
        self.offset_index.truncate_entries(mark.offset_entries)
        self.time_index.truncate_entries(mark.time_entries)
        try:
            self.txn_index.cut(mark.txn_size)
        finally:
            self.log.truncate(mark.size)

    def _index(self, last_offset: int, position: int, size: int) -> None:
        if self._bytes_since_index_entry > index_interval(self.config) and not self.offset_index.is_full:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(*self.latest)
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += size

    def should_roll(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether an append of ``size`` bytes up to ``last_offset`` and ``max_timestamp`` belongs in a new segment.

        A segment's age is told by its records' own time, as in Kafka's ``timeWaitedForRoll``: by the clock, each
        append of old records would roll. Only where they bear none does the clock count, and ``now_ms`` is of
        ``monotonic_ms``.
        """
        return last_offset - self.base_offset > MAX_RELATIVE_OFFSET or (
            self.size > 0
            and (
                self.size + size > self.config.segment_bytes
                or self._age(max_timestamp, now_ms) > self.config.longest_segment_ms - self.jitter_ms
                or self.offset_index.is_full
                or self.time_index.is_full
            )
        )

    def _age(self, max_timestamp: int, now_ms: int) -> int:
        first = self.timestamp_of_first()
        if first is None:
            first = self.first_timestamp = max_timestamp
        if first >= 0:
            return max_timestamp - first
        if self.created_ms is None:
            self.created_ms = now_ms
        return now_ms - self.created_ms

    def timestamp_of_first(self) -> int | None:
        """The greatest timestamp of the first batch, ms; None of an empty segment. Raises CorruptRecord."""
        if self.first_timestamp is None:
            first = next(self.log.batches(), None)
            self.first_timestamp = None if first is None else first.max_timestamp
        return self.first_timestamp

    def find(self, offset: int) -> BatchPosition | None:
        """The first batch whose last offset is at or beyond ``offset``."""
        start = self.offset_index.lookup(offset).position
        return next((batch for batch in self.log.batches(start) if batch.last_offset >= offset), None)

    def batches_from(self, offset: int) -> Iterator[BatchPosition]:
        """The batches that hold ``offset`` or lie beyond it."""
        first = self.find(offset)
        return self.log.batches(first.position) if first is not None else iter(())

    def producers_batches(self, start: int, end: int) -> Iterator[RecordBatch]:
        """The batches in ``start`` to ``end`` that bear a producer's id."""
        for found in self.batches_from(start):
            if found.base_offset >= end:
                return
            if found.producer_id >= 0:
                yield RecordBatch(self.log.read(found.position, found.size))

    def read(
        self, offset: int, max_bytes: int, end_position: int, *, min_one_batch: bool, skips: int = 0
    ) -> FileSlice | None:
        """Batches from the one that holds ``offset`` up to ``end_position`` of the file, at most ``max_bytes``.

        The slice may begin with offsets before the one asked for, and end in the middle of any batch but the first. A
        first batch larger than ``max_bytes`` is given whole with ``min_one_batch``, and otherwise not at all (KIP-74):
        a client that gets bytes without a whole batch takes that for an error. None if the segment has nothing at or
        beyond ``offset``. Up to ``skips`` bytes of batches without records are left out before the first that has some;
        of the last ones in the segment one is given.
        """
        batch = self.find(offset)
        if batch is None:
            return None
        if skips and batch.size == layout.HEADER_SIZE and batch.end < end_position:
            batch = self.log.batch_at(self.log.skip_empty(batch.position, end_position, skips)) or batch
        size = max_bytes
        if size < batch.size:
            size = batch.size if min_one_batch else 0
        return self.log.slice(batch.position, max(min(size, end_position - batch.position), 0))

    def position_after(self, offset: int) -> int:
        """Where the batch begins that holds ``offset`` or follows it; the end of the file if there is none."""
        batch = self.find(offset)
        return self.log.size if batch is None else batch.position

    def offset_for_timestamp(self, timestamp: int, start_offset: int) -> Search:
        """Finds the first record at or beyond ``start_offset`` that is no earlier than ``timestamp``, in steps.

        The indexes say where to begin. Only where ``start_offset`` leaves out the record that they mean, every batch
        behind it may have to be looked at.
        """
        if self.latest.timestamp < timestamp:
            return None
        position = self.offset_index.lookup(max(self._known_before(timestamp), start_offset)).position
        for number, found in enumerate(self.log.batches(position), 1):
            if found.max_timestamp >= timestamp and found.last_offset >= start_offset:
                record = yield from first_record_in(self.log, found, timestamp, start_offset)
                if record is not None:
                    return record
                yield None
            elif not number % _BATCHES_A_STEP:
                yield None
        return None

    def _known_before(self, timestamp: int) -> int:
        """An offset; the last entry of the offset index up to it has no record before it that is so late.

        For when an entry is written to the offset index, the time index says the greatest time so far: an entry that
        lies before the first one of the time index to reach ``timestamp`` was written before that. (A time index that
        had no room may lack some; where others are lost, a start makes the indexes anew.)
        """
        if self.time_index.is_full:
            return self.time_index.lookup(timestamp).offset
        return (self.time_index.first_from(timestamp) or self.latest).offset - 1

    def latest_from(self, start_offset: int) -> Search:
        """Finds the first record with the greatest timestamp of those at or beyond ``start_offset``, in steps.

        At once where the segment's latest is among them; else every batch that is left is looked at.
        """
        if self.latest.timestamp < 0:
            return None
        left = self.batches_from(start_offset)  # now: the indexes go with a segment that is deleted between two steps
        if self.latest.offset >= start_offset:
            latest, bearer = self.latest.timestamp, self.find(self.latest.offset)
            if bearer is not None:
                record = yield from first_record_in(self.log, bearer, latest, start_offset)
                if record is not None:
                    return record
        best, greatest = None, NO_TIMESTAMP
        for number, found in enumerate(left, 1):
            time = found.max_timestamp
            if found.base_offset < start_offset:
                time = yield from greatest_time_in(self.log, found, start_offset)
            if time > greatest and self._has_records(found):
                best, greatest = found, time
            if not number % _BATCHES_A_STEP:
                yield None
        return None if best is None else (yield from first_record_in(self.log, best, greatest, start_offset))

    def _has_records(self, place: BatchPosition) -> bool:
        """A cleaning and an erasure leave headers without any, which keep the greatest time of what was in them."""
        *_, count = layout.HEADER.unpack(self.log.read(place.position, layout.HEADER_SIZE))
        return bool(count > 0)

    def next_offset(self) -> int:
        """One past the last offset in the file, found from the last index entry on."""
        next_offset = self.base_offset
        for batch in self.log.batches(self.offset_index.last.position):
            next_offset = batch.last_offset + 1
        return next_offset

    def end_before(self, offset: int) -> int:
        """One past the last offset of the batches that lie wholly before ``offset``; the base if there is none."""
        end = self.base_offset
        for batch in self.log.batches(self.offset_index.lookup(offset - 1).position):
            if batch.last_offset >= offset:
                break
            end = batch.last_offset + 1
        return end

    def load_latest(self) -> None:
        """After an open: find the greatest timestamp beyond what the time index says, and whether it lacks an entry."""
        latest, reached = self.time_index.last, self.offset_index.last.offset
        lacks_one = False
        for batch in self.log.batches(self.offset_index.lookup(latest.offset).position):
            if batch.max_timestamp > latest.timestamp:
                latest = TimestampOffset(batch.max_timestamp, batch.last_offset)
                lacks_one = lacks_one or (self.offset_index.entries > 0 and batch.last_offset <= reached)
        self._latest = latest
        self._lacks_times = lacks_one and not self.time_index.is_full

    def has_wrong_times(self) -> bool:
        """Whether the time index is behind the offset index, or beyond the end of the file; to be asked after
        ``load_latest``. Raises CorruptRecord.
        """
        return self._lacks_times or (self.time_index.entries > 0 and self.time_index.last.offset >= self.next_offset())

    def check_indexes(self) -> None:
        """Raises CorruptRecord if an index cannot belong to the file."""
        self.offset_index.sanity_check()
        self.time_index.sanity_check()
        self.txn_index.sanity_check()
        if self.offset_index.entries and self.offset_index.last.position >= self.log.size:
            raise CorruptRecord(f"{self.offset_index.path} points beyond the end of the log file")

    def has_sparse_index(self) -> bool:
        """Whether the offset index lacks entries that ``index_interval`` wants: another broker wrote it.

        Looks into some of the longest gaps only, and only where the topic's setting is longer. A large batch makes a
        gap too, but one in which no other begins. Raises CorruptRecord.
        """
        if self.config.index_interval_bytes <= _MOST_BETWEEN_ENTRIES or self.offset_index.is_full:
            return False
        positions = [0, *self.offset_index.positions(), self.log.size]
        gaps = nlargest(_GAPS_LOOKED_AT, pairwise(positions), key=lambda gap: gap[1] - gap[0])
        return any(self._lacks_entry(*gap) for gap in gaps)

    def _lacks_entry(self, start: int, end: int) -> bool:
        """Whether a batch begins before ``end``, the next entry's, and far behind ``start``, the last one's."""
        if end - start <= _NOTABLE_GAP:
            return False
        for batch in self.log.batches(start):
            if batch.end >= end:
                return False
            if batch.end - start > _NOTABLE_GAP:
                return True
        return False

    def index_anew(self) -> None:
        """Make the indexes from the batches' headers. Raises CorruptRecord, with nothing changed, where one is bad."""
        for _ in self.log.batches():
            pass
        self.adopt_indexes(b"", b"", TimestampOffset(NO_TIMESTAMP, self.base_offset), 0)
        for batch in self.log.batches():
            if batch.max_timestamp > self.latest.timestamp:
                self._latest = TimestampOffset(batch.max_timestamp, batch.last_offset)
            self._index(batch.last_offset, batch.position, batch.size)

    def adopt_indexes(self, offsets: bytes, times: bytes, latest: TimestampOffset, bytes_since_entry: int) -> None:
        """Take the packed entries of both indexes, which a scan of the file has made, in place of what they held."""
        self._sealed = False
        self.offset_index.replace(offsets)
        self.time_index.replace(times)
        self._latest = latest
        self._lacks_times = False
        self._bytes_since_index_entry = bytes_since_entry
        self.time_index.maybe_append(*latest, beyond_full=True)

    def truncate_to(self, offset: int) -> None:
        """Drop every batch that holds ``offset`` or lies beyond it."""
        position = self.position_after(offset)
        self.log.truncate(position)
        if not position:
            self.first_timestamp = self.created_ms = None
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self._bytes_since_index_entry = 0
        self.load_latest()

    def finish_indexes(self) -> None:
        """Write what ``seal`` would, into files that are open already; appends may go on."""
        self.time_index.maybe_append(*self.latest, beyond_full=True)
        self.offset_index.cut()
        self.time_index.cut()

    def flush_before_seal(self) -> None:
        """What was appended, and the indexes as ``finish_indexes`` left them, are on the disk when this returns."""
        self.log.flush()
        self.flush_indexes()

    def seal(self, *, flushed: bool = False) -> None:
        """No more appends: write the last time entry and cut the indexes to their size.

        ``flushed``: nothing was appended since ``flush_before_seal``.
        """
        if not self._sealed:
            self.finish_indexes()
            self._indexes_flushed = flushed
            self._sealed = True  # last: a flush on another thread goes by it

    def reopen_for_append(self) -> None:
        """Make a sealed segment, or one whose sealing failed, the active one again."""
        self._sealed = False

    def flush(self) -> None:
        """What recovery needs of the segment is on the disk when this returns.

        Of an active segment that is the ``.log`` file: it is scanned after an unclean stop, and its indexes made anew.
        """
        self.log.flush()
        if self._sealed:
            self.flush_indexes()

    def flush_indexes(self) -> None:
        """All index entries are on the disk when this returns."""
        self.offset_index.flush()
        self.time_index.flush()
        self.txn_index.flush()
        self._indexes_flushed = True

    @property
    def awaits_index_flush(self) -> bool:
        """Whether the segment is sealed, and its indexes have not been flushed since."""
        return self._sealed and not self._indexes_flushed

    def close(self) -> None:
        """Seal, and let go of the indexes; the log file is let go with its last slice."""
        self.seal()
        self.offset_index.close()
        self.time_index.close()
        self.txn_index.close()

    @property
    def paths(self) -> list[Path]:
        """The files that it has."""
        return segment_paths(self.log.path.parent, self.base_offset)

    def delete_log(self) -> Path:
        """Take its name from the ``.log`` file, and with it the segment out of the log on the disk: see
        ``rename_deleted``. ``delete_indexes`` is to follow. If the disk refuses, nothing has changed.
        """
        return rename_deleted(self.log.path)

    def delete_indexes(self) -> Iterator[Path]:
        """Take their names from the other files, one after the other, once the ``.log`` is gone.

        One that the disk does not let go is removed by the next start, or when a segment is begun there.
        """
        self.offset_index.release()
        self.time_index.release()
        self.txn_index.close()
        for path in self.paths:
            yield rename_deleted(path)
