"""What a partition knows of its producers: which batches it has had, and which transactions are undecided.

Invariants: for each producer id the log holds batches of one epoch after another, their sequences without gap or
repetition within an epoch; the last five batches are remembered, so a producer with five requests in flight may send
any of them again and is given the offsets of the first time, also behind a restart (``producer_snapshot``), and also
when their segments were deleted meanwhile. A transaction is *ongoing* from its first batch to its
marker, and *unreplicated* from there until the high watermark passes the marker; the first offset of the oldest of
either is the first unstable offset, which no read_committed reader may reach.

The state is a function of the log. A snapshot is only a shortcut, written when a segment is rolled, when one was
recovered and when the log is closed; there is one a segment, so that a truncation need not replay the log from its
start. Where many producers are remembered, that of a roll is written in the background; no segment before it is deleted
until it is there. Source: Kafka 3.9, ``ProducerStateManager``, ``ProducerAppendInfo``.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable
from heapq import heappop, heappush
from pathlib import Path
from typing import NamedTuple

from sparklog.errors import ApiError, CorruptRecord, ErrorCode
from sparklog.log.files import SNAPSHOT_SUFFIX, base_offset_of, files_with_suffix, segment_path, write_atomically
from sparklog.log.indexes.transaction_index import AbortedTransaction
from sparklog.log.origin import AppendOrigin
from sparklog.log.producer_snapshot import (
    NO_COORDINATOR,
    NO_MARKER,
    NO_TRANSACTION,
    REMEMBERED_BATCHES,
    BatchMetadata,
    ProducerEntry,
    encode_snapshot,
    encoding_snapshot,
    read_snapshot,
)
from sparklog.record.batch import RecordBatch, increment_sequence
from sparklog.record.control import ControlType, EndTransactionMarker, read_marker
from sparklog.record.layout import MAX_INT32, NO_PRODUCER_ID

_logger = logging.getLogger(__name__)

_STEP_MS = 1000
"""A wall clock that has gone so much further than time has was set."""
_AT_ONCE = 1000
"""Producers: to write what is remembered of so many takes some milliseconds."""
EXPIRATION_MS = 86_400_000
"""How long a producer that writes nothing is remembered, unless ``producer.id.expiration.ms`` says otherwise."""
_LIKEWISE_MS = 120_000
"""How long what comes behind a refused batch is refused as that one was: as long as Java's producer tries by default
(``delivery.timeout.ms``). A batch that has not come again by then may never come."""


class _Awaited(NamedTuple):
    """The first batch of a producer that may come again, what it was refused with, and when."""

    epoch: int
    sequence: int
    code: ErrorCode
    refused_ms: int

    def is_before(self, batch: RecordBatch) -> bool:
        """Whether ``batch`` is to be written behind this one."""
        return batch.producer_epoch == self.epoch and _is_behind(batch.base_sequence, self.sequence)


class Before(NamedTuple):
    """What was known before some batches, of the producers of them."""

    end_offset: int
    entries: dict[int, ProducerEntry | None]
    awaited: dict[int, _Awaited]


class _Unwritten:
    """A snapshot that is written in steps."""

    def __init__(self, offset: int, entries: Collection[ProducerEntry]) -> None:
        self.offset = offset
        self._entries = tuple(entries)
        self._steps = encoding_snapshot(self._entries)

    def step(self) -> bytearray | None:
        """The file's bytes, after the last step; that may be called again."""
        try:
            next(self._steps)
        except StopIteration as end:
            self._steps = encoding_snapshot(self._entries)
            data: bytearray = end.value
            return data
        return None


class ProducerStateManager:
    """The producers of one partition, up to ``end_offset``.

    One thread changes it. Another may write snapshots, of what does not change any more.
    """

    def __init__(self, directory: Path, expiration_ms: int = EXPIRATION_MS) -> None:
        self._directory = directory
        self.expiration_ms = expiration_ms
        self._epoch_ms: int | None = None  # by the wall clock that the times here are of: where the monotonic one began
        self._producers: dict[int, ProducerEntry] = {}
        self._awaited: dict[int, _Awaited] = {}  # of producers of which nothing was written since
        self._aborted: set[int] = set()  # producers whose last marker, of those seen since a start, aborted
        self._repeated: dict[int, tuple[int, int]] = {}  # producer id → epoch and least sequence: see _check_beginning
        self._ongoing: OrderedDict[int, int] = OrderedDict()  # first offset → producer id, in order of the offsets
        self._unreplicated: OrderedDict[int, int] = OrderedDict()  # first offset → offset of the marker, in their order
        self._unreplicated_firsts: list[int] = []  # a heap of its keys, and of some that it has no more
        self._high_watermark = 0
        self.end_offset = 0
        self.first_unstable_offset: int | None = None
        self._snapshot_offset = 0
        self._unwritten: list[_Unwritten] = []  # the first one may be under way
        self._has_writer = False
        self._noting = threading.Lock()  # held for moments
        self._writing = threading.Lock()  # held while a file is written; taken before the other

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def entries(self) -> Collection[ProducerEntry]:
        return self._producers.values()

    def check(
        self, batch: RecordBatch, now_ms: int, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> BatchMetadata | None:
        """Whether ``batch`` may be appended: None if so, the remembered batch if it has been already.

        Raises ApiError: INVALID_PRODUCER_EPOCH for an epoch older than the newest, OUT_OF_ORDER_SEQUENCE_NUMBER for a
        sequence that does not follow (behind a batch that was refused: what that one was told), INVALID_TXN_STATE for a
        record outside its producer's open transaction, TRANSACTION_COORDINATOR_FENCED for a marker of a coordinator
        that has been replaced. INVALID_PRODUCER_EPOCH also for a raised marker that comes late, when the next
        transaction is open.
        """
        if batch.producer_id <= NO_PRODUCER_ID:
            return None
        entry = self._producers.get(batch.producer_id)
        if entry is None:
            self._check_awaited(batch, now_ms)
            return None
        if origin is AppendOrigin.CLIENT:
            repeated = entry.repeated(batch)
            if repeated is not None:
                self._note_repeated(entry, batch)
                return repeated
        _check_epoch(entry, batch)
        if batch.is_control:
            _check_coordinator(entry, read_marker(batch))
            if origin is AppendOrigin.RAISED_MARKER and entry.in_transaction and batch.producer_epoch == entry.epoch:
                raise ApiError(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"a marker of epoch {entry.epoch} comes late: producer {entry.producer_id} writes under that epoch",
                )
        else:
            if origin is AppendOrigin.CLIENT:
                self._check_sequence(entry, batch, now_ms)
            if entry.in_transaction and not batch.is_transactional:
                raise ApiError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"producer {entry.producer_id} writes outside the transaction that it has open",
                )
        return None

    def _check_awaited(self, batch: RecordBatch, now_ms: int) -> None:
        awaited = self._awaited.get(batch.producer_id)
        if awaited is not None and not batch.is_control and awaited.is_before(batch):
            raise self._out_of_order(batch, awaited.sequence, now_ms)

    def _check_sequence(self, entry: ProducerEntry, batch: RecordBatch, now_ms: int) -> None:
        new_epoch = batch.producer_epoch > entry.epoch
        due = 0 if new_epoch else increment_sequence(entry.last_sequence, 1)
        if batch.base_sequence != due:
            raise self._out_of_order(batch, due, now_ms)
        if self._repeated and not entry.in_transaction:
            self._check_beginning(batch)

    def _note_repeated(self, entry: ProducerEntry, batch: RecordBatch) -> None:
        """A batch that is in the log came again, for ``_check_beginning``. After a commit it is only late: its producer
        had all the answers before."""
        if entry.in_transaction or entry.producer_id not in self._aborted or not batch.is_transactional:
            return
        epoch, sequence = batch.producer_epoch, batch.base_sequence
        known = self._repeated.get(batch.producer_id)
        self._repeated[batch.producer_id] = (
            known if known is not None and known[0] == epoch and _is_behind(sequence, known[1]) else (epoch, sequence)
        )

    def _check_beginning(self, batch: RecordBatch) -> None:
        """A transaction does not begin behind a batch that is in the log as one of a transaction that was aborted.

        The producer counts that one among the records of its new transaction, for it was answered as one that is
        written (librdkafka, which aborts while the answers of its last batches are out, gives their sequences again).
        So does Kafka (3.9, ``ProducerAppendInfo.checkSequence``); else the new transaction would be committed in part.
        """
        repeated = self._repeated.get(batch.producer_id)
        if (
            repeated is not None
            and repeated[0] == batch.producer_epoch
            and _is_behind(batch.base_sequence, repeated[1])
        ):
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {batch.producer_id} begins a transaction with sequence {batch.base_sequence}, and sent"
                f" {repeated[1]} for it, which is in the log as one of a transaction that was aborted",
            )

    def _out_of_order(self, batch: RecordBatch, due: int, now_ms: int) -> ApiError:
        """What a gap is answered. Behind a batch that is to come again, what that one was told: it is no fault of the
        producer's, which had sent both.

        librdkafka takes OUT_OF_ORDER_SEQUENCE_NUMBER for a reason to raise its epoch. Then it sends anew what it has
        in flight to other partitions, where that may be written already (its issue 4953). Kafka answers alike to all
        that were in flight where its disk has failed (3.9, ``LocalLog.maybeHandleIOException``).
        """
        gap = f"producer {batch.producer_id} sends sequence {batch.base_sequence} where {due} is due"
        awaited = self._awaited.get(batch.producer_id)
        if awaited is None or not awaited.is_before(batch) or not 0 <= now_ms - awaited.refused_ms < _LIKEWISE_MS:
            return ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, gap)
        return ApiError(awaited.code, f"{gap}: {awaited.sequence} was refused and is to come again")

    def refused(self, batch: RecordBatch, code: ErrorCode, now_ms: int) -> None:
        """A producer was told by ``code`` to send ``batch`` again: its later ones must not come before it.

        Any sequence of an unknown producer could be the next of a batch that was deleted. Then the refused one could
        never be written any more.
        """
        if batch.producer_id <= NO_PRODUCER_ID:
            return
        awaited = self._awaited.get(batch.producer_id)
        if awaited is None or (batch.producer_epoch >= awaited.epoch and not awaited.is_before(batch)):
            self._awaited[batch.producer_id] = _Awaited(batch.producer_epoch, batch.base_sequence, code, now_ms)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer of this epoch has written to the partition since its last marker."""
        entry = self._producers.get(producer_id)
        return entry is not None and entry.in_transaction and entry.epoch == epoch

    def last_marker(self, producer_id: int) -> int:
        """The offset of the producer's last marker since the log was opened; -1 if there is none."""
        entry = self._producers.get(producer_id)
        return NO_MARKER if entry is None else entry.last_marker_offset

    def coordinator_epoch(self, producer_id: int) -> int:
        """What the producer's last marker says; -1 if there is none."""
        entry = self._producers.get(producer_id)
        return NO_COORDINATOR if entry is None else entry.coordinator_epoch

    def disbelieve_coordinator(self, producer_id: int) -> None:
        """The epoch in the producer's last marker counts no more."""
        entry = self._producers.get(producer_id)
        if entry is not None:
            self._producers[producer_id] = entry._replace(coordinator_epoch=NO_COORDINATOR)

    def update(self, batch: RecordBatch, now_ms: int) -> AbortedTransaction | None:
        """``batch``, with its final offsets, is in the log; its producer was heard of at ``now_ms``.

        Not at the batch's own time, as in Kafka: a producer that replays old data is not an idle one. Returns the
        transaction that the batch's marker aborts, for the transaction index.
        """
        self.end_offset = batch.next_offset
        if batch.producer_id <= NO_PRODUCER_ID or (batch.is_control and batch.record_count == 0):
            return None  # compaction empties a marker of which nothing is left; an empty data batch keeps a sequence
        if self._awaited:
            self._awaited.pop(batch.producer_id, None)
        if self._repeated:
            self._repeated.pop(batch.producer_id, None)
        entry = self._producers.get(batch.producer_id)
        if entry is None:
            entry = ProducerEntry(batch.producer_id, batch.producer_epoch)
        elif entry.epoch != batch.producer_epoch:  # batches of an older epoch are never sent again
            entry = entry._replace(epoch=batch.producer_epoch, batches=())
        if batch.is_control:
            return self._end_transaction(entry, read_marker(batch), batch.base_offset, now_ms)
        began = entry.transaction_first_offset
        if batch.is_transactional and began == NO_TRANSACTION:
            began = batch.base_offset
            self._ongoing[began] = batch.producer_id
            self._find_unstable()
        latest = BatchMetadata(
            batch.base_sequence, batch.last_sequence, batch.base_offset, batch.last_offset, batch.max_timestamp
        )
        self._producers[batch.producer_id] = ProducerEntry(
            entry.producer_id,
            entry.epoch,
            (*entry.batches, latest)[-REMEMBERED_BATCHES:],
            now_ms,
            entry.coordinator_epoch,
            began,
            entry.last_marker_offset,
        )
        return None

    def _end_transaction(
        self, entry: ProducerEntry, marker: EndTransactionMarker, marker_offset: int, now_ms: int
    ) -> AbortedTransaction | None:
        if marker.type is ControlType.ABORT:
            self._aborted.add(entry.producer_id)
        else:
            self._aborted.discard(entry.producer_id)
        first = entry.transaction_first_offset
        self._producers[entry.producer_id] = ProducerEntry(
            entry.producer_id,
            entry.epoch,
            entry.batches,
            now_ms,
            marker.coordinator_epoch,
            NO_TRANSACTION,
            marker_offset,
        )
        if first == NO_TRANSACTION:
            return None
        self._ongoing.pop(first, None)
        if marker_offset >= self._high_watermark:  # in a replay it may be below
            self._unreplicated[first] = marker_offset
            heappush(self._unreplicated_firsts, first)
        self._find_unstable()
        if marker.type is ControlType.COMMIT:
            return None
        stable = next(iter(self._ongoing), marker_offset + 1)
        return AbortedTransaction(entry.producer_id, first, marker_offset, stable)

    def _find_unstable(self) -> None:
        firsts = self._unreplicated_firsts
        while firsts and firsts[0] not in self._unreplicated:
            heappop(firsts)
        first = next(iter(self._ongoing), None)
        replicating = firsts[0] if firsts else None
        known = [offset for offset in (first, replicating) if offset is not None]
        self.first_unstable_offset = min(known, default=None)

    def before(self, batches: Iterable[RecordBatch]) -> Before:
        """What ``undo`` needs to take back ``batches``, which are about to be given to ``update``."""
        ids = {batch.producer_id for batch in batches}
        entries = {id_: self._producers.get(id_) for id_ in ids}
        return Before(self.end_offset, entries, {id_: self._awaited[id_] for id_ in ids if id_ in self._awaited})

    def undo(self, before: Before) -> None:
        """The batches that came since ``before`` are not in the log."""
        self.end_offset = before.end_offset
        begun = {first: id_ for first, id_ in self._ongoing.items() if first < before.end_offset}
        for id_, entry in before.entries.items():
            if entry is None:
                self._producers.pop(id_, None)
                continue
            self._producers[id_] = entry
            if entry.in_transaction:
                begun[entry.transaction_first_offset] = id_
        self._awaited.update(before.awaited)
        self._ongoing = OrderedDict(sorted(begun.items()))
        while self._unreplicated and next(reversed(self._unreplicated.values())) >= before.end_offset:
            self._unreplicated.popitem()
        self._find_unstable()

    def on_high_watermark(self, offset: int) -> None:
        """All replicas have what lies below ``offset``: transactions whose markers do are stable."""
        self._high_watermark = offset
        if self._unreplicated:
            while self._unreplicated and next(iter(self._unreplicated.values())) < offset:
                self._unreplicated.popitem(last=False)
            self._find_unstable()

    def take_over(self, before: ProducerStateManager) -> None:
        """Know what ``before`` knows, which is the state of the same log in another directory, or a copy of what was
        known here, and is used no more. What was refused here meanwhile is still to come first.
        """
        self.expiration_ms, self._epoch_ms = before.expiration_ms, before._epoch_ms
        self._producers, self._awaited = before._producers, {**before._awaited, **self._awaited}
        self._aborted, self._repeated = before._aborted, before._repeated
        self._ongoing, self._unreplicated = before._ongoing, before._unreplicated
        self._unreplicated_firsts = before._unreplicated_firsts
        self._high_watermark = before._high_watermark
        self._find_unstable()

    def copy(self) -> ProducerStateManager:
        """Another that knows the same, to be brought further on another thread and taken over by ``take_over``."""
        other = ProducerStateManager(self._directory, self.expiration_ms)
        other._epoch_ms = self._epoch_ms
        other._producers, other._ongoing = dict(self._producers), OrderedDict(self._ongoing)
        other._awaited, other._aborted, other._repeated = dict(self._awaited), set(self._aborted), dict(self._repeated)
        other._unreplicated, other._unreplicated_firsts = OrderedDict(self._unreplicated), [*self._unreplicated_firsts]
        other._high_watermark, other.end_offset = self._high_watermark, self.end_offset
        other._find_unstable()
        return other

    def take_snapshot(self, now_ms: int, *, durable: bool) -> None:
        """Write the state at ``end_offset``; one that is not durable may be lost in a crash, which costs a replay."""
        if self.end_offset <= self._snapshot_offset:
            return
        self.expire(now_ms)
        write_atomically(self._path(self.end_offset), encode_snapshot(self._producers.values()), durable=durable)
        self._snapshot_offset = self.end_offset

    def _path(self, offset: int) -> Path:
        return segment_path(self._directory, offset, SNAPSHOT_SUFFIX)

    def begin_snapshot(self, now_ms: int) -> None:
        """As ``take_snapshot``, not durable; of many producers only note what ``write_some`` is to write.

        Of several that wait to be begun the last one is enough.
        """
        if len(self._producers) <= _AT_ONCE:
            self.take_snapshot(now_ms, durable=False)
        elif self.end_offset > self._snapshot_offset:
            noted = _Unwritten(self.end_offset, self._producers.values())
            with self._noting:
                if self._unwritten and self._unwritten[-1].offset == noted.offset:
                    return
                if len(self._unwritten) > 1:
                    self._unwritten.pop()
                self._unwritten.append(noted)

    @property
    def first_unwritten(self) -> int | None:
        """The offset of the first snapshot that ``write_some`` has yet to write; None without one.

        While it is not there, a start needs the batches before that offset, from the snapshot before on.
        """
        with self._noting:
            return self._unwritten[0].offset if self._unwritten else None

    def is_writer_wanted(self) -> bool:
        """Whether to call ``write_some`` until it is done. Of many that ask one is told so, until that has failed."""
        with self._noting:
            is_wanted = bool(self._unwritten) and not self._has_writer
            self._has_writer = self._has_writer or is_wanted
        return is_wanted

    def write_some(self) -> bool:
        """Do a step of writing what ``begin_snapshot`` noted; false when all is written. Any one thread may call it.

        Raises OSError if the disk refuses.
        """
        with self._noting:
            if not self._unwritten:
                self._has_writer = False
                return False
            first = self._unwritten[0]
        try:
            data = first.step()
            if data is not None:
                self._finish_writing(first, data)
        except BaseException:
            with self._noting:
                self._has_writer = False
            raise
        return True

    def _finish_writing(self, snapshot: _Unwritten, data: bytearray) -> None:
        with self._writing:
            if snapshot in self._unwritten:
                write_atomically(self._path(snapshot.offset), data, durable=False)
                self._snapshot_offset = max(self._snapshot_offset, snapshot.offset)
                with self._noting:
                    self._unwritten.remove(snapshot)

    def forget_unwritten(self, *, beyond: int) -> None:
        """What was noted at offsets beyond that is not written any more, once this returns."""
        with self._writing, self._noting:
            self._unwritten = [each for each in self._unwritten if each.offset <= beyond]

    def load(self, first_offset: int, up_to: int) -> None:
        """Start from the newest snapshot that holds together and lies in ``first_offset`` to ``up_to``.

        ``first_offset`` is where the first segment begins: the snapshot that bears its number knows who wrote to those
        that were deleted before it.

        ``end_offset`` then says from where the log is to be replayed. If the disk refuses, nothing has changed.
        """
        found: dict[int, ProducerEntry] = {}
        end = first_offset
        for offset, path in reversed(self._snapshots()):
            if not first_offset <= offset <= up_to:
                continue
            try:
                found = read_snapshot(path)
            except CorruptRecord as error:
                _logger.warning("%s; replaying the log instead", error)
                path.unlink()
            else:
                end = offset
                break
        self._producers, self.end_offset, self._snapshot_offset = found, end, end
        open_now = sorted((e.transaction_first_offset, e.producer_id) for e in self.entries if e.in_transaction)
        self._ongoing, self._unreplicated, self._unreplicated_firsts = OrderedDict(open_now), OrderedDict(), []
        self._high_watermark = min(self._high_watermark, up_to)
        self._find_unstable()

    def follow_clock(self, now_ms: int, monotonic_ms: int) -> None:
        """If the wall clock was set since the last call, no producer is idle for that: each was heard of as long ago
        as before. To be called before producers expire, and before their times are written.

        Kafka (3.9, ``isProducerExpired``) compares a batch's own time with the wall clock. There a step of a day
        forward forgets every producer, and what one of them sends again then is written twice.
        """
        epoch_ms = now_ms - monotonic_ms
        if self._epoch_ms is not None and abs(epoch_ms - self._epoch_ms) < _STEP_MS:
            return
        step = max(epoch_ms - self._epoch_ms, 0) if self._epoch_ms is not None else 0
        self._epoch_ms = epoch_ms
        self._producers = {
            id_: entry._replace(last_timestamp=min(entry.last_timestamp + step, now_ms))
            for id_, entry in self._producers.items()
        }
        self._awaited = {
            id_: each._replace(refused_ms=min(each.refused_ms + step, now_ms)) for id_, each in self._awaited.items()
        }

    def expire(self, now_ms: int) -> None:
        """Forget the producers that have been silent too long; never one with an open transaction."""
        self._producers = {
            id_: entry
            for id_, entry in self._producers.items()
            if entry.in_transaction or now_ms - entry.last_timestamp < self.expiration_ms
        }
        self._aborted &= self._producers.keys()
        self._repeated = {id_: each for id_, each in self._repeated.items() if id_ in self._producers}
        self._awaited = {
            id_: each for id_, each in self._awaited.items() if now_ms - each.refused_ms < self.expiration_ms
        }

    def restart_at(self, offset: int) -> None:
        """The log begins anew at ``offset`` and knows no producer."""
        self.discard_snapshots(beyond=-1)
        self._awaited, self._aborted, self._repeated = {}, set(), {}
        self.load(offset, offset)

    def discard_snapshot(self, offset: int) -> None:
        """Remove the one that was taken when the segment at ``offset`` was begun. There may be none.

        The directory is not looked through, which takes long with many segments. A snapshot at another offset, of a
        clean stop, is removed by the next start.
        """
        self._path(offset).unlink(missing_ok=True)

    def discard_snapshots(self, *, beyond: int) -> None:
        """Remove those of offsets that the log no longer reaches."""
        self.forget_unwritten(beyond=beyond)
        for offset, path in self._snapshots():
            if offset > beyond:
                path.unlink()
        self._snapshot_offset = min(self._snapshot_offset, beyond)

    def discard_stray(self, segment_bases: Collection[int]) -> None:
        """Keep a snapshot a segment, and the newest if it lies beyond the last segment's base."""
        strays = [(offset, path) for offset, path in self._snapshots() if offset not in segment_bases]
        newest = max(segment_bases, default=0)
        for number, (offset, path) in enumerate(strays, 1):
            if number < len(strays) or offset < newest:
                path.unlink()

    def _snapshots(self) -> list[tuple[int, Path]]:
        found = (path for path in files_with_suffix(self._directory, SNAPSHOT_SUFFIX) if path.is_file())
        return sorted((base_offset_of(path), path) for path in found)


def _is_behind(sequence: int, other: int) -> bool:
    """Whether the first comes after the other, which is not far: behind the greatest number the next one is 0."""
    return 0 < (sequence - other) % (MAX_INT32 + 1) <= MAX_INT32 // 2


def _check_epoch(entry: ProducerEntry, batch: RecordBatch) -> None:
    if batch.producer_epoch < entry.epoch:
        raise ApiError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {entry.producer_id} writes with epoch {batch.producer_epoch}, {entry.epoch} is known",
        )


def _check_coordinator(entry: ProducerEntry, marker: EndTransactionMarker) -> None:
    if marker.coordinator_epoch < entry.coordinator_epoch:
        raise ApiError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"a marker of coordinator epoch {marker.coordinator_epoch} for producer {entry.producer_id}; "
            f"{entry.coordinator_epoch} is known",
        )
