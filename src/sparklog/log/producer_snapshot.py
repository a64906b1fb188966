"""The ``.snapshot`` file: what a partition knows of its producers, up to the offset that names the file.

Big-endian: version 1 (2), CRC-32C of the rest (4), count (4), then 46 bytes a producer: id (8), epoch (2), last
sequence (4), last offset (8), offset delta of the last batch (4), timestamp (8), coordinator epoch (4), first offset of
the open transaction or -1 (8). Source: Kafka 3.9, ``ProducerStateManager.writeSnapshot``.

Kafka writes one entry a producer and so forgets, when it stops, all but the last batch. Here a producer has an entry
for each batch that is remembered, the oldest first. The last one is Kafka's, byte for byte. The earlier ones bear no
transaction. Kafka reads such a file as its own: ``loadProducerEntry`` puts entry after entry into a map, so that the
last one of an id stays. Their timestamps are not later than the last entry's, so that Kafka, which leaves out entries
that have expired, never leaves out the last one alone.

A reader takes the entries of one id and epoch together; one that follows under another epoch stands alone.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from pathlib import Path
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

import crc32c

from sparklog.errors import CorruptRecord
from sparklog.record.batch import RecordBatch, increment_sequence
from sparklog.record.layout import NO_SEQUENCE

REMEMBERED_BATCHES = 5
NO_TRANSACTION = -1
NO_MARKER = -1
NO_COORDINATOR = -1

_VERSION = 1
_HEAD = Struct(">hII")
_CRC_END = 6
_ENTRY = Struct(">qhiqiqiq")
_ENTRIES_A_STEP = 200
"""They take a millisecond at most."""


class BatchMetadata(NamedTuple):
    """One remembered batch."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


_NO_BATCH = BatchMetadata(NO_SEQUENCE, NO_SEQUENCE, -1, -1, -1)


class ProducerEntry(NamedTuple):
    """One producer, its newest epoch. ``last_marker_offset`` is not in the file: it tells what has happened since."""

    producer_id: int
    epoch: int
    batches: tuple[BatchMetadata, ...] = ()
    """Of that epoch the last ones, ``REMEMBERED_BATCHES`` at most."""
    last_timestamp: int = -1
    coordinator_epoch: int = NO_COORDINATOR
    transaction_first_offset: int = NO_TRANSACTION
    last_marker_offset: int = NO_MARKER

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def in_transaction(self) -> bool:
        return self.transaction_first_offset != NO_TRANSACTION

    def repeated(self, batch: RecordBatch) -> BatchMetadata | None:
        """The remembered batch with the same epoch and sequences."""
        if batch.producer_epoch != self.epoch:
            return None
        wanted = (batch.base_sequence, batch.last_sequence)
        return next((each for each in self.batches if (each.first_sequence, each.last_sequence) == wanted), None)


def entries_before(entries: Iterable[ProducerEntry], offset: int) -> list[ProducerEntry]:
    """What is still to be known at ``offset`` of producers that are known at the end of the log.

    The batches from ``offset`` on bring it back to what it is at the end. What they supersede is left out: batches of
    an epoch that has ended, a transaction that has.
    """
    found = []
    for entry in entries:
        batches = tuple(each for each in entry.batches if each.last_offset < offset)
        first = entry.transaction_first_offset
        began = first if first < offset else NO_TRANSACTION
        found.append(entry._replace(batches=batches, transaction_first_offset=began))
    return found


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The file's bytes."""
    steps = encoding_snapshot(entries)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bytes(end.value)


def encoding_snapshot(entries: Iterable[ProducerEntry]) -> Generator[None, None, bytearray]:
    """``encode_snapshot`` in steps of ``_ENTRIES_A_STEP``."""
    data, left = bytearray(_HEAD.size), iter(entries)
    while some := [packed for entry in islice(left, _ENTRIES_A_STEP) for packed in _encode_entry(entry)]:
        data += b"".join(some)
        yield
    count = (len(data) - _HEAD.size) // _ENTRY.size
    _HEAD.pack_into(data, 0, _VERSION, 0, count)
    _HEAD.pack_into(data, 0, _VERSION, crc32c.crc32c(memoryview(data)[_CRC_END:]), count)
    return data


def _encode_entry(entry: ProducerEntry) -> Iterator[bytes]:
    """An entry a batch; the last one, which is there also without a batch, is the one that Kafka writes."""
    *earlier, last = entry.batches or (_NO_BATCH,)
    for batch in earlier:
        yield _pack(entry, batch, min(batch.timestamp, entry.last_timestamp), NO_TRANSACTION)
    yield _pack(entry, last, entry.last_timestamp, entry.transaction_first_offset)


def _pack(entry: ProducerEntry, batch: BatchMetadata, timestamp: int, transaction_first_offset: int) -> bytes:
    return _ENTRY.pack(
        entry.producer_id,
        entry.epoch,
        batch.last_sequence,
        batch.last_offset,
        batch.last_offset - batch.first_offset,
        timestamp,
        entry.coordinator_epoch,
        transaction_first_offset,
    )


def read_snapshot(path: Path) -> dict[int, ProducerEntry]:
    """The producers in a snapshot, by id. Raises CorruptRecord if it does not hold together."""
    producers: dict[int, ProducerEntry] = {}
    for entry in read_entries(path):
        earlier = producers.get(entry.producer_id)
        if earlier is not None and earlier.epoch == entry.epoch:
            entry = entry._replace(batches=(*earlier.batches, *entry.batches)[-REMEMBERED_BATCHES:])
        producers[entry.producer_id] = entry
    return producers


def read_entries(path: Path) -> list[ProducerEntry]:
    """The entries of a snapshot as they stand, each with one batch at most. Raises CorruptRecord, as above."""
    data = path.read_bytes()
    try:
        version, crc, count = _HEAD.unpack_from(data)
    except struct_error as error:
        raise CorruptRecord(f"producer snapshot {path} is cut short") from error
    if version != _VERSION or len(data) != _HEAD.size + count * _ENTRY.size or crc32c.crc32c(data[_CRC_END:]) != crc:
        raise CorruptRecord(f"producer snapshot {path} does not hold together (version {version}, {len(data)} bytes)")
    return [_decode_entry(*fields) for fields in _ENTRY.iter_unpack(data[_HEAD.size :])]


def _decode_entry(
    producer_id: int, epoch: int, last_sequence: int, last_offset: int, delta: int, timestamp: int, *transaction: int
) -> ProducerEntry:
    batches: tuple[BatchMetadata, ...] = ()
    if last_offset >= 0:
        first_sequence = increment_sequence(last_sequence, -delta) if last_sequence >= 0 else NO_SEQUENCE
        batches = (BatchMetadata(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp),)
    return ProducerEntry(producer_id, epoch, batches, timestamp, *transaction)
