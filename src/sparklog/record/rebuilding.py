"""Batches that compaction has changed: their records fewer, or all gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import crc32c

from sparklog.record import layout
from sparklog.record.compression import compress

if TYPE_CHECKING:
    from sparklog.record._impl.abc import Retained
    from sparklog.record.batch import RecordBatch


def rebuilt(batch: RecordBatch, retained: Retained) -> bytearray:
    """The batch with the records that are left, compressed as before.

    ``retained.section`` must hold some. Offsets, leader epoch, producer, and what kind of batch it is stay. Raises
    ValueError where nothing stays or nothing goes.
    """
    if retained.section is None or not retained.kept:
        raise ValueError("a batch is rebuilt of the records that stay of it, where some stay and some go")
    attributes = batch.attributes & layout.ALL_ATTRIBUTES & ~layout.DELETE_HORIZON_BIT
    if retained.horizon_ms is not None:
        attributes |= layout.DELETE_HORIZON_BIT
    out = bytearray(batch.buffer[: layout.HEADER_SIZE])
    out += compress(batch.compression, retained.section)
    layout.INT16.pack_into(out, layout.ATTRIBUTES, attributes)
    layout.INT64.pack_into(out, layout.BASE_TIMESTAMP, retained.base_timestamp)
    layout.INT64.pack_into(out, layout.MAX_TIMESTAMP, retained.max_timestamp)
    layout.INT32.pack_into(out, layout.RECORD_COUNT, retained.kept)
    return _seal(out)


def empty_header(batch: RecordBatch) -> bytearray:
    """The batch without records: it says of its producer, and of the offsets up to its last, what it did before."""
    kind = layout.LOG_APPEND_TIME_BIT | layout.TRANSACTIONAL_BIT | layout.CONTROL_BIT
    out = bytearray(batch.buffer[: layout.HEADER_SIZE])
    layout.INT16.pack_into(out, layout.ATTRIBUTES, batch.attributes & kind)
    layout.INT64.pack_into(out, layout.BASE_TIMESTAMP, layout.NO_TIMESTAMP)
    layout.INT32.pack_into(out, layout.RECORD_COUNT, 0)
    return _seal(out)


def _seal(out: bytearray) -> bytearray:
    layout.INT32.pack_into(out, layout.LENGTH, len(out) - layout.LOG_OVERHEAD)
    layout.UINT32.pack_into(out, layout.CRC, crc32c.crc32c(memoryview(out)[layout.ATTRIBUTES :]))
    return out
