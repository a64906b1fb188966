"""Where ranges of offsets lie, reading them there, and the leases that keep the files in place."""

import os

import pytest
from log.samples import SMALL, batch_of, open_log, whole, write_cleaned

from sparklog.errors import ApiError, CorruptRecord, SegmentsLeased
from sparklog.log.extents import ExtentReader
from sparklog.log.lease import PATIENCE_S, Lease
from sparklog.record.batch import patch_header
from sparklog.record.records import iter_batches
from sparklog.testing.clock import ManualClock

DELETED = SMALL | {"retention.bytes": "0"}


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def log(tmp_path, clock):
    """Several segments, three records a batch."""
    log = open_log(tmp_path / "t-0", DELETED, clock=clock)
    while log.segment_count < 4:
        log.append_as_leader(batch_of(*[clock.now_ms()] * 3, size=30), 0)
    return log


def offsets_in(extents, reader=None):
    """(first, last) offset of every batch in the extents."""
    found, reader = [], reader or ExtentReader()
    for each in extents.files:
        fd = os.open(each.path, os.O_RDONLY)
        try:
            batches = list(map(bytes, (batch.buffer for batch in reader.batches(fd, each.start, each.end))))
        finally:
            os.close(fd)
        first = next(iter_batches(batches[0]))
        assert (first.base_offset, first.crc) == (each.first_offset, each.first_crc)
        assert (os.stat(each.path).st_dev, os.stat(each.path).st_ino) == (each.device, each.inode)
        found += [(batch.base_offset, batch.last_offset) for data in batches for batch in iter_batches(data)]
    return found


def test_any_range_is_the_batches_that_hold_it(log):
    everything = [(batch.base_offset, batch.last_offset) for batch in iter_batches(whole(log))]
    for start in range(log.log_end_offset):
        for end in range(start + 1, log.log_end_offset + 1):
            expected = [each for each in everything if each[1] >= start and each[0] < end]
            extents = log.extents(start, end)
            assert offsets_in(extents) == expected
            assert extents.end_offset == end


def test_what_is_about_to_give_way_is_told_of_but_not_leased(log, clock):
    bases = [each.base_offset for each in log.segment_facts()]
    replacement = log.begin_replacement([bases[1]], [bases[1]])
    lease = Lease(clock.monotonic(), 10)
    assert log.extents(0, bases[3]).end_offset == bases[3]
    found = log.extents(0, bases[3], lease=lease)
    assert ([each.first_offset for each in found.files], found.end_offset) == ([0], bases[1])
    assert log.extents(bases[1], bases[3], lease=lease) == ([], bases[1])
    replacement.end()
    assert log.extents(0, bases[3], lease=lease).end_offset == bases[3]


def test_segments_that_readers_are_kept_off_are_leased_again_when_the_hold_ends(log, clock):
    _, second, third, end = (each.base_offset for each in log.segment_facts())

    def leased():
        found = log.extents(0, end, lease=Lease(clock.monotonic(), 10))
        return [each.first_offset for each in found.files], found.end_offset

    hold = log.keep_readers_off([second], None)
    assert leased() == ([0], second)
    assert log.keep_readers_off([0, second], hold) is hold
    assert leased() == ([], 0)
    hold.end()
    assert leased() == ([0, second, third], end)


def test_a_hold_that_ends_lets_no_reader_at_what_a_swap_holds(log, clock):
    _, second, *_ = (each.base_offset for each in log.segment_facts())
    log.begin_replacement([second], [second])
    log.keep_readers_off([second], None).end()
    assert log.extents(second, log.log_end_offset, lease=Lease(clock.monotonic(), 10)) == ([], second)


def test_retention_takes_segments_that_readers_are_kept_off(log):
    log.keep_readers_off([each.base_offset for each in log.segment_facts()], None)
    assert log.delete_old_segments(log.log_end_offset)


def test_an_empty_range_has_no_files_and_one_outside_the_log_is_refused(log):
    assert log.extents(3, 3).files == log.extents(log.log_end_offset, 1 << 40).files == []
    with pytest.raises(ApiError, match="is not in 0 to"):
        log.extents(log.log_end_offset + 1, 1 << 40)


def test_no_more_files_than_asked_for_and_how_far_they_reach(log):
    second = log._segments.bases[1]
    extents = log.extents(0, log.log_end_offset, 1)
    assert len(extents.files) == 1
    assert extents.end_offset == second
    assert offsets_in(extents)[-1][1] == second - 1
    assert log.extents(0, log.log_end_offset, 0) == ([], 0)


def test_a_range_that_ends_in_the_hole_of_a_compacted_log_ends_before_the_batch_behind_it(tmp_path):
    log = open_log(tmp_path / "t-1")
    for offset in (0, 10, 20):
        batch = bytearray(batch_of(1000, 1001))
        patch_header(batch, 0, offset, 1)
        log.append_as_follower(memoryview(batch))
    for end in (2, 5, 10):
        assert offsets_in(log.extents(0, end)) == [(0, 1)]
    assert offsets_in(log.extents(0, 11)) == [(0, 1), (10, 11)]
    assert offsets_in(log.extents(5, 15)) == [(10, 11)]
    assert log.extents(2, 10).files == []


@pytest.mark.parametrize("block", [12, 64])
def test_batches_larger_than_the_buffer_are_read(log, block):
    """Also where it holds just enough of one to say its size."""
    assert offsets_in(log.extents(0, log.log_end_offset), ExtentReader(block)) == offsets_in(
        log.extents(0, log.log_end_offset)
    )


def test_the_last_batch_of_an_extent_may_be_larger_than_the_buffer(log):
    extents = log.extents(0, 1)
    assert offsets_in(extents, ExtentReader(block=64)) == offsets_in(extents) == [(0, 2)]


@pytest.mark.parametrize("cut", [0, 5, 40, 150])
def test_a_file_that_ends_too_soon_is_noticed(log, tmp_path, cut):
    (extent, *_) = log.extents(0, log.log_end_offset).files
    short = tmp_path / "short.log"
    short.write_bytes(extent.path.read_bytes()[:cut])
    with open(short, "rb") as file, pytest.raises(CorruptRecord, match="no whole batch at position"):
        list(ExtentReader(block=64).batches(file.fileno(), extent.start, extent.end))


def test_a_range_that_ends_in_the_hole_at_a_segments_end_has_all_of_that(log):
    """A compaction has left its first batch."""
    _, second, *_ = (each.base_offset for each in log.segment_facts())
    first = next(iter_batches(whole(log)))
    write_cleaned(log.directory, 0, [bytes(first.buffer)], log.config)
    log.replace_segments([0], [0])
    assert second > 4
    assert offsets_in(log.extents(0, second - 1)) == [(0, 2)]


def test_a_file_that_ends_within_a_batch_of_the_buffers_size_is_noticed(log, tmp_path):
    (extent, *_) = log.extents(0, log.log_end_offset).files
    size = next(iter_batches(extent.path.read_bytes())).size_in_bytes
    short = tmp_path / "short.log"
    short.write_bytes(extent.path.read_bytes()[: size - 1])
    with open(short, "rb") as file, pytest.raises(CorruptRecord, match="no whole batch at position 0"):
        list(ExtentReader(block=size).batches(file.fileno(), extent.start, extent.end))


def test_leased_segments_and_those_behind_them_outlast_retention(log, clock):
    first, second, *_ = log._segments.bases
    lease = Lease(clock.monotonic(), 30)
    log.extents(second, second + 1, lease=lease)
    gone = log.delete_old_segments(log.log_end_offset)
    assert {int(path.name[:20]) for path in gone} == {first}
    assert log.log_start_offset == second
    assert log.delete_old_segments(log.log_end_offset) == []
    clock.advance(30)
    assert log.delete_old_segments(log.log_end_offset)
    assert log.log_start_offset == log.log_end_offset


def test_a_lease_that_is_ended_holds_nothing(log, clock):
    lease = Lease(clock.monotonic(), 30)
    log.extents(0, log.log_end_offset, lease=lease)
    assert log.delete_old_segments(log.log_end_offset) == []
    lease.end()
    assert log.delete_old_segments(log.log_end_offset)


def test_readers_who_lease_again_and_again_hold_retention_back_for_so_long_only(log, clock):
    def lease_again():
        return log.extents(0, log.log_end_offset, lease=Lease(clock.monotonic(), 30)).files

    clock.advance(1000)
    held_s = 0.0
    while lease_again():
        assert held_s <= PATIENCE_S
        assert log.delete_old_segments(log.log_end_offset) == []
        clock.advance(20)
        held_s += 20
    assert held_s > PATIENCE_S, "and for no less"
    assert log.extents(0, log.log_end_offset).files, "it can be fetched until it goes"
    assert log.delete_old_segments(log.log_end_offset) == []  # one that was granted before still runs
    clock.advance(10)
    assert log.delete_old_segments(log.log_end_offset)
    assert log.log_start_offset == log.log_end_offset


def test_what_retention_wants_no_more_is_leased_again(log, clock):
    def lease_and_delete():
        log.extents(0, log.log_end_offset, lease=Lease(clock.monotonic(), 30))
        assert log.delete_old_segments(log.log_end_offset) == []

    lease_and_delete()
    clock.advance(PATIENCE_S - 10)
    lease_and_delete()
    clock.advance(10)
    lease_and_delete()
    again = Lease(clock.monotonic(), 30)
    assert log.extents(0, log.log_end_offset, lease=again).files == []
    assert log.delete_old_segments(log.log_end_offset, lambda *_: 0) == []
    assert log.extents(0, log.log_end_offset, lease=again).files


def test_leased_segments_are_not_replaced(log, clock):
    first, second, *_ = log._segments.bases
    kept = [bytes(batch.buffer) for batch in iter_batches(whole(log)) if batch.base_offset < second][:1]
    write_cleaned(log.directory, first, kept, log.config)
    before, lease = whole(log), Lease(clock.monotonic(), 30)
    log.extents(0, 1, lease=lease)
    with pytest.raises(SegmentsLeased, match=r"segments \[0\] of t-0 are leased"):
        log.replace_segments([first], [first])
    assert whole(log) == before
    lease.end()
    assert log.replace_segments([first], [first])
    assert len(whole(log)) < len(before)


def test_a_lease_holds_a_segment_once(log, clock):
    lease = Lease(clock.monotonic(), 30)
    for _ in range(3):
        log.extents(0, 1, lease=lease)
    assert log._segments.first.leases == [lease]


def test_a_lease_is_held_without_a_look_at_those_that_run(log, clock):
    class Seen(Lease):
        looks = 0

        @property
        def until(self):
            Seen.looks += 1
            return self._until

        @until.setter
        def until(self, value):
            self._until = value

    for _ in range(100):
        log.extents(0, 1, lease=Seen(clock.monotonic(), 30))
    assert len(log._segments.first.leases) == 100
    assert Seen.looks <= 200


def test_leases_that_have_ended_are_forgotten(log, clock):
    for _ in range(100):
        lease = Lease(clock.monotonic(), 30)
        log.extents(0, 1, lease=lease)
        clock.advance(10)
    assert len(log._segments.first.leases) == 3
    lease.end()
    log.extents(0, 1, lease=Lease(clock.monotonic(), 30))
    assert len(log._segments.first.leases) == 2
