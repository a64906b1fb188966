"""Buffers of batches one after another, as Produce, Fetch and segment files hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from sparklog.errors import CorruptRecord
from sparklog.record import _impl, layout
from sparklog.record._impl.abc import BatchFields, Record, RecordPlace
from sparklog.record.batch import RecordBatch
from sparklog.record.compression import decompress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

__all__ = [
    "MAX_DECOMPRESSED",
    "Record",
    "batch_fields",
    "check_records",
    "iter_batches",
    "iter_records",
    "placed_records",
    "records_section",
]

T = TypeVar("T", bound=tuple[object, ...])

MAX_DECOMPRESSED = 128 * 1024 * 1024
"""Bytes that one batch may decompress to, unless the caller says otherwise."""


def iter_batches(buffer: Buffer, *, partial_tail: bool = True) -> Iterator[RecordBatch]:
    """The batches of ``buffer``.

    With ``partial_tail`` an incomplete last batch ends the iteration quietly, since a Fetch answer is cut at a byte
    count; without it, it raises CorruptRecord, as it must in a Produce request.
    """
    view = memoryview(buffer)
    position = 0
    while position < len(view):
        if partial_tail and _is_cut_short(view, position):
            return
        batch = RecordBatch(view, position)
        yield batch
        position += batch.size_in_bytes


def iter_records(batch: RecordBatch, max_decompressed: int = MAX_DECOMPRESSED) -> Iterator[Record]:
    """The records of one batch as Python objects: for people and tests, never for bulk data."""
    if batch.record_count == 0:
        return iter(())
    return iter(_impl.codec.read_records(records_section(batch, max_decompressed), batch_fields(batch)))


def placed_records(batch: RecordBatch, topic: str, partition: int, kind: type[T]) -> list[T]:
    """The records of one batch of a partition, each as a ``kind``: a named tuple of topic, partition, offset,
    timestamp, timestamp_type, key, value, headers, leader_epoch."""
    if batch.record_count == 0:
        return []
    place = RecordPlace(topic, partition, batch.timestamp_type, batch.partition_leader_epoch)
    return _impl.codec.read_placed_records(records_section(batch), batch_fields(batch), place, kind)


def check_records(batch: RecordBatch, max_decompressed: int = MAX_DECOMPRESSED) -> int:
    """The greatest timestamp of the records in ms, -1 where none has one, or all are below that.

    Raises CorruptRecord unless every record of ``batch`` can be read, by the rules that decoding keeps.
    Pure: a leader or a follower may ask. The header and the CRC are ``RecordBatch.validate``'s.
    """
    return _impl.codec.check_records(records_section(batch, max_decompressed), batch_fields(batch))


def batch_fields(batch: RecordBatch) -> BatchFields:
    """What of the batch's header its records depend on."""
    append_time = batch.max_timestamp if batch.timestamp_type else None
    return BatchFields(
        batch.record_count, batch.base_offset, batch.base_timestamp, append_time, batch.last_offset_delta
    )


def records_section(batch: RecordBatch, max_decompressed: int = MAX_DECOMPRESSED) -> Buffer:
    """The records of ``batch``, decompressed."""
    if batch.is_plain and batch.size_in_bytes <= max_decompressed:
        return batch.payload
    return decompress(batch.compression, batch.payload, max_decompressed)


def _is_cut_short(view: memoryview, position: int) -> bool:
    available = len(view) - position
    if available < layout.LOG_OVERHEAD:
        return True
    length = layout.OFFSET_AND_LENGTH.unpack_from(view, position)[1]
    if length < 0:
        raise CorruptRecord(f"batch at position {position} has the length {length}")
    return bool(available < layout.LOG_OVERHEAD + length)
