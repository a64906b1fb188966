import pytest

from sparklog.errors import CorruptRecord
from sparklog.record.batch import RecordBatch, patch_append_time
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.record.records import Record, iter_batches, iter_records

pytestmark = pytest.mark.usefixtures("codec")


def build(base_offset=0, **fields):
    builder = RecordBatchBuilder(base_offset=base_offset, **fields)
    builder.append(1000, b"k", b"v")
    builder.append(900, None, b"", [("h", None), ("h", b"1")])
    return builder.build()


THREE = build(0) + build(2) + build(4)


def test_all_batches():
    assert [batch.base_offset for batch in iter_batches(THREE, partial_tail=False)] == [0, 2, 4]
    assert list(iter_batches(b"")) == []


@pytest.mark.parametrize("missing", [1, len(build()) - 62, len(build()) - 61, len(build()) - 12, len(build()) - 5])
def test_incomplete_tail(missing):
    cut = THREE[:-missing]
    assert [batch.base_offset for batch in iter_batches(cut)] == [0, 2]
    with pytest.raises(CorruptRecord):
        list(iter_batches(cut, partial_tail=False))


def test_corruption_is_not_a_tail():
    cut = bytearray(THREE)
    cut[8:12] = b"\xff\xff\xff\xff"
    with pytest.raises(CorruptRecord):
        list(iter_batches(cut))
    cut[8:12] = b"\x00\x00\x00\x05"
    with pytest.raises(CorruptRecord):
        list(iter_batches(cut))


@pytest.mark.parametrize("compression", CompressionType)
def test_records(compression):
    batch = RecordBatch(build(10, compression=compression))
    assert list(iter_records(batch)) == [
        Record(10, 1000, b"k", b"v", ()),
        Record(11, 900, None, b"", (("h", None), ("h", b"1"))),
    ]


def test_log_append_time_is_every_records_time():
    data = bytearray(build())
    patch_append_time(data, 0, 7777)
    assert [record.timestamp for record in iter_records(RecordBatch(data))] == [7777, 7777]


def test_empty_batch_has_no_records():
    assert list(iter_records(RecordBatch(RecordBatchBuilder(compression=CompressionType.ZSTD).build()))) == []


def test_bomb_limit():
    batch = RecordBatch(build(compression=CompressionType.GZIP))
    with pytest.raises(CorruptRecord):
        iter_records(batch, max_decompressed=5)
