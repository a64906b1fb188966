import gc
import sys
from typing import Any, NamedTuple

import pytest

from sparklog.errors import CorruptRecord
from sparklog.record import _impl
from sparklog.record._impl.abc import BatchFields, RecordPlace
from sparklog.record.batch import RecordBatch, patch_append_time
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.record.records import Record, iter_batches, iter_records, placed_records

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


class Placed(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int


@pytest.mark.parametrize("compression", CompressionType)
def test_records_that_say_where_they_are(compression):
    data = bytearray(build(10, compression=compression, partition_leader_epoch=7))
    assert placed_records(RecordBatch(data), "t", 3, Placed) == [
        Placed("t", 3, 10, 1000, 0, b"k", b"v", (), 7),
        Placed("t", 3, 11, 900, 0, None, b"", (("h", None), ("h", b"1")), 7),
    ]
    patch_append_time(data, 0, 7777)
    found = placed_records(RecordBatch(data), "t", 3, Placed)
    assert [(type(each), each.timestamp, each.timestamp_type) for each in found] == [(Placed, 7777, 1)] * 2


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


def test_records_live_and_die_without_the_garbage_collector():
    """What a record holds is given back with it, though the collector does not know the record."""
    data = build(5)
    payload = RecordBatch(data)
    topic = "".join(["a topic", " of its own"])
    before = sys.getrefcount(topic)
    found = placed_records(payload, topic, 0, Placed)
    assert sys.getrefcount(topic) == before + 2
    gc.collect()
    assert found[1].headers == (("h", None), ("h", b"1"))
    del found
    assert sys.getrefcount(topic) == before


def test_the_native_codec_makes_named_tuples_only():
    codec: Any = _impl.load("native")
    for kind in (list, int, dict):
        with pytest.raises(TypeError, match="no named tuple"):
            codec.read_placed_records(b"", BatchFields(0, 0, 0, None), RecordPlace("t", 0, 0, 0), kind)
