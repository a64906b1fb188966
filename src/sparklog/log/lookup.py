"""Finding a record by its time in a batch."""

from __future__ import annotations

from sparklog.log.time_index import TimestampOffset
from sparklog.record.batch import RecordBatch
from sparklog.record.columnar import ColumnarDecoder


def first_record_from(batch: RecordBatch, timestamp: int, start_offset: int) -> TimestampOffset | None:
    """The first record of ``batch`` at or beyond ``start_offset`` that is no earlier than ``timestamp``."""
    if batch.is_control and batch.record_count:  # a marker counts, though the decoder has no row for it
        return TimestampOffset(batch.max_timestamp, batch.base_offset)
    decoder = ColumnarDecoder(("offset", "timestamp"))
    decoder.append(batch, start_offset)
    columns = decoder.finish()
    rows = zip(columns["timestamp"].to_pylist(), columns["offset"].to_pylist(), strict=True)
    return next((TimestampOffset(at, offset) for at, offset in rows if at >= timestamp), None)
