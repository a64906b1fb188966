"""Segments that another process has built, taken into the log whole: behind its end, in one step.

The builder leaves ``.log`` files beside the log's own, under names of which a start makes nothing (``offer_path``).
What the log relies on is found out here: every batch is looked into, and the indexes are made from what was found.

Invariants:
1. After a crash at any step the log has all segments of an offer or none of them.
2. A segment has its final name only when the one before it has. So no crash leaves a hole, whoever opens the log.
3. Nothing is certain before all below the offer's first offset is on the disk.
4. Until it is certain a refusal changes nothing, and no file of the offer is left. What is certain is finished: by the
   next start, where the disk fails half way.

The steps: (a) the files are complete and synced; (b) the file ``ADOPTION``, which names them, is written: from here on
it is certain; (c) each gets its final name, the first segment first, the indexes of a segment before its ``.log``;
(d) ``ADOPTION`` is removed. The first segment takes the place of the active one, which is empty by then.

It is not a swap (``swap``): that is undone where another rewrite of the log has left files, and an adoption that is
half done would be undone with it. The log's part: ``Log.hold``, ``Log.take_adopted``; whole: ``docs/adr/0033``.
"""

from __future__ import annotations

import logging
import stat
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, CorruptRecord, ErrorCode, LogDirFailed, LogError
from sparklog.log.checkpoints import read_checkpoint, whole_number, write_checkpoint
from sparklog.log.file_records import BatchPosition, FileRecords
from sparklog.log.files import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    disk_refused,
    files_with_suffix,
    offered_suffix,
    remove_files,
    segment_path,
    sync_directory,
    sync_file,
    write_all,
)
from sparklog.log.indexes.offset_index import OffsetIndex
from sparklog.log.indexes.time_index import TimeIndex
from sparklog.log.indexes.transaction_index import AbortedTransaction, TransactionIndex
from sparklog.log.producer_snapshot import REMEMBERED_BATCHES
from sparklog.log.producer_state import ProducerStateManager
from sparklog.log.scan import scan_batches
from sparklog.log.segment import LogSegment, index_interval
from sparklog.log.validator import validate_adopted, validate_restored
from sparklog.record import layout
from sparklog.record.batch import RecordBatch, increment_sequence
from sparklog.record.scanner import ScanLimits, make_scanner

_logger = logging.getLogger(__name__)

_BATCHES_A_TURN = 20
"""To look into so many small ones takes less than a millisecond."""
ADOPTION = "adoption-checkpoint"
"""A line a segment: the tag, the offset in the name of the offered file, the offset in its final name."""


class Offer(NamedTuple):
    """The segments that are to be adopted together."""

    tag: str
    """Letters and digits, in the files' names; never used before."""
    bases: tuple[int, ...]
    """Of the segments, rising. Where the log gives the offsets they count from 0."""
    end_offset: int
    """One past the last offset."""


def offer_path(directory: Path, base: int, tag: str) -> Path:
    """Where the ``.log`` file of a segment is to be written. Raises LogError for a tag that cannot be one."""
    return segment_path(directory, base, LOG_SUFFIX + offered_suffix(tag))


def is_certain(directory: Path) -> bool:
    """Whether an adoption is under way that the next start is to finish: none of the files may go. Raises OSError."""
    return (directory / ADOPTION).exists()


class Adoption(ABC):
    """One offer, looked at and put in place. ``check``, ``prepare`` and ``commit`` on any one thread, in this order.

    Subclasses say which batches a log takes and what is known of their producers afterwards.
    """

    def __init__(self, directory: Path, offer: Offer, config: TopicConfig, now_ms: int) -> None:
        """Raises ApiError(INVALID_REQUEST) for an offer that can be none, LogError for a tag that cannot be one."""
        ends = (*offer.bases[1:], offer.end_offset)
        if not offer.bases or any(first >= end for first, end in zip(offer.bases, ends, strict=True)):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"no segments begin at {list(offer.bases)} before {ends[-1]}")
        self.offer = offer
        self.segments: tuple[LogSegment, ...] = ()
        """Open, once they are in place."""
        self.epochs: list[tuple[int, int]] = []
        """Leader epochs, and the first offset of each, once the offer is prepared."""
        self.prepared_for: tuple[int, int] | None = None
        """The offset and the leader epoch that the files bear."""
        self.record_count = 0
        self.nbytes = 0
        """Of the batches that were looked into."""
        self._directory = directory
        self._config = config
        self._now_ms = now_ms
        self._suffix = offered_suffix(offer.tag)
        self._may_have_holes = False  # between the end of a segment and the next
        self._first = offer.bases[0]  # the offset that the files have for the first record, as they are now

    @property
    def base_offset(self) -> int:
        """Of the first record, as the files have it now."""
        return self._first

    @property
    def end_offset(self) -> int:
        """One past the last offset, as the files have it now."""
        return self._first + self.offer.end_offset - self.offer.bases[0]

    @property
    def leader_epoch(self) -> int:
        """In which it was prepared."""
        assert self.prepared_for is not None, "prepare comes first"
        return self.prepared_for[1]

    # Looking

    def check(self) -> None:
        """Look into every batch, and write the indexes.

        Raises ApiError, which names file and position: what Produce answers to such a batch, and CORRUPT_MESSAGE;
        OSError for a file that is missing, is none, or cannot be read.
        """
        for base, end in pairwise((*self.offer.bases, self.offer.end_offset)):
            self._check_segment(base, end)

    def _check_segment(self, base: int, end: int) -> None:
        path = self._path(base, LOG_SUFFIX)
        if not stat.S_ISREG(path.lstat().st_mode):
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{path} is no file")
        log = FileRecords(path, writable=False)
        if log.size > self._config.segment_bytes:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{path} has {log.size} bytes, more than segment.bytes={self._config.segment_bytes}",
            )
        self._make_indexes(log, base, end)
        aborted = list(self._look_into(log))
        transactions = TransactionIndex(self._path(base, TRANSACTION_INDEX_SUFFIX), base)
        for each in aborted:
            transactions.append(each)
        transactions.close()

    def _make_indexes(self, log: FileRecords, base: int, end: int) -> None:
        largest = self._config.segment_index_bytes
        most = largest // OffsetIndex.FORM.size, largest // TimeIndex.FORM.size - 1
        scanner = make_scanner(ScanLimits(base, end, index_interval(self._config), *most))
        scan_batches(log, scanner, lambda _: None)
        if scanner.position != log.size:
            raise _refusal(log, scanner.position, ErrorCode.CORRUPT_MESSAGE, "no whole batch that belongs there")
        if scanner.next_offset != end and (end == self.offer.end_offset or not self._may_have_holes):
            raise _refusal(
                log, log.size, ErrorCode.INVALID_RECORD, f"it ends before offset {scanner.next_offset}, not {end}"
            )
        offsets, times = scanner.entries()
        last = TimeIndex.FORM.unpack(times[-TimeIndex.FORM.size :])[0] if times else -1
        if scanner.latest_timestamp > last:  # the entry that a segment gets when it is complete
            times += TimeIndex.FORM.pack(scanner.latest_timestamp, scanner.latest_offset - base)
        self._path(base, OFFSET_INDEX_SUFFIX).write_bytes(offsets)
        self._path(base, TIME_INDEX_SUFFIX).write_bytes(times)

    def _look_into(self, log: FileRecords) -> Iterator[AbortedTransaction]:
        for found in _in_turns(log.batches()):
            batch = RecordBatch(log.read(found.position, found.size))
            try:
                aborted = self._take(batch)
            except ApiError as error:
                raise _refusal(log, found.position, error.code, error.reason) from error
            except CorruptRecord as error:
                raise _refusal(log, found.position, ErrorCode.CORRUPT_MESSAGE, str(error)) from error
            self.record_count += batch.record_count
            self.nbytes += found.size
            if aborted is not None:
                yield aborted

    @abstractmethod
    def _take(self, batch: RecordBatch) -> AbortedTransaction | None:
        """Note the batch, and the transaction that it aborts. Raises ApiError, CorruptRecord."""

    # Putting in place

    def prepare(self, base_offset: int, leader_epoch: int) -> None:
        """Have the files say what they are to say in a log that ends at ``base_offset``; durable on return.

        It may be called again. Raises DiskFull, LogDirFailed.
        """
        try:
            self._patch(base_offset, leader_epoch)
            for path in self._files():
                sync_file(path)
            sync_directory(self._directory)
        except OSError as error:
            raise disk_refused(f"cannot prepare segments for {self._directory}", error) from error
        self.prepared_for = base_offset, leader_epoch

    @abstractmethod
    def _patch(self, base_offset: int, leader_epoch: int) -> None:
        """Write offsets and leader epochs into the batches. Raises OSError."""

    def commit(self) -> None:
        """Put the files in place, and open the segments; durable on return. The log below is on the disk already.

        Raises LogDirFailed: where it is a DiskFull nothing has changed, else the next start settles it.
        """
        shift = self._first - self.offer.bases[0]
        entries = [(self.offer.tag, base, base + shift) for base in self.offer.bases]
        try:
            write_checkpoint(self._directory / ADOPTION, entries)
        except OSError as error:
            self._call_off()
            raise disk_refused(f"cannot adopt segments in {self._directory}", error) from error
        try:
            _finish(self._directory, entries)
            self.segments = tuple(LogSegment(self._directory, base, self._config, active=False) for *_, base in entries)
            for segment in self.segments:
                segment.load_latest()
        except (OSError, CorruptRecord) as error:  # what is certain must not be forgotten
            raise LogDirFailed(f"cannot adopt segments in {self._directory}: {error}") from error

    def _call_off(self) -> None:
        """The file that makes it certain may have been written before the disk refused."""
        try:
            (self._directory / ADOPTION).unlink(missing_ok=True)
            sync_directory(self._directory)
        except OSError as error:
            raise LogDirFailed(f"cannot call off an adoption in {self._directory}: {error}") from error

    def discard(self) -> None:
        """Remove what is left of the offer, unless it is certain: then the next start needs it. What the disk does not
        let go is removed by the next start.
        """
        with suppress(OSError):
            if not is_certain(self._directory):
                remove_files(self._files())

    def _files(self) -> list[Path]:
        return files_with_suffix(self._directory, self._suffix)

    def _path(self, base: int, kind: str) -> Path:
        return segment_path(self._directory, base, kind + self._suffix)

    @abstractmethod
    def note_producers(self, known: ProducerStateManager) -> None:
        """Bring what is ``known`` at the first offset to what is known at the end."""


class AppendAdoption(Adoption):
    """Batches of one transaction that get the next offsets: as if its producer had sent them, one after the other.

    Their offsets count from 0 in the files, and so do those in the names. Raises ApiError for an offer that begins at
    another offset, and for a topic that gives records its own time.
    """

    def __init__(self, directory: Path, offer: Offer, config: TopicConfig, now_ms: int) -> None:
        super().__init__(directory, offer, config, now_ms)
        if offer.bases[0] != 0:
            raise ApiError(ErrorCode.INVALID_REQUEST, "what is to be given offsets counts from 0")
        if config.message_timestamp_type != "CreateTime":
            raise ApiError(
                ErrorCode.INVALID_TIMESTAMP,
                "the topic gives records its own time (message.timestamp.type=LogAppendTime); segments keep theirs",
            )
        self._first_batch: RecordBatch | None = None
        self._last_batches: deque[RecordBatch] = deque(maxlen=REMEMBERED_BATCHES)
        self._next_offset = 0

    @property
    def first_batch(self) -> RecordBatch:
        """By which the log decides whether the producer may write."""
        assert self._first_batch is not None, "check comes first"
        return self._first_batch

    def _take(self, batch: RecordBatch) -> AbortedTransaction | None:
        validate_adopted(batch, self._config, self._now_ms)
        if batch.base_offset != self._next_offset:
            raise ApiError(ErrorCode.INVALID_RECORD, f"offset {batch.base_offset} where {self._next_offset} is due")
        self._check_producer(batch)
        self._next_offset = batch.next_offset
        if self._first_batch is None:
            self._first_batch = batch
        self._last_batches.append(batch)
        return None

    def _check_producer(self, batch: RecordBatch) -> None:
        before = self._last_batches[-1] if self._last_batches else None
        if not batch.is_transactional:
            raise ApiError(ErrorCode.INVALID_RECORD, "a batch outside a transaction: nobody could take it back")
        if before is None:
            return
        producer, due = (before.producer_id, before.producer_epoch), increment_sequence(before.last_sequence, 1)
        if (batch.producer_id, batch.producer_epoch) != producer:
            raise ApiError(ErrorCode.INVALID_RECORD, "a batch of another producer, or another epoch, than the first")
        if batch.base_sequence != due:
            raise ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"sequence {batch.base_sequence} where {due} is due")

    def _patch(self, base_offset: int, leader_epoch: int) -> None:
        shift = base_offset - self._first
        for base in self.offer.bases:
            log = FileRecords(self._path(base, LOG_SUFFIX))
            for found in _in_turns(log.batches()):
                _write_header(log, found.position, found.base_offset + shift, leader_epoch)
        for batch in {id(each): each for each in (self.first_batch, *self._last_batches)}.values():
            batch.base_offset += shift
        self._first = base_offset
        self.epochs = [(leader_epoch, base_offset)]

    def note_producers(self, known: ProducerStateManager) -> None:
        """Of those between nothing is remembered."""
        if self.first_batch not in self._last_batches:
            known.update(self.first_batch, self._now_ms)
        for batch in self._last_batches:
            known.update(batch, self._now_ms)


class RestoreAdoption(Adoption):
    """Batches that keep their offsets, producers and markers, as a follower takes them from its leader.

    Leader epochs are kept too, but none above the partition's own: in a log epochs never fall, and what is written next
    bears the partition's.
    """

    def __init__(
        self, directory: Path, offer: Offer, config: TopicConfig, now_ms: int, known: ProducerStateManager
    ) -> None:
        """``known`` is what is known of the producers at the first offset; it is changed here, and by nobody else."""
        super().__init__(directory, offer, config, now_ms)
        self._known = known
        self._may_have_holes = "compact" in config.cleanup_policy
        self._found_epochs: list[tuple[int, int]] = []

    def _take(self, batch: RecordBatch) -> AbortedTransaction | None:
        validate_restored(batch)
        latest = self._found_epochs[-1][0] if self._found_epochs else -1
        if batch.partition_leader_epoch < latest:
            raise ApiError(
                ErrorCode.INVALID_RECORD, f"leader epoch {batch.partition_leader_epoch} behind a batch of {latest}"
            )
        if batch.partition_leader_epoch > latest:
            self._found_epochs.append((batch.partition_leader_epoch, batch.base_offset))
        return self._known.update(batch, self._now_ms)

    def _patch(self, base_offset: int, leader_epoch: int) -> None:
        assert base_offset == self._first, "their offsets are theirs"
        for base in self.offer.bases:
            log = FileRecords(self._path(base, LOG_SUFFIX))
            for found in _in_turns(log.batches()):
                if found.leader_epoch > leader_epoch:
                    _write_header(log, found.position, found.base_offset, leader_epoch)
        self.epochs = [(min(epoch, leader_epoch), first) for epoch, first in self._found_epochs]

    def note_producers(self, known: ProducerStateManager) -> None:
        known.take_over(self._known)
        known.end_offset = self.end_offset


def _in_turns(batches: Iterator[BatchPosition]) -> Iterator[BatchPosition]:
    """The batches; threads that wait for the interpreter have it in between, however small the batches are."""
    for number, found in enumerate(batches, 1):
        yield found
        if not number % _BATCHES_A_TURN:
            time.sleep(0)


def _write_header(log: FileRecords, position: int, base_offset: int, leader_epoch: int) -> None:
    """Both lie outside the CRC."""
    write_all(log.fileno(), layout.INT64.pack(base_offset), position + layout.BASE_OFFSET)
    write_all(log.fileno(), layout.INT32.pack(leader_epoch), position + layout.PARTITION_LEADER_EPOCH)


def _refusal(log: FileRecords, position: int, code: ErrorCode, why: str) -> ApiError:
    return ApiError(code, f"{log.path} at position {position}: {why}")


def _finish(directory: Path, entries: list[tuple[str, int, int]]) -> None:
    """Steps (c) and (d); doing them twice is doing them once."""
    for tag, offered, base in entries:
        for kind in (*INDEX_SUFFIXES, LOG_SUFFIX):
            path = segment_path(directory, offered, kind + offered_suffix(tag))
            if path.exists():
                path.rename(segment_path(directory, base, kind))
    sync_directory(directory)
    (directory / ADOPTION).unlink()
    sync_directory(directory)


def finish_interrupted_adoption(directory: Path) -> None:
    """Finish what a crash left half done; before anything else is looked at in the directory.

    Raises LogError where ``ADOPTION`` cannot be read: a person is to decide.
    """
    path = directory / ADOPTION
    try:
        entries = [(tag, whole_number(offered), whole_number(base)) for tag, offered, base in read_checkpoint(path, 3)]
    except (CorruptRecord, ValueError) as error:
        raise LogError(f"{path} cannot be read, so that an adoption is neither finished nor undone: {error}") from error
    if entries:
        _logger.warning("%s: segments were being adopted from offset %d on; that is finished", directory, entries[0][2])
        _finish(directory, entries)
