"""What a consumer is given of a log in which an erasure or a compaction has left headers without records."""

import pytest
from log.samples import batch_of, read_bytes

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.log.indexes.time_index import TimestampOffset
from sparklog.log.segment import LogSegment
from sparklog.log.segments import LogPosition, LogSegments
from sparklog.record import layout
from sparklog.record.batch import RecordBatch, patch_header
from sparklog.record.rebuilding import empty_header
from sparklog.record.records import iter_batches

CONFIG = parse(TopicConfig, {"index.interval.bytes": "100"})


def batch_at(offset, kind):
    """One of one record; of kind ``.`` only its header is left."""
    records = batch_of(1000)
    patch_header(records, 0, offset, 0)
    return records if kind == "r" else memoryview(empty_header(RecordBatch(records)))


def segments_of(home, *kinds):
    """A segment for each text, a batch for each letter; offsets from 0 on."""
    segments, offset = LogSegments(), 0
    for text in kinds:
        segment = LogSegment(home, offset, CONFIG, active=True, create=True)
        for kind in text:
            segment.append(batch_at(offset, kind), offset, offset, TimestampOffset(1000, offset))
            offset += 1
        segments.add(segment)
    return segments


def end_of(segments, offset):
    """Where a reader is bounded that may not see ``offset``."""
    active = segments.active
    return segments.position_of(offset) or LogPosition(offset, active.base_offset, active.size)


def first_offset(piece):
    return None if piece is None else next(iter_batches(memoryview(read_bytes(piece)))).base_offset


@pytest.mark.parametrize(
    "kinds", [("rr.r..r",), ("..r", "...", "", "..", ".rr."), ("...", "..", "....."), (".r.", "r..r", "..r"), ("r",)]
)
@pytest.mark.parametrize("most", [1, layout.HEADER_SIZE, 100, 1 << 20])
def test_a_consumer_is_given_a_batch_with_records_first_or_the_last_without(tmp_path, kinds, most):
    segments, flat = segments_of(tmp_path, *kinds), "".join(kinds)
    for bound in range(1, len(flat) + 1):
        for offset in range(bound):
            wanted = next((at for at in range(offset, bound) if flat[at] == "r"), bound - 1)
            end = end_of(segments, bound)
            piece = segments.read(offset, most, end, min_one_batch=True, skips_empty=True)
            assert first_offset(piece) == wanted, (kinds, offset, bound)
            assert first_offset(segments.read(offset, most, end, min_one_batch=True)) == offset


def test_of_a_batch_that_is_too_large_nothing_is_given_but_the_reader_gets_to_it(tmp_path):
    segments = segments_of(tmp_path, "..", "r")
    end = end_of(segments, 3)
    assert first_offset(segments.read(0, layout.HEADER_SIZE, end, min_one_batch=False, skips_empty=True)) == 1
    assert segments.read(2, layout.HEADER_SIZE, end, min_one_batch=False, skips_empty=True).size == 0


def test_a_read_passes_over_so_many_segments_and_the_next_goes_on(tmp_path):
    """However small they are: each has to be looked into."""
    segments = segments_of(tmp_path, *"." * 70, "r")
    end = end_of(segments, 71)
    reads = [first_offset(segments.read(at, 1 << 20, end, min_one_batch=True, skips_empty=True)) for at in (0, 65)]
    assert reads == [64, 70]


@pytest.mark.parametrize("most", [1, 1 << 20])
def test_so_many_that_they_are_not_passed_over_at_once_are_passed_over_one_read_after_another(tmp_path, most):
    count = (10 << 20) // layout.HEADER_SIZE
    segments = LogSegments()
    segment = LogSegment(tmp_path, 0, CONFIG, active=True, create=True)
    empty, headers = batch_at(0, "."), bytearray()
    for offset in range(count):
        patch_header(empty, 0, offset, 0)
        headers += empty
    segment.append(memoryview(headers), 0, count - 1, TimestampOffset(1000, count - 1))
    for offset, kind in ((count, "r"), (count + 1, ".")):
        segment.append(batch_at(offset, kind), offset, offset, TimestampOffset(1000, offset))
    segments.add(segment)
    following = LogSegment(tmp_path, count + 2, CONFIG, active=True, create=True)
    following.append(batch_at(count + 2, "r"), count + 2, count + 2, TimestampOffset(1000, count + 2))
    segments.add(following)
    reads, at, end = 0, 0, end_of(segments, count + 3)
    while (first := first_offset(segments.read(at, most, end, min_one_batch=True, skips_empty=True))) < count:
        assert first > at
        at, reads = first + 1, reads + 1
    assert (first, reads) == (count, 2)
