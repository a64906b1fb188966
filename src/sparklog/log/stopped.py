"""The partitions of a log directory as they lie on the disk, for readers without a broker. Nothing is written.

What is whole is found in the batches: the log ends after the last good one. After a clean stop headers are believed;
otherwise CRCs are checked in every segment at or beyond the recovery point, as a broker's start would, and a segment
behind damage is not the log's. Offset and time indexes are not used. Formats before version 2 are refused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from sparklog.errors import CorruptRecord, LogError
from sparklog.log.adoption import is_certain
from sparklog.log.checkpoints import LOG_START_OFFSETS, RECOVERY_POINTS, read_offsets, read_topic_id
from sparklog.log.file_records import BatchPosition, FileRecords
from sparklog.log.files import (
    CLEAN_SHUTDOWN_MARKER,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    files_with_suffix,
    find_base_offset,
    parse_partition_dir,
)
from sparklog.log.indexes.time_index import TimestampOffset
from sparklog.log.indexes.transaction_index import read_aborted
from sparklog.log.loader import Knowledge
from sparklog.log.producer_snapshot import read_snapshot
from sparklog.log.scan import scan_batches
from sparklog.log.search import first_record_from
from sparklog.log.segment import MAX_RELATIVE_OFFSET
from sparklog.record import layout
from sparklog.record.batch import RecordBatch
from sparklog.record.control import ControlType, read_marker
from sparklog.record.scanner import ScanLimits, make_scanner
from sparklog.structs import TopicPartition

_logger = logging.getLogger(__name__)


class WholeSegment(NamedTuple):
    """The first ``size`` bytes of a ``.log`` file are good."""

    base_offset: int
    records: FileRecords
    size: int

    def batches(self) -> Iterator[BatchPosition]:
        position = 0
        while position < self.size and (batch := self.records.batch_at(position)) is not None:
            yield batch
            position = batch.end


class Piece(NamedTuple):
    """Bytes of one file that hold the offsets of a range; batches at its ends may hold others besides."""

    records: FileRecords
    start: int
    end: int


class Aborted(NamedTuple):
    """An aborted transaction, and the offset of its marker."""

    producer_id: int
    first_offset: int
    marker: int


class Decisions(NamedTuple):
    """How transactions ended: nothing at or beyond ``last_stable_offset`` is decided."""

    last_stable_offset: int
    aborted: list[Aborted]

    def overlapping(self, start: int, end: int) -> list[tuple[int, int]]:
        """Producer and first offset of those with records in ``start`` ≤ o < ``end``."""
        found = (each for each in self.aborted if each.marker >= start and each.first_offset < end)
        return [(each.producer_id, each.first_offset) for each in found]


class StoppedPartition:
    """One partition directory; looked at when first asked, and not again."""

    def __init__(self, directory: Path, known: Knowledge) -> None:
        self.directory = directory
        self._known = known

    @property
    def topic_id(self) -> UUID | None:
        """Raises CorruptRecord if it cannot be read."""
        return read_topic_id(self.directory)

    @cached_property
    def _files(self) -> list[tuple[int, Path]]:
        return segment_files(self.directory, (LOG_SUFFIX,))

    @cached_property
    def segments(self) -> list[WholeSegment]:
        """From the first on, as far as they are whole.

        Raises LogError where a file cannot be read, or only a broker can say what belongs to the log.
        """
        found: list[WholeSegment] = []
        afters = [*(base for base, _ in self._files[1:]), None]
        for (base, path), after in zip(self._files, afters, strict=True):
            records = _open(path)
            try:
                size = self._whole_size(records, base, after)
            except OSError as error:
                raise _unreadable(path, error) from error
            found.append(WholeSegment(base, records, size))
            if size < records.size:
                self._warn(path, records.size - size, is_last=after is None)
                break
        return found

    def _warn(self, path: Path, dropped: int, *, is_last: bool) -> None:
        also = "" if is_last else ", and the segments behind it with them"
        _logger.warning("%s: the last %d bytes are no whole batches; they are not read%s", path, dropped, also)

    def _whole_size(self, records: FileRecords, base: int, after: int | None) -> int:
        is_due = not self._known.clean and (after is None or after > self._known.recovery_point)
        if not is_due and after is not None:
            return records.size
        if not is_due:
            try:
                return max((batch.end for batch in records.batches()), default=0)
            except CorruptRecord:
                pass
        limit = base + MAX_RELATIVE_OFFSET + 1 if after is None else after
        scanner = make_scanner(ScanLimits(base, limit, records.size + 1, 0, 0))
        scan_batches(records, scanner, lambda _: None)
        return scanner.position

    @cached_property
    def end_offset(self) -> int:
        """One past the last offset."""
        if not self.segments:
            return self._known.log_start_offset
        last = self.segments[-1]
        return max((batch.last_offset + 1 for batch in last.batches()), default=last.base_offset)

    @property
    def start_offset(self) -> int:
        first = self.segments[0].base_offset if self.segments else 0
        return min(max(self._known.log_start_offset, first), self.end_offset)

    @property
    def bytes_per_offset(self) -> float:
        """On average, at least 1."""
        offsets = self.end_offset - self.start_offset
        return max(sum(each.size for each in self.segments) / offsets, 1.0) if offsets else 1.0

    def pieces(self, start: int, end: int) -> list[Piece]:
        """The bytes that hold ``start`` ≤ o < ``end``, which are known to be whole: nothing beyond is looked at."""
        files = [each for each in self._files if each[0] < end]
        skipped = max(sum(base <= start for base, _ in files) - 1, 0)
        found = []
        for base, path in files[skipped:]:
            records = _open(path)
            is_edge = base < start or path == files[-1][1]
            piece = _piece(records, start, end) if is_edge else Piece(records, 0, records.size)
            if piece.end > piece.start:
                found.append(piece)
        return found

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record no earlier than ``timestamp`` (ms); None if all are earlier."""
        start = self.start_offset
        for segment in self.segments:
            for found in segment.batches():
                if found.max_timestamp >= timestamp and found.last_offset >= start:
                    batch = RecordBatch(segment.records.read(found.position, found.size))
                    record = first_record_from(batch, timestamp, start)
                    if record is not None:
                        return record
        return None

    @cached_property
    def decisions(self) -> Decisions:
        """From the newest snapshot that can be believed, the transaction indexes before it and the batches after it."""
        start, undecided = self._snapshot()
        try:
            aborted = [each for each in self._indexed() if each.marker < start]
        except CorruptRecord as error:
            _logger.warning("%s; the batches are looked at instead", error)
            start, undecided, aborted = 0, {}, []
        for batch in self._transactional_batches(start):
            if not batch.is_control:
                undecided.setdefault(batch.producer_id, batch.base_offset)
            elif batch.record_count:
                first = undecided.pop(batch.producer_id, None)
                if first is not None and read_marker(batch).type is ControlType.ABORT:
                    aborted.append(Aborted(batch.producer_id, first, batch.base_offset))
        return Decisions(max(min([self.end_offset, *undecided.values()]), self.start_offset), aborted)

    def _snapshot(self) -> tuple[int, dict[int, int]]:
        """From where batches are to be looked at, and the first offsets of the transactions open there, by producer."""
        limit = self._believed_up_to()
        paths = [path for path in self.directory.glob(f"*{SNAPSHOT_SUFFIX}") if find_base_offset(path) is not None]
        for path in sorted(paths, reverse=True):
            offset = find_base_offset(path) or 0
            if offset <= limit:
                try:
                    entries = read_snapshot(path).values()
                except CorruptRecord as error:
                    _logger.warning("%s; an older one is used, or the batches", error)
                    continue
                return offset, {e.producer_id: e.transaction_first_offset for e in entries if e.in_transaction}
        return 0, {}

    def _believed_up_to(self) -> int:
        """Snapshots and transaction indexes beyond the recovery point may miss what a crash took."""
        if self._known.clean:
            return self.end_offset
        bases = [segment.base_offset for segment in self.segments]
        return max([base for base in bases if base <= self._known.recovery_point], default=0)

    def _indexed(self) -> Iterator[Aborted]:
        for segment in self.segments:
            path = segment.records.path.with_suffix(TRANSACTION_INDEX_SUFFIX)
            if path.exists():
                for each in read_aborted(path):
                    yield Aborted(each.producer_id, each.first_offset, each.last_offset)

    def _transactional_batches(self, start: int) -> Iterator[RecordBatch]:
        """Those at or beyond ``start``, of data the header only."""
        for number, segment in enumerate(self.segments):
            if number + 1 < len(self.segments) and self.segments[number + 1].base_offset <= start:
                continue
            for found in segment.batches():
                if found.producer_id >= 0 and found.base_offset >= start:
                    batch = _head_or_marker(segment.records, found)
                    if batch.is_transactional:
                        yield batch


def segment_files(directory: Path, suffixes: Iterable[str]) -> list[tuple[int, Path]]:
    """The files with these suffixes by their base offsets.

    Raises LogError where only a broker can say what belongs to the log, or the directory cannot be listed.
    """
    try:
        if files_with_suffix(directory, LOG_SUFFIX + SWAP_SUFFIX):
            raise LogError(f"{directory}: a swap of segments was interrupted; a start of its broker finishes it")
        if is_certain(directory):
            raise LogError(f"{directory}: segments were being adopted; a start of its broker finishes that")
        paths = [path for suffix in suffixes for path in files_with_suffix(directory, suffix)]
    except OSError as error:
        raise _unreadable(directory, error) from error
    return sorted((base, path) for path in paths if (base := find_base_offset(path)) is not None)


def log_starts(log_dir: Path) -> dict[TopicPartition, int]:
    """Where the partitions of a log directory begin: what their files have before was deleted. None are known of a
    directory that is no broker's. Raises OSError, CorruptRecord.
    """
    return read_offsets(log_dir / LOG_START_OFFSETS)


def _open(path: Path) -> FileRecords:
    try:
        return FileRecords(path, writable=False)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> LogError:
    return LogError(f"cannot read {path}: {error.strerror}")


def _piece(records: FileRecords, start: int, end: int) -> Piece:
    """What a file has of a range, which it need not have all of."""
    first, last = records.size, 0
    for batch in records.batches():
        if batch.base_offset >= end:
            break
        if batch.last_offset >= start:
            first, last = min(first, batch.position), batch.end
        if batch.last_offset >= end - 1:
            break
    return Piece(records, first, last)


def _head_or_marker(records: FileRecords, found: BatchPosition) -> RecordBatch:
    (attributes,) = layout.INT16.unpack(records.read(found.position + layout.ATTRIBUTES, layout.INT16.size))
    if attributes & layout.CONTROL_BIT:
        return RecordBatch(records.read(found.position, found.size))
    head = bytearray(records.read(found.position, layout.HEADER_SIZE))
    layout.OFFSET_AND_LENGTH.pack_into(head, 0, found.base_offset, layout.HEADER_SIZE - layout.LOG_OVERHEAD)
    return RecordBatch(head)


def stopped_partitions(log_dir: Path) -> dict[TopicPartition, StoppedPartition]:
    """The partitions of a log directory. Raises OSError if it cannot be read, CorruptRecord for a broken checkpoint."""
    clean = (log_dir / CLEAN_SHUTDOWN_MARKER).exists()
    points, starts = read_offsets(log_dir / RECOVERY_POINTS), log_starts(log_dir)
    found = {}
    for path in sorted(log_dir.iterdir()):
        tp = parse_partition_dir(path.name) if path.is_dir() else None
        if tp is not None:
            known = Knowledge(points.get(tp, 0), starts.get(tp, 0), clean and tp in points)
            found[tp] = StoppedPartition(path, known)
    return found
