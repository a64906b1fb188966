"""Which records a version of Produce may bring."""

import pytest
from record.legacy_bytes import entry

from sparklog.broker.sent_records import fault_of
from sparklog.errors import ErrorCode
from sparklog.record import layout
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType

INVALID, CORRUPT = ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE


def batch(codec=CompressionType.NONE):
    builder = RecordBatchBuilder(compression=codec)
    builder.append(0, b"k", b"v")
    return builder.build()


def with_field(position, value, size=layout.INT32):
    changed = bytearray(batch())
    size.pack_into(changed, position, value)
    return bytes(changed)


def code_of(data, version):
    fault = fault_of(memoryview(data), version)
    return fault and fault.code


GOOD = batch()
FAULTS = {
    "none": (b"", INVALID),
    "no length": (GOOD[:11], INVALID),
    "no magic": (GOOD[:16], INVALID),
    "cut short": (GOOD[:-1], INVALID),
    "a length below any format's": (with_field(layout.LENGTH, 13), CORRUPT),
    "a negative length": (with_field(layout.LENGTH, -1), CORRUPT),
    "a length below any format's, and no magic": (with_field(layout.LENGTH, 13)[:12], CORRUPT),
    "a length beyond the end": (with_field(layout.LENGTH, layout.MAX_INT32), INVALID),
    "format 1": (entry(0, b"k", b"v", magic=1, timestamp=5), INVALID),
    "format 0": (entry(0, b"k", b"v"), INVALID),
    "format 3": (GOOD[:16] + b"\3" + GOOD[17:], CORRUPT),
    "format -1": (GOOD[:16] + b"\xff" + GOOD[17:], CORRUPT),
    "two batches": (GOOD + GOOD, INVALID),
    "a batch and what is none": (GOOD + b"\xff" * 12, CORRUPT),
    "a batch and a half": (GOOD + GOOD[:-1], None),
    "a batch and a byte": (GOOD + b"\0", None),
    "a broken CRC": (GOOD[:-1] + b"?", None),
    "a batch": (GOOD, None),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name):
    data, code = FAULTS[name]
    assert [code_of(data, version) for version in (2, 3, 6, 7, 12)] == [None] + [code] * 4


@pytest.mark.parametrize("codec", list(CompressionType))
def test_only_clients_that_know_zstd_may_send_it(codec):
    refused = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if codec is CompressionType.ZSTD else None
    data = batch(codec)
    assert [code_of(data, version) for version in (0, 2, 3, 6, 7, 12)] == [None, None, refused, refused, None, None]
    assert code_of(data + GOOD, 3) is (refused or INVALID), "the first batch is looked at first"
