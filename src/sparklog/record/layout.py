"""Where each field of a record batch v2 lies.

A batch is a 61-byte header followed by its records, big-endian throughout::

    offset size  field
         0    8  base offset
         8    4  length: bytes that follow this field
        12    4  partition leader epoch
        16    1  magic, always 2
        17    4  CRC-32C of everything from the attributes to the end of the batch
        21    2  attributes: bits 0-2 compression, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon
        23    4  last offset delta (kept when compaction removes the last record)
        27    8  base timestamp, ms (the delete horizon where bit 6 is set)
        35    8  max timestamp, ms (the append time where bit 3 is set)
        43    8  producer id, -1 for none
        51    2  producer epoch
        53    4  base sequence
        57    4  record count
        61       records, compressed as a whole where bits 0-2 say so

A record is varints (zigzag) and bytes::

    length | attributes (1 byte, unused) | timestamp delta | offset delta
    | key length, -1 for null | key | value length, -1 for null | value
    | header count, then for each: key length | key (UTF-8) | value length, -1 for null | value

Base offset, length, epoch and magic lie before the CRC, so a broker assigns offsets without touching it.
Source: Kafka 3.9, ``DefaultRecordBatch`` and ``DefaultRecord``.
"""

from __future__ import annotations

from struct import Struct

from sparklog.errors import CorruptRecord

BASE_OFFSET = 0
LENGTH = 8
PARTITION_LEADER_EPOCH = 12
MAGIC = 16
CRC = 17
ATTRIBUTES = 21
LAST_OFFSET_DELTA = 23
BASE_TIMESTAMP = 27
MAX_TIMESTAMP = 35
PRODUCER_ID = 43
PRODUCER_EPOCH = 51
BASE_SEQUENCE = 53
RECORD_COUNT = 57
RECORDS = 61

HEADER_SIZE = RECORDS
LOG_OVERHEAD = 12
"""Bytes of base offset and length, which the length field does not count."""

MIN_RECORD_SIZE = 7
"""The shortest record there is: six one-byte varints and the attributes."""

MAGIC_V2 = 2
COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
ALL_ATTRIBUTES = 0x7F

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1

MAX_INT32 = 2**31 - 1
MIN_INT64 = -(2**63)
MAX_INT64 = 2**63 - 1

HEADER = Struct(">qiibIhiqqqhii")
OFFSET_AND_LENGTH = Struct(">qi")
INT64 = Struct(">q")
INT32 = Struct(">i")
UINT32 = Struct(">I")
INT16 = Struct(">h")


def check_record_count(count: int, payload_size: int) -> None:
    """Refuse a record count that ``payload_size`` bytes cannot hold, before anything is allocated for it.

    Raises CorruptRecord.
    """
    if not 0 <= count * MIN_RECORD_SIZE <= payload_size:
        raise CorruptRecord(f"record batch claims {count} records in {payload_size} bytes")
