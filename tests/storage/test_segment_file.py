"""Segment files: whole batches in order, and what is said of them."""

from contextlib import suppress
from uuid import UUID

import pytest

from sparklog.errors import CorruptRecord, StorageError
from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.storage.place import open_place
from sparklog.storage.segment_file import (
    SegmentFile,
    read_segment,
    read_topic_id,
    write_segments,
    write_topic_id,
)
from sparklog.structs import TopicPartition

TP = TopicPartition("clicks", 3)


@pytest.fixture
def place(tmp_path):
    return open_place(str(tmp_path))


def batch(offset, count=2, size=50, epoch=4, **more):
    builder = RecordBatchBuilder(base_offset=offset, partition_leader_epoch=epoch, **more)
    for number in range(count):
        builder.append(1000 + number, None, bytes(size))
    return RecordBatch(builder.build())


def written(place, batches, start=0, **more):
    return list(write_segments(place, "s", TP, start, batches, **more))


def test_a_file_has_the_batches_as_they_are(place):
    batches = [batch(0), batch(2), batch(7, is_control=True, count=1)]
    (file,) = written(place, batches)
    assert place.read(file.path) == b"".join(bytes(each.buffer) for each in batches)
    assert file.path == "s/clicks-3/00000000000000000000.log"
    assert (file.start, file.end, file.records, file.leader_epoch, file.max_timestamp_ms) == (0, 8, 4, 4, 1001)
    assert read_segment(place, file.path, 0) == file
    assert SegmentFile.from_json(file.to_json()) == file


def test_files_follow_one_another(place):
    batches = [batch(5 + 3 * number) for number in range(10)]  # with holes, as compaction leaves them
    files = written(place, batches, start=4, file_bytes=3 * batches[0].size_in_bytes)
    assert [(each.start, each.end) for each in files] == [(4, 13), (13, 22), (22, 31), (31, 34)]
    assert [each.path[-24:-4] for each in files] == [f"{base:020d}" for base in (5, 14, 23, 32)]
    assert b"".join(place.read(each.path) for each in files) == b"".join(bytes(each.buffer) for each in batches)


def test_a_batch_that_is_larger_than_a_file_is_one(place):
    assert len(written(place, [batch(0), batch(2), batch(4)], file_bytes=1)) == 3


def test_a_file_has_no_more_offsets_than_an_index_can_hold(place):
    assert len(written(place, [batch(0), batch(2**31 - 3), batch(2**31)])) == 2


def test_the_first_batch_may_begin_before_the_range(place):
    (file,) = written(place, [batch(0, count=5)], start=3)
    assert (file.start, file.end, file.path[-24:]) == (3, 5, f"{0:020d}.log")
    with pytest.raises(CorruptRecord, match="offset 0 stands where 5"):
        written(place, [batch(0, count=5)], start=5)


def test_batches_out_of_order_are_refused_and_leave_nothing(place):
    with pytest.raises(CorruptRecord, match="offset 1 stands where 2 or more should"):
        written(place, [batch(0), batch(1)])
    assert place.list("s/clicks-3").files == {}


@pytest.mark.parametrize("position", [0, 5, 30, 61, 120, -1])
def test_every_damaged_byte_is_seen(place, position):
    (file,) = written(place, [batch(0), batch(2)])
    data = bytearray(place.read(file.path))
    data[position] ^= 1
    place.write(file.path, bytes(data))
    with suppress(CorruptRecord):
        assert read_segment(place, file.path, 0) != file


@pytest.mark.parametrize("cut", [1, 60, 100, 200])
def test_a_file_that_was_cut_is_seen(place, cut):
    (file,) = written(place, [batch(0), batch(2)])
    place.write(file.path, place.read(file.path)[:-cut])
    with suppress(CorruptRecord):
        assert read_segment(place, file.path, 0) != file


def test_a_batch_may_be_larger_than_what_is_read_at_once(place):
    (file,) = written(place, [batch(0), batch(2, size=3 << 20), batch(4)])
    assert read_segment(place, file.path, 0) == file


@pytest.mark.parametrize("change", [{"start": "0"}, {"path": None}, {"end": True}, {"nbytes": 1.5}])
def test_what_describes_no_file_is_refused(place, change):
    (file,) = written(place, [batch(0)])
    with pytest.raises(StorageError, match="describes no segment file"):
        SegmentFile.from_json(file.to_json() | change)


def test_the_topic_id_is_kept_beside(place):
    topic_id = UUID(int=5)
    assert read_topic_id(place, "s", TP) is None
    write_topic_id(place, "s", TP, topic_id)
    write_topic_id(place, "s", TP, topic_id)
    assert read_topic_id(place, "s", TP) == topic_id
