"""The codec in Cython; ``_codec`` holds all of it."""

from __future__ import annotations

from sparklog.record._impl._codec import (
    BatchRewriter,
    BatchScanner,
    OffsetMap,
    RecordDecoder,
    RecordEncoder,
    check_records,
    murmur2,
    partition_rows,
    read_placed_records,
    read_records,
    skip_plain,
    take_latest,
    write_record,
)

__all__ = [
    "BatchRewriter",
    "BatchScanner",
    "OffsetMap",
    "RecordDecoder",
    "RecordEncoder",
    "check_records",
    "murmur2",
    "name",
    "partition_rows",
    "read_placed_records",
    "read_records",
    "skip_plain",
    "take_latest",
    "write_record",
]

name = "native"
