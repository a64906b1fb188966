"""The codec in Cython; ``_codec`` holds all of it."""

from __future__ import annotations

from sparklog.record._impl._codec import (
    BatchScanner,
    RecordDecoder,
    RecordEncoder,
    murmur2,
    partition_rows,
    read_placed_records,
    read_records,
    write_record,
)

__all__ = [
    "BatchScanner",
    "RecordDecoder",
    "RecordEncoder",
    "murmur2",
    "name",
    "partition_rows",
    "read_placed_records",
    "read_records",
    "write_record",
]

name = "native"
