import pytest

from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.record.records import iter_records

pytestmark = pytest.mark.usefixtures("codec")

BY_HAND = """
    0000000000000005 00000044 00000002 02  base offset, length, leader epoch, magic
    {crc}
    0018 00000001                          attributes: log append time and transactional; last offset delta
    00000000000003e8 00000000000003e8      base and max timestamp
    0000000000000007 0001 00000003         producer id, epoch, sequence
    00000002                               record count
    0e 00 00 00 02 6b 01 00                7 bytes, attributes, time +0, offset +0, key 'k', null, no headers
    14 00 01 02 01 00 02 02 68 02 78       10 bytes, attributes, time -1, offset +1, null, '', one header 'h' 'x'
"""


def test_bytes_by_hand():
    builder = RecordBatchBuilder(
        base_offset=5,
        partition_leader_epoch=2,
        producer_id=7,
        producer_epoch=1,
        base_sequence=3,
        is_transactional=True,
        timestamp_type=1,
    )
    assert builder.append(1000, b"k", None) == 5
    assert builder.append(999, None, b"", [("h", b"x")]) == 6
    data = builder.build()
    lines = [line.strip().split("  ")[0] for line in BY_HAND.format(crc=data[17:21].hex()).strip().splitlines()]
    assert data == bytes.fromhex("".join(lines))
    RecordBatch(data).validate()


def test_size_estimate_is_the_uncompressed_size():
    builder = RecordBatchBuilder()
    assert builder.size_estimate == len(builder.build()) == 61
    for n in range(300):
        builder.append(n, b"key", b"v" * n, [("h", None)])
        assert builder.size_estimate == len(builder.build())


def test_building_twice():
    builder = RecordBatchBuilder(compression=CompressionType.ZSTD)
    builder.append(5, b"a", b"1")
    first = builder.build()
    builder.append(3, b"b", b"2")
    assert [record.key for record in iter_records(RecordBatch(first))] == [b"a"]
    second = RecordBatch(builder.build())
    assert [record.key for record in iter_records(second)] == [b"a", b"b"]
    assert (second.base_timestamp, second.max_timestamp) == (5, 5)


def test_empty_batch():
    batch = RecordBatch(RecordBatchBuilder().build())
    batch.validate()
    assert (batch.record_count, batch.last_offset_delta, batch.max_timestamp) == (0, 0, -1)


def test_any_bytes_like_value():
    builder = RecordBatchBuilder()
    builder.append(1, bytearray(b"k"), memoryview(b"value"), (("h", bytearray(b"x")),))
    (record,) = iter_records(RecordBatch(builder.build()))
    assert (record.key, record.value, record.headers) == (b"k", b"value", (("h", b"x"),))
