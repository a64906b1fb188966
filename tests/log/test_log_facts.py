"""What a log tells of itself to those who clean it, copy it and end its transactions."""

import pytest
from log.samples import batch_of, marker_of, open_log, transactional, write_cleaned

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import LogClosed
from sparklog.log.origin import AppendOrigin
from sparklog.record.control import ControlType
from sparklog.testing.clock import ManualClock


@pytest.fixture
def log(tmp_path):
    """Three segments, from offsets 0, 2 and 4, of the times 10, 30 and 50."""
    log = open_log(tmp_path / "t-0")
    for number in range(3):
        if number:
            log.roll()
        log.append_as_leader(batch_of(10 + 20 * number), 0)
        log.append_as_leader(batch_of(5), 0)
    yield log
    log.close()


@pytest.mark.parametrize(
    ("start", "end", "times"),
    [(0, 6, [10, 30]), (2, 6, [30]), (3, 6, [30]), (0, 2, [10]), (0, 3, [10, 30]), (4, 6, []), (6, 9, [])],
)
def test_the_first_times_of_segments_are_told_but_for_the_active_one(log, start, end, times):
    assert log.first_timestamps(start, end) == times


def test_a_segment_of_which_a_compaction_has_left_nothing_has_no_first_time(tmp_path):
    log = open_log(tmp_path / "t-1", {"cleanup.policy": "compact"})
    for time in (10, 20):
        log.append_as_leader(batch_of(time, key=b"k"), 0)
        log.roll()
    write_cleaned(log.directory, 0, [], log.config)
    log.replace_segments([0], [0])
    assert log.first_timestamps(0, 2) == [20]
    log.close()


def test_the_facts_of_each_segment(log):
    size = len(batch_of(1))
    facts = log.segment_facts()
    assert [each.base_offset for each in facts] == [0, 2, 4]
    assert [each.size for each in facts] == [2 * size] * 3
    assert [each.latest_timestamp for each in facts] == [10, 30, 50]
    assert [(each.index_size, each.time_index_size) for each in facts] == [(0, 12), (0, 12), (0, 0)]
    assert (log.base_offset, log.segment_count, log.size) == (0, 3, 6 * size)


def test_what_retention_is_told_of_each_segment(log):
    size = 2 * len(batch_of(1))
    assert log.segment_views() == [(0, 2, size, 10, False), (2, 4, size, 30, False), (4, 6, size, 50, False)]


def test_the_coordinator_of_the_last_marker_is_known_until_it_is_not_believed(log):
    assert (log.coordinator_epoch(7), log.last_marker(7)) == (-1, -1)
    log.append_as_leader(transactional(7, 0), 0, AppendOrigin.COORDINATOR)
    assert (log.has_open_transaction(7, 0), log.has_open_transaction(7, 1)) == (True, False)
    log.append_as_leader(marker_of(7, ControlType.COMMIT, coordinator_epoch=5), 0, AppendOrigin.COORDINATOR)
    assert (log.coordinator_epoch(7), log.last_marker(7), log.has_open_transaction(7, 0)) == (5, 7, False)
    log.disbelieve_coordinator(7)
    assert (log.coordinator_epoch(7), log.last_marker(7)) == (-1, 7)


def test_what_is_copied_is_all_that_is_still_in_a_segment(log):
    log.advance_start(3)
    found, offset = [], 0
    while (piece := log.read_for_copy(offset, 1)) is not None:
        found.append(bytes(piece.file.read(piece.position, piece.size)))
        offset += 1
    assert (offset, b"".join(found)) == (6, b"".join(map(bytes, log._segments.read_all(1 << 20))))
    log.abandon()
    with pytest.raises(LogClosed, match="t-0 is closed"):
        log.read_for_copy(0, 1)


def test_a_log_that_stands_in_for_another_knows_what_that_knew(tmp_path, log):
    clock = ManualClock()
    copy = open_log(tmp_path / "copy", clock=clock)
    copy.append_as_follower(memoryview(b"".join(map(bytes, log._segments.read_all(1 << 20)))))
    copy.flush()
    log.begin_epoch(4)
    log.append_as_leader(transactional(7, 0), 4, AppendOrigin.COORDINATOR)
    copy.append_as_follower(memoryview(bytearray(read(log, 6))))
    log.config = config = parse(TopicConfig, {"flush.messages": "1", "flush.ms": "100"})
    log.on_high_watermark(6)
    log.advance_start(3)
    log.append_as_leader(batch_of(1), 4)
    copy.append_as_follower(memoryview(bytearray(read(log, 7))))
    copy.epochs.clear()
    clock.advance(7)
    assert log.awaits_flush
    copy.take_over(log)
    assert (copy.config, copy.high_watermark, copy.log_start_offset) == (config, 6, 3)
    assert (copy.first_unstable_offset, copy.producer_count, copy.awaits_flush) == (6, 1, True)
    assert copy.epochs.entries == log.epochs.entries == ((0, 3), (4, 6))
    assert (copy.directory / "leader-epoch-checkpoint").read_text() == "0\n2\n0 3\n4 6\n"
    assert (copy.flush_is_due(7099), copy.flush_is_due(7100)) == (False, True)
    assert all(segment.config is config for segment in copy._segments)
    copy.close()


def read(log, offset):
    piece = log.read_for_copy(offset, 1)
    return piece.file.read(piece.position, piece.size)


def test_bytes_are_counted_from_the_start_up_to_a_place(log):
    size = len(batch_of(1))
    assert log.bytes_between(0, log.end) == 6 * size
    assert log.bytes_between(0, log.position_of(3)) == 3 * size
    assert log.bytes_between(2, log.position_of(4)) == 2 * size
    assert log.bytes_between(4, log.position_of(2)) == 0
    log.advance_start(2)
    assert log.bytes_between(0, log.end) == 4 * size


def test_the_place_of_an_offset_beyond_all_is_the_end(log):
    size = len(batch_of(1))
    assert log.position_of(3) == (3, 2, size)
    assert log.position_of(6) == log.position_of(99) == log.end == (6, 4, 2 * size)


def test_a_log_that_is_closed_begins_no_epoch_and_writes_none(tmp_path):
    log = open_log(tmp_path / "t-2")
    log.begin_epoch(2)
    log.abandon()
    with pytest.raises(LogClosed):
        log.begin_epoch(3)
    log.epochs.assign(5, 0)
    log.write_epochs()
    assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n1\n2 0\n"
