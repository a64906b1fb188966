"""What the versions of Produce demand of a partition's records, whatever partition it is.

Version 3 and later bring exactly one batch of format 2; zstd is for clients of version 7 (Kafka 3.9,
``ProduceRequest.validateRecords``, and ``ByteBufferLogInputStream`` for what counts as a batch). A last batch that is
not whole counts for nothing.
"""

from __future__ import annotations

from sparklog.errors import ErrorCode, RefusedUnseen
from sparklog.record.compression import CompressionType
from sparklog.record.layout import ATTRIBUTES, COMPRESSION_MASK, INT32, LENGTH, LOG_OVERHEAD, MAGIC, MAGIC_V2

FIRST_VERSION_WITH_ZSTD = 7
FIRST_VERSION_OF_BATCHES = 3
"""Those before it bring message sets of magic 0 or 1, or a batch."""
_SMALLEST_SIZE = 14
"""Bytes behind the length field, in any format."""


def fault_of(records: memoryview, version: int) -> RefusedUnseen | None:
    """Why a request of this version may not bring these records: INVALID_RECORD, CORRUPT_MESSAGE or
    UNSUPPORTED_COMPRESSION_TYPE. None if it may, as far as this goes: CRC and header are the log's to check.
    """
    if version < FIRST_VERSION_OF_BATCHES:
        return None
    try:
        size = _size_of_first(records)
        if not size:
            return RefusedUnseen(ErrorCode.INVALID_RECORD, f"no whole batch in {len(records)} bytes")
        if records[MAGIC] != MAGIC_V2:
            complaint = f"message format {records[MAGIC]} is not accepted; only record batches (format 2) are"
            return RefusedUnseen(ErrorCode.INVALID_RECORD, complaint)
        if version < FIRST_VERSION_WITH_ZSTD and _is_zstd(records):
            complaint = f"zstd is for clients that speak Produce {FIRST_VERSION_WITH_ZSTD} or later, not {version}"
            return RefusedUnseen(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, complaint)
        if _size_of_first(records[size:]):
            return RefusedUnseen(ErrorCode.INVALID_RECORD, "a partition takes exactly one batch a request")
    except RefusedUnseen as fault:
        return fault
    return None


def _is_zstd(records: memoryview) -> bool:
    return records[ATTRIBUTES + 1] & COMPRESSION_MASK == CompressionType.ZSTD


def _size_of_first(records: memoryview) -> int:
    """How many bytes the first batch has, 0 if none is whole. Raises RefusedUnseen for what cannot be a batch."""
    if len(records) < LOG_OVERHEAD:
        return 0
    (size,) = INT32.unpack_from(records, LENGTH)
    if size < _SMALLEST_SIZE:
        raise RefusedUnseen(ErrorCode.CORRUPT_MESSAGE, f"a batch claims a length of {size}")
    if len(records) <= MAGIC:
        return 0
    if records[MAGIC] > MAGIC_V2:
        raise RefusedUnseen(ErrorCode.CORRUPT_MESSAGE, f"message format {records[MAGIC]} is unknown")
    whole = LOG_OVERHEAD + int(size)
    return whole if whole <= len(records) else 0
