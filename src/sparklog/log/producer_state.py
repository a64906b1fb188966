"""What a partition knows of its idempotent producers: which batches it has had, so that a retry adds nothing.

Invariants: for each producer id the log holds batches of one epoch after another, their sequences without gap or
repetition within an epoch; the last five batches are remembered, so a producer with five requests in flight may send
any of them again and is given the offsets of the first time. The state is a function of the log: a snapshot is only a
shortcut, written when a segment is rolled and when the log is closed, and what lies behind the newest one is replayed.

A snapshot file, ``OFFSET.snapshot``, holds the state of everything below its offset. Big-endian: version 1 (2),
CRC-32C of the rest (4), count (4), then 46 bytes a producer: id (8), epoch (2), last sequence (4), last offset (8),
offset delta of the last batch (4), timestamp (8), coordinator epoch (4), first offset of the open transaction or -1
(8).
Source: Kafka 3.9, ``ProducerStateManager``, ``ProducerAppendInfo``.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

import crc32c

from sparklog.errors import ApiError, CorruptRecord, ErrorCode
from sparklog.log.files import SNAPSHOT_SUFFIX, base_offset_of, segment_path, write_atomically
from sparklog.record.batch import RecordBatch, increment_sequence
from sparklog.record.layout import NO_PRODUCER_ID, NO_SEQUENCE

_logger = logging.getLogger(__name__)

REMEMBERED_BATCHES = 5
EXPIRATION_MS = 86_400_000
"""How long a producer that writes nothing is remembered (Kafka's ``producer.id.expiration.ms``)."""

_VERSION = 1
_HEAD = Struct(">hII")
_CRC_END = 6
_ENTRY = Struct(">qhiqiqiq")


class BatchMetadata(NamedTuple):
    """One remembered batch."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


@dataclass(slots=True)
class ProducerEntry:
    """One producer, its newest epoch."""

    producer_id: int
    epoch: int
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))
    last_timestamp: int = -1
    coordinator_epoch: int = -1
    transaction_first_offset: int = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def repeated(self, batch: RecordBatch) -> BatchMetadata | None:
        """The remembered batch with the same epoch and sequences."""
        if batch.producer_epoch != self.epoch:
            return None
        wanted = (batch.base_sequence, batch.last_sequence)
        return next((each for each in self.batches if (each.first_sequence, each.last_sequence) == wanted), None)


class ProducerStateManager:
    """The producers of one partition, up to ``end_offset``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._producers: dict[int, ProducerEntry] = {}
        self.end_offset = 0
        self._snapshot_offset = 0

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, batch: RecordBatch) -> BatchMetadata | None:
        """Whether ``batch`` may be appended: None if so, the remembered batch if it has been already.

        Raises ApiError: INVALID_PRODUCER_EPOCH for an epoch older than the newest, OUT_OF_ORDER_SEQUENCE_NUMBER for a
        sequence that does not follow.
        """
        if batch.producer_id == NO_PRODUCER_ID:
            return None
        entry = self._producers.get(batch.producer_id)
        if entry is None:
            return None
        repeated = entry.repeated(batch)
        if repeated is not None:
            return repeated
        self._check_follows(entry, batch)
        return None

    @staticmethod
    def _check_follows(entry: ProducerEntry, batch: RecordBatch) -> None:
        if batch.producer_epoch < entry.epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {entry.producer_id} writes with epoch {batch.producer_epoch}, {entry.epoch} is known",
            )
        new_epoch = batch.producer_epoch > entry.epoch
        due = 0 if new_epoch else increment_sequence(entry.last_sequence, 1)
        if batch.base_sequence != due and (new_epoch or entry.batches):
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {entry.producer_id} sends sequence {batch.base_sequence} where {due} is due",
            )

    def update(self, batch: RecordBatch, now_ms: int) -> None:
        """``batch``, with its final offsets, is in the log; its producer was heard of at ``now_ms``.

        Not at the batch's own time, as in Kafka: a producer that replays old data is not an idle one.
        """
        self.end_offset = batch.next_offset
        if batch.producer_id == NO_PRODUCER_ID or batch.base_sequence < 0:
            return
        entry = self._producers.get(batch.producer_id)
        if entry is None or entry.epoch != batch.producer_epoch:
            entry = self._producers[batch.producer_id] = ProducerEntry(batch.producer_id, batch.producer_epoch)
        entry.batches.append(
            BatchMetadata(
                batch.base_sequence, batch.last_sequence, batch.base_offset, batch.last_offset, batch.max_timestamp
            )
        )
        entry.last_timestamp = now_ms

    def take_snapshot(self, now_ms: int, *, durable: bool) -> None:
        """Write the state at ``end_offset``; one that is not durable may be lost in a crash, which costs a replay.

        Only the two newest snapshots are kept.
        """
        if self.end_offset <= self._snapshot_offset:
            return
        self._expire(now_ms)
        write_atomically(
            segment_path(self._directory, self.end_offset, SNAPSHOT_SUFFIX), self._encode(), durable=durable
        )
        self._snapshot_offset = self.end_offset
        for old in self._snapshots()[:-2]:
            old.unlink()

    def has_snapshots(self) -> bool:
        return bool(self._snapshots())

    def load(self, log_start_offset: int, log_end_offset: int) -> None:
        """Start from the newest snapshot that holds together and lies within the log; those beyond it are removed."""
        self._producers = {}
        self.end_offset = self._snapshot_offset = log_start_offset
        for path in reversed(self._snapshots()):
            offset = base_offset_of(path)
            if offset <= log_end_offset:
                try:
                    self._producers = _decode(path)
                except CorruptRecord as error:
                    _logger.warning("%s; replaying the log instead", error)
                else:
                    self.end_offset = self._snapshot_offset = max(offset, log_start_offset)
                    return
            path.unlink()

    def _expire(self, now_ms: int) -> None:
        self._producers = {
            id_: entry for id_, entry in self._producers.items() if now_ms - entry.last_timestamp < EXPIRATION_MS
        }

    def _snapshots(self) -> list[Path]:
        return sorted(self._directory.glob(f"*{SNAPSHOT_SUFFIX}"))

    def _encode(self) -> bytes:
        body = b"".join(_encode_entry(entry) for entry in self._producers.values())
        checked = len(self._producers).to_bytes(4, "big") + body
        return _HEAD.pack(_VERSION, crc32c.crc32c(checked), len(self._producers)) + body


def _encode_entry(entry: ProducerEntry) -> bytes:
    last = entry.batches[-1] if entry.batches else BatchMetadata(NO_SEQUENCE, NO_SEQUENCE, -1, -1, -1)
    return _ENTRY.pack(
        entry.producer_id,
        entry.epoch,
        last.last_sequence,
        last.last_offset,
        last.last_offset - last.first_offset,
        entry.last_timestamp,
        entry.coordinator_epoch,
        entry.transaction_first_offset,
    )


def _decode(path: Path) -> dict[int, ProducerEntry]:
    """The producers in a snapshot. Raises CorruptRecord if it does not hold together."""
    data = path.read_bytes()
    try:
        version, crc, count = _HEAD.unpack_from(data)
    except struct_error as error:
        raise CorruptRecord(f"producer snapshot {path} is cut short") from error
    if version != _VERSION or len(data) != _HEAD.size + count * _ENTRY.size or crc32c.crc32c(data[_CRC_END:]) != crc:
        raise CorruptRecord(f"producer snapshot {path} does not hold together (version {version}, {len(data)} bytes)")
    producers = {}
    for id_, epoch, last_sequence, last_offset, delta, timestamp, *transaction in _ENTRY.iter_unpack(
        data[_HEAD.size :]
    ):
        entry = producers[id_] = ProducerEntry(id_, epoch, deque(maxlen=REMEMBERED_BATCHES), timestamp, *transaction)
        if last_offset >= 0:
            first_sequence = increment_sequence(last_sequence, -delta)
            entry.batches.append(
                BatchMetadata(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp)
            )
    return producers
