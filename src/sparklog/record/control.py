"""Control batches: the markers that end a transaction in each partition that it touched.

A control batch holds one record. Key: version (int16, 0), type (int16, 0 abort, 1 commit). Value: version (int16, 0),
coordinator epoch (int32). Later versions may append fields to either. Source: Kafka 3.9, ``ControlRecordType`` and
``EndTransactionMarker``.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from sparklog.errors import CorruptRecord
from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.records import iter_records

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_VERSION = 0


class ControlType(IntEnum):
    """How a transaction ended."""

    ABORT = 0
    COMMIT = 1


class EndTransactionMarker(NamedTuple):
    """What one marker says."""

    type: ControlType
    coordinator_epoch: int

    def key(self) -> bytes:
        return _KEY.pack(_VERSION, self.type)

    def value(self) -> bytes:
        return _VALUE.pack(_VERSION, self.coordinator_epoch)


class ProducerIdAndEpoch(NamedTuple):
    """Whose transaction a marker ends."""

    producer_id: int
    epoch: int


def build_marker(
    marker: EndTransactionMarker, producer: ProducerIdAndEpoch, timestamp_ms: int, *, base_offset: int = 0
) -> bytes:
    """The control batch that ends ``producer``'s transaction."""
    builder = RecordBatchBuilder(
        base_offset=base_offset,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        is_transactional=True,
        is_control=True,
    )
    builder.append(timestamp_ms, marker.key(), marker.value())
    return builder.build()


def read_marker(batch: RecordBatch) -> EndTransactionMarker:
    """The marker in a control batch; CorruptRecord where there is none."""
    if not batch.is_control:
        raise CorruptRecord(f"batch at offset {batch.base_offset} is not a control batch")
    record = next(iter_records(batch), None)
    if record is None:
        raise CorruptRecord(f"control batch at offset {batch.base_offset} is empty")
    return parse_marker(record.key, record.value)


def parse_marker(key: bytes | None, value: bytes | None) -> EndTransactionMarker:
    """The marker in a control record's key and value. Raises CorruptRecord where there is none."""
    if key is None or value is None or len(key) < _KEY.size or len(value) < _VALUE.size:
        raise CorruptRecord("control record is too short for an end-of-transaction marker")
    key_version, kind = _KEY.unpack_from(key)
    value_version, epoch = _VALUE.unpack_from(value)
    if key_version < 0 or value_version < 0 or kind not in (ControlType.ABORT, ControlType.COMMIT):
        raise CorruptRecord(f"control record of type {kind}, versions {key_version}/{value_version}, is unknown")
    return EndTransactionMarker(ControlType(kind), epoch)
