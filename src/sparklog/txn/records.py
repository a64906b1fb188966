"""What ``__transaction_state`` holds: a record a transactional id, keyed by it, the last one counts.

Kafka 3.9's formats (``TransactionLogKey``, ``TransactionLogValue``), each behind a version (int16)::

    key 0       transactional id string
      value 0   producer id int64, producer epoch int16, timeout int32 (ms), state int8,
                partitions?: topic string, numbers int32..., last update int64, start int64 (ms)

Value version 1 is the flexible encoding; it ends with tagged fields, each left out where it says nothing::

    tag 0       previous producer id int64: who was the client before, if it may ask again
    tag 1       next producer id int64       tag 3   next epoch int16: the client, where not the producer
    tag 2       client transaction version int16

It is written where one of these says something, so that Kafka's older programs go on reading the rest. The epoch of the
previous producer is the one before the client's: with the client's epoch 0, the last that is given to a producer.
Without a transaction (state Empty) the partitions are null. A null value takes the id back.
Source: Kafka 3.9 and 4.1 ``TransactionLogValue.json``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from struct import Struct

from sparklog.errors import CorruptRecord, ProtocolError
from sparklog.protocol.wire import WireReader, WireWriter
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.latest import LatestRecords
from sparklog.structs import TopicPartition, by_topic
from sparklog.txn.state import (
    LAST_EPOCH,
    NO_EPOCH,
    NO_ID,
    ClientVersion,
    Producer,
    Transaction,
    TransactionState,
)

_logger = logging.getLogger(__name__)
_KEY_VERSION = 0
_VALUE_VERSION = 0
_SLICE = 200
"""How many records are parsed in one turn of the loop."""
_FLEXIBLE_VALUE_VERSION = 1
_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_VERSION, _NEXT_EPOCH = range(4)
_TAGS = {
    _PREVIOUS_PRODUCER_ID: Struct(">q"),
    _NEXT_PRODUCER_ID: Struct(">q"),
    _CLIENT_VERSION: Struct(">h"),
    _NEXT_EPOCH: Struct(">h"),
}


def key_of(transactional_id: str) -> bytes:
    writer = WireWriter()
    writer.int16(_KEY_VERSION)
    writer.string(transactional_id)
    return writer.joined()


def value_of(transaction: Transaction) -> bytes | None:
    """None for one that is dead."""
    if transaction.state is TransactionState.DEAD:
        return None
    tags = _tags_of(transaction)
    writer = WireWriter(flexible=bool(tags))
    writer.int16(_FLEXIBLE_VALUE_VERSION if tags else _VALUE_VERSION)
    writer.int64(transaction.producer_id)
    writer.int16(transaction.epoch)
    writer.int32(transaction.timeout_ms)
    writer.int8(transaction.state)
    _write_partitions(writer, transaction)
    writer.int64(transaction.update_ms)
    writer.int64(transaction.start_ms)
    if tags:
        writer.uvarint(len(tags))
    for tag, value in tags.items():
        writer.uvarint(tag)
        writer.uvarint(_TAGS[tag].size)
        writer.raw(_TAGS[tag].pack(value))
    return writer.joined()


def _tags_of(transaction: Transaction) -> dict[int, int]:
    """The tagged fields that say something, in order."""
    tags: dict[int, int] = {}
    if transaction.last_epoch != NO_EPOCH:
        tags[_PREVIOUS_PRODUCER_ID] = transaction.last_producer_id
    if transaction.next_producer_id != NO_ID:
        tags[_NEXT_PRODUCER_ID] = transaction.next_producer_id
    if transaction.client_version is not ClientVersion.CLASSIC:
        tags[_CLIENT_VERSION] = transaction.client_version
    if transaction.next_producer_id != NO_ID:
        tags[_NEXT_EPOCH] = transaction.next_epoch
    return tags


def _write_partitions(writer: WireWriter, transaction: Transaction) -> None:
    if transaction.state is TransactionState.EMPTY:
        writer.array_length(None)
        return
    topics = by_topic(sorted(transaction.partitions))
    writer.array_length(len(topics))
    for topic, numbers in topics.items():
        writer.string(topic)
        writer.array_length(len(numbers))
        for number in numbers:
            writer.int32(number)
        writer.tags()


def build_batch(transaction: Transaction, now_ms: int) -> bytes:
    """The transaction's record, as one batch."""
    builder = RecordBatchBuilder()
    builder.append(now_ms, key_of(transaction.transactional_id), value_of(transaction))
    return builder.build()


def read_key(key: bytes) -> str | None:
    """The transactional id; None for a key of a version that is not known. Raises CorruptRecord."""
    reader = WireReader(memoryview(key))
    try:
        return reader.string() if reader.int16() == _KEY_VERSION else None
    except ProtocolError as error:
        raise CorruptRecord(f"key of a transaction record: {error}") from error


def read_value(transactional_id: str, value: bytes) -> Transaction:
    """Raises CorruptRecord."""
    reader = WireReader(memoryview(value))
    try:
        version = reader.int16()
        if version not in (_VALUE_VERSION, _FLEXIBLE_VALUE_VERSION):
            raise CorruptRecord(f"transaction {transactional_id}: value of version {version}, known are 0 and 1")
        reader.flexible = version == _FLEXIBLE_VALUE_VERSION
        producer_id, epoch, timeout_ms = reader.int64(), reader.int16(), reader.int32()
        state = TransactionState(reader.int8())
        partitions = frozenset(_read_partitions(reader))
        update_ms, start_ms = reader.int64(), reader.int64()
        transaction = Transaction(
            transactional_id, producer_id, epoch, timeout_ms, state, partitions, start_ms, update_ms
        )
        return _with_tags(transaction, _read_tags(reader)) if reader.flexible else transaction
    except (ProtocolError, ValueError) as error:
        raise CorruptRecord(f"transaction {transactional_id}: {error}") from error


def _read_partitions(reader: WireReader) -> list[TopicPartition]:
    partitions = []
    for _ in range(reader.array_length()):
        topic = reader.string()
        partitions += [TopicPartition(topic, reader.int32()) for _ in range(reader.array_length())]
        reader.skip_tags()
    return partitions


def _read_tags(reader: WireReader) -> dict[int, int]:
    """The tagged fields that are known."""
    tags: dict[int, int] = {}
    for _ in range(reader.uvarint()):
        tag, data = reader.uvarint(), WireReader(reader.take(reader.uvarint()))
        if tag in _TAGS:
            (tags[tag],) = data.numbers(_TAGS[tag])
    return tags


def _with_tags(transaction: Transaction, tags: dict[int, int]) -> Transaction:
    bumps = tags.get(_CLIENT_VERSION, 0) >= ClientVersion.EPOCH_A_TRANSACTION
    next_id = tags.get(_NEXT_PRODUCER_ID, NO_ID)
    found = transaction._replace(
        client_version=ClientVersion.EPOCH_A_TRANSACTION if bumps else ClientVersion.CLASSIC,
    )
    if next_id != NO_ID:
        found = found.told(Producer(next_id, max(tags.get(_NEXT_EPOCH, 0), 0)))
    previous_id = tags.get(_PREVIOUS_PRODUCER_ID, NO_ID)
    if previous_id != NO_ID:
        last_epoch = found.client.epoch - 1 if found.client.epoch > 0 else LAST_EPOCH - 1
        found = found._replace(last_producer_id=previous_id, last_epoch=last_epoch)
    return found


class TransactionLoader:
    """Takes a partition of the log in order through ``add``; after ``parse`` it has the ids that the log describes.

    Damage costs what it holds: what cannot be read is left out and named in the broker's log, and an id of which it
    spoke is as it was before. ``where`` is the partition's name.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._records = LatestRecords(self._left_out)
        self.transactions: dict[str, Transaction] = {}

    def add(self, batches: memoryview) -> None:
        """Whole batches, the next of the log."""
        self._records.add(batches)

    def parse(self) -> Iterator[None]:
        """To be run to its end once the log is taken; stops wherever others may have the loop."""
        for number, (key, (offset, value)) in enumerate(self._records.latest.items()):
            try:
                transactional_id = read_key(key)
                if transactional_id is not None:
                    self.transactions[transactional_id] = read_value(transactional_id, value)
            except CorruptRecord as error:
                self._left_out(offset, error)
            if number % _SLICE == _SLICE - 1:
                yield

    def _left_out(self, offset: int, error: CorruptRecord) -> None:
        _logger.error(
            "%s: what lies at offset %d cannot be read and is left out: %s. A decision may be lost with it: look with "
            "'sparklog log dump' whose it was, and with 'sparklog txn' at what its transaction left open",
            *(self._where, offset, error),
        )
