"""One segment by itself: when it is full, what is found in it, and what of it a reader, an index and a crash see."""

import os
import stat
from pathlib import Path

import pytest
from log.samples import batch_of, transactional

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import CorruptRecord
from sparklog.log.indexes.time_index import TimestampOffset
from sparklog.log.indexes.transaction_index import AbortedTransaction
from sparklog.log.recovery import recover_segment
from sparklog.log.segment import MAX_RELATIVE_OFFSET, LogSegment
from sparklog.record import layout
from sparklog.record.batch import RecordBatch, patch_header
from sparklog.record.rebuilding import empty_header
from sparklog.testing.steps import counted, finish

BASE = 100
SIZE = len(batch_of(1))


def made(home, settings=None, *, base=BASE):
    config = parse(TopicConfig, {"index.interval.bytes": "0", **(settings or {})})
    return LogSegment(home, base, config, active=True, create=True)


def put(segment, offset, *times, records=None):
    """Append a batch of one record a time, from ``offset`` on; its position."""
    data = records if records is not None else batch_of(*times)
    patch_header(data, 0, offset, 0)
    count = max(len(times), 1)
    latest = max(times, default=-1)
    return segment.append(data, offset, offset + count - 1, TimestampOffset(latest, offset + count - 1))


@pytest.fixture
def segment(tmp_path):
    """Offsets 100 to 105 in four batches, two of them of two records, the greatest time in the third."""
    segment = made(tmp_path)
    for offset, times in ((100, (10, 20)), (102, (15,)), (103, (90, 30)), (105, (40,))):
        put(segment, offset, *times)
    return segment


# When a new one is due


def test_an_empty_segment_is_not_rolled_for_size_or_age(tmp_path):
    segment = made(tmp_path, {"segment.bytes": "100", "segment.ms": "10"})
    assert not segment.should_roll(101, BASE, 1, now_ms=1 << 40)


@pytest.mark.parametrize("is_filled", [False, True])
def test_a_segment_is_rolled_where_an_index_could_not_say_the_offset(tmp_path, is_filled):
    segment = made(tmp_path)
    if is_filled:
        put(segment, BASE, 1)
    assert not segment.should_roll(10, BASE + MAX_RELATIVE_OFFSET, 1, 1)
    assert segment.should_roll(10, BASE + MAX_RELATIVE_OFFSET + 1, 1, 1)


def test_a_segment_may_be_filled_to_its_size(tmp_path):
    segment = made(tmp_path, {"segment.bytes": str(SIZE + 50)})
    put(segment, BASE, 1)
    assert not segment.should_roll(50, BASE + 1, 1, 1)
    assert segment.should_roll(51, BASE + 1, 1, 1)


@pytest.mark.parametrize(("policy", "longest_ms"), [("compact", 500), ("compact,delete", 500), ("delete", 1000)])
def test_the_segments_of_a_compacted_topic_are_in_time_for_its_longest_lag(tmp_path, policy, longest_ms):
    settings = {"cleanup.policy": policy, "segment.ms": "1000", "max.compaction.lag.ms": "500"}
    segment = made(tmp_path, settings)
    put(segment, BASE, 5000)
    assert not segment.should_roll(1, BASE + 1, 5000 + longest_ms, 0)
    assert segment.should_roll(1, BASE + 1, 5001 + longest_ms, 0)


def test_a_segment_may_reach_its_age_by_the_time_of_its_records(tmp_path):
    segment = made(tmp_path, {"segment.ms": "1000"})
    put(segment, BASE, 5000)
    assert not segment.should_roll(1, BASE + 1, 6000, now_ms=1 << 40)
    assert segment.should_roll(1, BASE + 1, 6001, now_ms=0)
    segment.jitter_ms = 100
    assert not segment.should_roll(1, BASE + 1, 5900, 0)
    assert segment.should_roll(1, BASE + 1, 5901, 0)


def test_the_first_record_tells_the_age_also_after_it_was_opened_again(tmp_path):
    segment = made(tmp_path, {"segment.ms": "1000"})
    put(segment, BASE, 5000)
    put(segment, BASE + 1, 100)
    segment.close()
    again = LogSegment(tmp_path, BASE, segment.config, active=True)
    assert not again.should_roll(1, BASE + 2, 6000, 0)
    assert again.should_roll(1, BASE + 2, 6001, 0)


def test_records_without_a_time_age_by_the_clock(tmp_path):
    segment = made(tmp_path, {"segment.ms": "1000"})
    put(segment, BASE)
    assert not segment.should_roll(1, BASE + 1, -1, now_ms=7000), "the clock starts when it is first asked"
    assert not segment.should_roll(1, BASE + 1, -1, now_ms=8000)
    assert segment.should_roll(1, BASE + 1, -1, now_ms=8001)
    segment.created_ms = 7500
    assert not segment.should_roll(1, BASE + 1, -1, now_ms=8500)


@pytest.mark.parametrize("times", [(5000,), ()], ids=["of its records", "of the clock"])
def test_a_segment_that_was_cut_to_nothing_is_as_old_as_what_comes_next(tmp_path, times):
    """A follower's first segment may be cut to its base, and so may be a coordinator's."""
    segment = made(tmp_path, {"segment.ms": "1000"})
    put(segment, BASE, *times)
    segment.created_ms = 5000
    segment.truncate_to(BASE)
    later = [9000 + time - 5000 for time in times]
    assert not segment.should_roll(1, BASE, *later or [-1], now_ms=9000)
    put(segment, BASE, *later)
    assert not segment.should_roll(1, BASE + 1, *later or [-1], now_ms=9000)
    segment.truncate_to(BASE + 1)
    assert segment.should_roll(1, BASE + 1, *[each + 1001 for each in later] or [-1], now_ms=10001), "that counts on"


def test_a_time_of_zero_is_a_time(tmp_path):
    segment = made(tmp_path, {"segment.ms": "1000"})
    put(segment, BASE, 0)
    assert segment.should_roll(1, BASE + 1, 1001, now_ms=0)


def test_a_full_index_rolls_a_segment(tmp_path):
    for directory, settings in (("a", {"segment.index.bytes": "24"}), ("b", {"segment.index.bytes": "47"})):
        (tmp_path / directory).mkdir()
        segment = made(tmp_path / directory, settings)
        rolls = []
        for number in range(5):
            rolls.append(segment.should_roll(1, BASE + number, number, 0))
            put(segment, BASE + number, number + 1)
        entries = 1 if directory == "a" else 2  # of the time index, whose last slot is kept
        assert rolls == [False] * (entries + 1) + [True] * (4 - entries)


# What is found


def test_the_batch_of_an_offset_is_found(segment):
    positions = [batch.position for batch in segment.log.batches()]
    for offset, number in ((0, 0), (100, 0), (101, 0), (102, 1), (103, 2), (104, 2), (105, 3)):
        assert segment.find(offset).position == positions[number]
        assert segment.position_after(offset) == positions[number]
        assert [batch.position for batch in segment.batches_from(offset)] == positions[number:]
    assert segment.find(106) is None
    assert segment.position_after(106) == segment.size
    assert list(segment.batches_from(106)) == []
    assert segment.next_offset() == 106


def test_a_segment_that_holds_nothing_ends_where_it_begins(tmp_path):
    segment = made(tmp_path)
    assert segment.next_offset() == BASE
    assert segment.find(BASE) is None
    assert segment.latest == (-1, BASE)


def test_a_slice_is_what_was_asked_for_and_no_more_than_there_is(segment):
    first, second, third, _ = segment.log.batches()

    def given(offset, most, end=segment.size, *, whole=False):
        piece = segment.read(offset, most, end, min_one_batch=whole)
        return None if piece is None else (piece.position, piece.size)

    assert given(101, first.size - 1) == (0, 0)
    assert given(101, first.size + 10) == (0, first.size + 10)
    assert given(101, 10, whole=True) == (0, first.size)
    assert given(102, 1 << 20, whole=True) == (second.position, segment.size - second.position)
    assert given(102, 1 << 20, third.position) == (second.position, second.size)
    assert given(103, 1 << 20, third.position) == (third.position, 0)
    assert given(103, 1 << 20, second.position, whole=True) == (third.position, 0)
    assert given(106, 1 << 20) is None


def test_only_batches_that_bear_a_producer_are_shown_for_its_state(tmp_path):
    segment = made(tmp_path)
    for offset in range(BASE, BASE + 6):
        put(segment, offset, 1, records=transactional(offset % 2, 0) if offset != BASE + 3 else None)
    found = [(batch.base_offset, batch.producer_id) for batch in segment.producers_batches(BASE + 1, BASE + 5)]
    assert found == [(BASE + 1, 1), (BASE + 2, 0), (BASE + 4, 0)]


@pytest.mark.parametrize(
    ("timestamp", "start", "found"),
    [
        (0, 0, (10, 100)),
        (11, 0, (20, 101)),
        (15, 102, (15, 102)),
        (21, 0, (90, 103)),
        (90, 104, None),
        (30, 104, (30, 104)),
        (40, 105, (40, 105)),
        (41, 104, None),
        (91, 0, None),
        (0, 106, None),
    ],
)
def test_the_first_record_no_earlier_than_a_time_is_found(segment, timestamp, start, found):
    assert finish(segment.offset_for_timestamp(timestamp, start)) == found


@pytest.mark.parametrize(
    ("start", "latest"), [(0, (90, 103)), (103, (90, 103)), (104, (40, 105)), (105, (40, 105)), (106, None)]
)
def test_the_latest_record_from_an_offset_on(segment, start, latest):
    assert finish(segment.latest_from(start)) == latest


def test_the_latest_may_be_left_in_the_batch_that_is_cut_by_the_start(tmp_path):
    segment = made(tmp_path)
    put(segment, BASE, 90, 50)
    put(segment, BASE + 2, 40)
    assert finish(segment.latest_from(BASE + 1)) == (50, BASE + 1)


def test_a_batch_of_which_the_start_has_left_only_a_hole_has_no_latest(tmp_path):
    segment = made(tmp_path)
    records = batch_of(90)
    layout.INT32.pack_into(records, layout.LAST_OFFSET_DELTA, 1)  # as a compaction leaves it
    patch_header(records, 0, BASE, 0)
    segment.append(records, BASE, BASE + 1, TimestampOffset(90, BASE + 1))
    assert finish(segment.latest_from(BASE + 1)) is None
    put(segment, BASE + 2, 40)
    assert finish(segment.latest_from(BASE + 1)) == (40, BASE + 2)


@pytest.mark.parametrize("times", [(90, 40, 30), (40, 90, 30), (40, 30, 90)])
def test_a_batch_of_which_all_records_were_erased_hides_no_latest(tmp_path, times):
    """Its header keeps its time, for retention."""
    segment = made(tmp_path)
    for number, time in enumerate(times):
        records = batch_of(time)
        patch_header(records, 0, BASE + number, 0)
        kept = memoryview(empty_header(RecordBatch(records))) if time == 90 else records
        segment.append(kept, BASE + number, BASE + number, TimestampOffset(time, BASE + number))
    assert segment.latest.timestamp == 90
    assert finish(segment.latest_from(BASE)) == (40, BASE + times.index(40))


def test_the_latest_may_be_of_time_0(tmp_path):
    segment = made(tmp_path)
    put(segment, BASE, 90)
    put(segment, BASE + 1, 0)
    assert finish(segment.latest_from(BASE + 1)) == (0, BASE + 1)


def test_of_several_of_the_latest_time_the_first_counts(tmp_path):
    segment = made(tmp_path)
    put(segment, BASE, 90)
    for offset in range(BASE + 1, BASE + 4):
        put(segment, offset, 50)
    assert finish(segment.latest_from(BASE + 1)) == (50, BASE + 1)
    assert finish(segment.latest_from(BASE + 2)) == (50, BASE + 2)


def test_records_without_a_time_have_no_latest(tmp_path):
    segment = made(tmp_path)
    put(segment, BASE)
    assert finish(segment.latest_from(BASE)) is None
    put(segment, BASE + 1, 0)
    assert finish(segment.latest_from(BASE)) == (0, BASE + 1)


def test_where_no_record_has_a_time_the_file_tells_the_age(tmp_path):
    segment = made(tmp_path)
    put(segment, BASE)
    os.utime(segment.log.path, (3, 3))
    assert segment.latest_or_mtime() == 3000
    put(segment, BASE + 1, 0)
    assert segment.latest_or_mtime() == 0


@pytest.fixture
def reads(monkeypatch):
    """A list that has an element for each read of a ``.log`` file."""
    made, read = [], os.pread

    def pread(fd, size, position):
        if Path(f"/proc/self/fd/{fd}").readlink().suffix == ".log":
            made.append(size)
        return read(fd, size, position)

    monkeypatch.setattr("os.pread", pread)
    return made


def most_reads_a_step(search, reads):
    """And what the search finds."""
    most = 0
    while True:
        del reads[:]
        try:
            next(search)
        except StopIteration as end:
            return max(most, len(reads)), end.value
        most = max(most, len(reads))


def of_one_time(home, count, settings=None):
    """A segment of ``count`` batches of time 10, with a last one of time 30."""
    segment = made(home, settings)
    for number in range(count):
        put(segment, BASE + number, 10)
    put(segment, BASE + count, 30)
    return segment


@pytest.mark.parametrize("interval", [0, 3 * SIZE, 1000 * SIZE], ids=["each", "some", "seldom"])
@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_late_time_is_found_near_the_entry_that_reaches_it(tmp_path, interval, is_sealed, reads):
    segment = of_one_time(tmp_path, 500, {"index.interval.bytes": str(interval)})
    if is_sealed:
        segment.seal()
    enough = 2 + min(interval, 4096) // SIZE
    for timestamp, offset in ((10, BASE), (11, BASE + 500), (30, BASE + 500)):
        most, found = most_reads_a_step(segment.offset_for_timestamp(timestamp, 0), reads)
        assert found == (10 if timestamp == 10 else 30, offset)
        assert most <= enough + 2
    assert finish(segment.latest_from(0)) == (30, BASE + 500)
    assert finish(segment.offset_for_timestamp(31, 0)) is None


def test_what_a_full_time_index_does_not_say_is_found_all_the_same(tmp_path):
    segment = made(tmp_path, {"segment.index.bytes": "48"})
    times = (10, 20, 30, 40, 50, 60, 70)
    for number, time in enumerate(times):
        put(segment, BASE + number, time)
    assert (segment.time_index.entries, segment.offset_index.entries) == (3, 6)
    for _ in range(2):
        found = [finish(segment.offset_for_timestamp(time, 0)) for time in times]
        assert found == [(time, BASE + number) for number, time in enumerate(times)]
        segment.seal()


def test_a_segment_that_the_log_start_has_cut_is_looked_through_in_steps(tmp_path, reads):
    segment = made(tmp_path)
    put(segment, BASE, 90)
    for number in range(1, 1000):
        put(segment, BASE + number, 50 if number == 700 else 10)
    for search in (segment.latest_from(BASE + 1), segment.offset_for_timestamp(50, BASE + 1)):
        most, found = most_reads_a_step(search, reads)
        assert found == (50, BASE + 700)
        assert most <= 205
    assert counted(segment.latest_from(BASE + 1))[0] == 4
    assert counted(segment.offset_for_timestamp(50, BASE + 1))[0] == 3, "no records of an earlier time are looked at"


# Its indexes


def test_an_entry_is_written_for_the_first_append_past_the_interval(tmp_path):
    segment = made(tmp_path, {"index.interval.bytes": str(SIZE)})
    for number in range(5):
        put(segment, BASE + number, 10 + number)
    assert [segment.offset_index.lookup(BASE + number).offset for number in range(5)] == [100, 100, 102, 102, 104]
    assert segment.offset_index.last == (BASE + 4, 4 * SIZE)
    assert segment.time_index.last == (14, BASE + 4)


@pytest.mark.parametrize("is_recovered", [False, True])
def test_no_offset_is_far_from_an_entry_however_long_the_interval(tmp_path, is_recovered, reads):
    segment = made(tmp_path, {"index.interval.bytes": str((1 << 31) - 1)})
    for number in range(500):
        put(segment, BASE + number, 10)
    if is_recovered:
        recover_segment(segment, None, lambda *_: None)
    segment.check_indexes()
    assert not segment.has_sparse_index()
    assert segment.config.index_interval_bytes == (1 << 31) - 1
    for number in range(0, 500, 7):
        del reads[:]
        assert segment.find(BASE + number).base_offset == BASE + number
        assert len(reads) <= 4096 // SIZE + 2


def sparse(home, *sizes, config=None):
    """A segment with batches of such sizes, whose indexes have no entry, opened with a long interval."""
    segment = made(home)
    for number, size in enumerate(sizes):
        put(segment, BASE + number, records=batch_of(number, size=size))
    segment.close()
    for suffix in ("index", "timeindex"):
        os.truncate(home / f"{BASE:020d}.{suffix}", 0)
    settings = {"index.interval.bytes": "100000", **(config or {})}
    return LogSegment(home, BASE, parse(TopicConfig, settings), active=False)


def test_an_index_of_few_entries_is_made_anew(tmp_path):
    segment = sparse(tmp_path, *[10] * 500)
    assert segment.has_sparse_index()
    segment.index_anew()
    segment.check_indexes()
    assert not segment.has_sparse_index()
    assert segment.offset_index.entries == segment.size // (4096 + SIZE)
    segment.close()
    again = LogSegment(tmp_path, BASE, segment.config, active=False)
    assert again.offset_index.entries == segment.size // (4096 + SIZE)


def test_a_stretch_without_entries_is_found_among_many_that_have_theirs(tmp_path):
    """Behind and before more gaps than are looked into."""
    segment = made(tmp_path)
    for number in range(400):
        put(segment, BASE + number, 1)
    segment.close()
    path, entry = tmp_path / f"{BASE:020d}.index", 8
    entries = path.read_bytes()
    path.write_bytes(entries[: 50 * entry] + entries[350 * entry :])
    config = parse(TopicConfig, {"index.interval.bytes": "100000"})
    assert LogSegment(tmp_path, BASE, config, active=False).has_sparse_index()


@pytest.mark.parametrize("time", [-1, 5])
def test_an_index_that_is_made_anew_is_the_one_that_was_written(tmp_path, time):
    segment = made(tmp_path, {"index.interval.bytes": str(SIZE)})
    for offset in range(BASE, BASE + 9):
        put(segment, offset, time, records=batch_of(time, size=10))
    written = [*segment.offset_index.positions()], segment.latest
    segment.index_anew()
    assert ([*segment.offset_index.positions()], segment.latest) == written
    assert written[0] == [number * SIZE for number in (2, 4, 6, 8)]


def test_an_index_that_is_made_anew_knows_the_first_of_several_batches_of_the_latest_time(tmp_path):
    segment = made(tmp_path)
    for offset, time in enumerate((1, 3, 3, 2), BASE):
        put(segment, offset, time)
    segment.index_anew()
    assert segment.latest == (3, BASE + 1)
    segment.close()
    again = LogSegment(tmp_path, BASE, segment.config, active=False)
    again.load_latest()
    assert again.latest == (3, BASE + 1)


@pytest.mark.parametrize(
    ("sizes", "config"),
    [
        ([10] * 100, {}),
        ([20_000], {}),
        ([10, 20_000], {}),
        ([100_000, *[10] * 100], {"index.interval.bytes": "4096"}),
        ([10] * 500, {"index.interval.bytes": "4096"}),
        ([10] * 500, {"segment.index.bytes": "7"}),
    ],
    ids=["short", "one large", "large last", "large first", "as set", "full"],
)
def test_an_index_is_left_in_which_no_entry_is_missing(tmp_path, sizes, config):
    assert not sparse(tmp_path, *sizes, config=config).has_sparse_index()


def test_an_index_of_few_entries_is_left_where_a_batch_is_bad(tmp_path):
    segment = sparse(tmp_path, *[10] * 500)
    before = segment.offset_index.entries, segment.time_index.entries
    with open(segment.log.path, "r+b") as file:
        file.seek(400 * SIZE + layout.MAGIC)
        file.write(b"\1")
    with pytest.raises(CorruptRecord):
        segment.index_anew()
    assert (segment.offset_index.entries, segment.time_index.entries) == before


@pytest.mark.parametrize("left", [0, 1, 50, 99])
def test_a_time_index_that_lost_its_end_is_known_as_wrong(tmp_path, left):
    segment = made(tmp_path)
    for number in range(101):
        put(segment, BASE + number, number)
    segment.load_latest()
    assert not segment.has_wrong_times()
    segment.close()
    os.truncate(tmp_path / f"{BASE:020d}.timeindex", 12 * left)
    again = LogSegment(tmp_path, BASE, segment.config, active=False)
    again.load_latest()
    assert again.has_wrong_times()
    again.index_anew()
    assert not again.has_wrong_times()
    assert [finish(again.offset_for_timestamp(time, 0)) for time in range(101)] == [
        (time, BASE + time) for time in range(101)
    ]


def test_a_time_index_that_lost_its_only_entry_is_known_as_wrong(tmp_path):
    segment = made(tmp_path)
    for number in range(2):
        put(segment, BASE + number, number)
    segment.close()
    assert (segment.offset_index.entries, segment.time_index.entries) == (1, 1)
    os.truncate(tmp_path / f"{BASE:020d}.timeindex", 0)
    again = LogSegment(tmp_path, BASE, segment.config, active=False)
    again.load_latest()
    assert again.has_wrong_times()


def test_a_time_behind_the_last_entry_is_not_lacking(tmp_path):
    segment = made(tmp_path, {"index.interval.bytes": str(SIZE)})
    for number in range(4):
        put(segment, BASE + number, number)
    assert segment.offset_index.last.offset == BASE + 2
    segment.load_latest()
    assert not segment.has_wrong_times()
    assert segment.latest == (3, BASE + 3)


def test_a_time_index_that_tells_of_a_batch_that_is_gone_is_known_as_wrong(tmp_path):
    segment = made(tmp_path, {"index.interval.bytes": "100000"})
    for number in range(3):
        put(segment, BASE + number, number)
    segment.close()
    assert segment.time_index.entries == 1
    os.truncate(segment.log.path, 2 * SIZE)
    again = LogSegment(tmp_path, BASE, segment.config, active=False)
    again.load_latest()
    assert again.has_wrong_times()


def test_the_time_index_says_the_greatest_time_so_far(tmp_path):
    segment = made(tmp_path)
    for offset, time in ((BASE, 5), (BASE + 1, 50), (BASE + 2, 20)):
        put(segment, offset, time)
    assert segment.time_index.last == (50, BASE + 1)
    assert segment.latest == (50, BASE + 1)


def test_a_time_that_comes_again_leaves_the_first(tmp_path):
    segment = made(tmp_path)
    put(segment, BASE, 5)
    put(segment, BASE + 1, 5)
    assert segment.latest == (5, BASE)


def test_a_segment_that_is_opened_again_knows_its_latest(segment, tmp_path):
    segment.close()
    again = LogSegment(tmp_path, BASE, segment.config, active=False)
    assert again.latest == (90, 104)
    os.truncate(tmp_path / f"{BASE:020d}.timeindex", 0)
    again = LogSegment(tmp_path, BASE, segment.config, active=False)
    again.load_latest()
    assert again.latest == (90, 104)


def test_an_index_that_points_beyond_the_file_is_refused_by_name(segment):
    segment.check_indexes()
    os.ftruncate(segment.log.fileno(), 3 * SIZE)
    segment.log.size = segment.offset_index.last.position + 1
    segment.check_indexes()
    segment.log.size -= 1
    with pytest.raises(CorruptRecord, match=r"00100\.index points beyond the end of the log file"):
        segment.check_indexes()


def test_a_marker_before_the_segment_is_refused_by_name(segment):
    segment.txn_index.append(AbortedTransaction(1, 50, 99, 100))
    with pytest.raises(CorruptRecord, match=r"00100\.txnindex: marker 99 lies before 100"):
        segment.check_indexes()


def test_a_marker_at_the_base_is_the_segments(segment):
    segment.txn_index.append(AbortedTransaction(1, 50, 100, 101))
    segment.check_indexes()


@pytest.mark.parametrize(("offset", "kept", "latest"), [(106, 4, 90), (105, 3, 90), (104, 2, 20), (101, 0, -1)])
def test_a_truncation_cuts_the_indexes_with_the_file(segment, offset, kept, latest):
    segment.txn_index.append(AbortedTransaction(1, 100, 104, 105))
    ends = [0, *(batch.end for batch in segment.log.batches())]
    segment.truncate_to(offset)
    assert segment.size == ends[kept]
    assert segment.latest.timestamp == latest
    assert all(entry.last_offset < offset for entry in segment.txn_index.entries())
    assert segment.offset_index.last.offset < offset or not kept
    segment.check_indexes()
    put(segment, 200, 95)
    assert segment.next_offset() == 201
    assert segment.latest == (95, 200)


def test_sealing_writes_the_latest_time_and_cuts_the_indexes(tmp_path):
    segment = made(tmp_path, {"index.interval.bytes": "100000"})
    put(segment, BASE, 10)
    put(segment, BASE + 1, 30)
    times = tmp_path / f"{BASE:020d}.timeindex"
    assert times.stat().st_size == 0
    segment.seal()
    segment.seal()
    assert (times.stat().st_size, segment.time_index.last) == (12, (30, BASE + 1))
    segment.reopen_for_append()
    put(segment, BASE + 2, 40)
    segment.close()
    segment.close()
    assert times.stat().st_size == 24


def test_sealing_takes_the_place_that_a_full_time_index_has_kept(tmp_path):
    segment = made(tmp_path, {"segment.index.bytes": "24"})
    for number, time in enumerate((10, 20, 30)):
        put(segment, BASE + number, time)
    assert (segment.time_index.entries, segment.time_index.is_full) == (1, True)
    segment.seal()
    assert (segment.time_index.entries, segment.time_index.last) == (2, (30, BASE + 2))


# Its files


def test_the_files_are_their_owners_to_write_and_everyones_to_read(segment, tmp_path):
    segment.txn_index.append(AbortedTransaction(1, 100, 104, 105))
    before = os.umask(0o022)
    os.umask(before)
    assert {path.suffix for path in segment.paths} == {".log", ".index", ".timeindex", ".txnindex"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in segment.paths} == {0o644 & ~before}


def test_a_deleted_segments_files_have_another_name(segment, tmp_path):
    names, piece = {path.name for path in segment.paths}, segment.log.slice(0, 10)
    doomed = [segment.delete_log(), *segment.delete_indexes()]
    assert {path.name for path in doomed} == {f"{name}.deleted" for name in names} == set(os.listdir(tmp_path))
    assert len(piece.file.read(piece.position, piece.size)) == 10
