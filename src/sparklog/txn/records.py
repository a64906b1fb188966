"""What ``__transaction_state`` holds: a record a transactional id, keyed by it, the last one counts.

Kafka 3.9's formats (``TransactionLogKey``, ``TransactionLogValue``), each behind a version (int16)::

    key 0       transactional id string
      value 0   producer id int64, producer epoch int16, timeout int32 (ms), state int8,
                partitions?: topic string, numbers int32..., last update int64, start int64 (ms)

Value version 1 is the flexible encoding with tagged fields; it is read but not written, as by Kafka 3.9 unless told
otherwise. Without a transaction (state Empty) the partitions are null. A null value takes the id back.
"""

from __future__ import annotations

import logging

from sparklog.errors import CorruptRecord, ProtocolError
from sparklog.protocol.wire import WireReader, WireWriter
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.records import iter_batches, iter_records
from sparklog.structs import FileSlice, TopicPartition
from sparklog.txn.state import Transaction, TransactionState

_logger = logging.getLogger(__name__)
_KEY_VERSION = 0
_VALUE_VERSION = 0
_FLEXIBLE_VALUE_VERSION = 1


def key_of(transactional_id: str) -> bytes:
    writer = WireWriter()
    writer.int16(_KEY_VERSION)
    writer.string(transactional_id)
    return _bytes(writer)


def value_of(transaction: Transaction) -> bytes | None:
    """None for one that is dead."""
    if transaction.state is TransactionState.DEAD:
        return None
    writer = WireWriter()
    writer.int16(_VALUE_VERSION)
    writer.int64(transaction.producer_id)
    writer.int16(transaction.epoch)
    writer.int32(transaction.timeout_ms)
    writer.int8(transaction.state)
    _write_partitions(writer, transaction)
    writer.int64(transaction.update_ms)
    writer.int64(transaction.start_ms)
    return _bytes(writer)


def _write_partitions(writer: WireWriter, transaction: Transaction) -> None:
    if transaction.state is TransactionState.EMPTY:
        writer.array_length(None)
        return
    by_topic: dict[str, list[int]] = {}
    for tp in sorted(transaction.partitions):
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    writer.array_length(len(by_topic))
    for topic, numbers in by_topic.items():
        writer.string(topic)
        writer.array_length(len(numbers))
        for number in numbers:
            writer.int32(number)


def _bytes(writer: WireWriter) -> bytes:
    return b"".join(chunk for chunk in writer.chunks() if not isinstance(chunk, FileSlice))


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
        return Transaction(
            transactional_id,
            producer_id,
            epoch,
            timeout_ms,
            state,
            partitions,
            update_ms=reader.int64(),
            start_ms=reader.int64(),
        )
    except (ProtocolError, ValueError) as error:
        raise CorruptRecord(f"transaction {transactional_id}: {error}") from error


def _read_partitions(reader: WireReader) -> list[TopicPartition]:
    partitions = []
    for _ in range(reader.array_length()):
        topic = reader.string()
        partitions += [TopicPartition(topic, reader.int32()) for _ in range(reader.array_length())]
        reader.skip_tags()
    return partitions


class TransactionLoader:
    """Takes a partition of the log in order through ``add``; ``finish`` gives the ids that it describes."""

    def __init__(self) -> None:
        self._latest: dict[bytes, bytes] = {}

    def add(self, batches: memoryview) -> None:
        """Whole batches, the next of the log."""
        for batch in iter_batches(batches):
            for record in iter_records(batch):
                if record.key is not None and record.value is not None:
                    self._latest[record.key] = record.value
                elif record.key is not None:
                    self._latest.pop(record.key, None)

    def finish(self) -> dict[str, Transaction]:
        """The transactions by id. A record that cannot be read is logged and left out."""
        found: dict[str, Transaction] = {}
        for key, value in self._latest.items():
            try:
                transactional_id = read_key(key)
                if transactional_id is not None:
                    found[transactional_id] = read_value(transactional_id, value)
            except CorruptRecord as error:
                _logger.error("skipping a record of __transaction_state: %s", error)
        return found
