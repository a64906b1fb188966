"""Giving a batch another codec, for a topic whose ``compression.type`` says so. The records stay as they are."""

from __future__ import annotations

import crc32c

from sparklog.record import layout
from sparklog.record.batch import RecordBatch
from sparklog.record.compression import CompressionType, compress
from sparklog.record.records import records_section


def recompress(batch: RecordBatch, kind: CompressionType, level: int | None = None) -> bytearray:
    """The batch with its records compressed as ``kind``; all other fields are kept.

    ``level`` None is the codec's own. Raises CorruptRecord if the records cannot be decompressed.
    """
    payload = compress(kind, records_section(batch), level)
    out = bytearray(batch.buffer[: layout.HEADER_SIZE]) + payload
    layout.INT32.pack_into(out, layout.LENGTH, len(out) - layout.LOG_OVERHEAD)
    layout.INT16.pack_into(out, layout.ATTRIBUTES, batch.attributes & ~layout.COMPRESSION_MASK | kind)
    layout.UINT32.pack_into(out, layout.CRC, crc32c.crc32c(memoryview(out)[layout.ATTRIBUTES :]))
    return out
