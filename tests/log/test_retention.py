"""What retention gives up, and what it never does."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.log import Log
from sparklog.log.manager import LogManager
from sparklog.log.retention import SegmentView, by_age, by_bytes, by_log_start, deletable
from sparklog.record.builder import RecordBatchBuilder
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock

TP = TopicPartition("t", 0)


def views(*segments: tuple[int, int]) -> list[SegmentView]:
    """Segments of ten offsets each, given as (size, latest timestamp)."""
    return [SegmentView(n * 10, n * 10 + 10, size, latest) for n, (size, latest) in enumerate(segments)]


def test_age_stops_at_the_first_segment_that_is_young() -> None:
    segments = views((1, 100), (1, 900), (1, 100))
    assert by_age(500)(segments, 1000) == 1


@pytest.mark.parametrize(("limit", "gone"), [(30, 0), (29, 0), (20, 1), (11, 1), (10, 2), (0, 3)])
def test_size_never_leaves_less_than_the_limit(limit: int, gone: int) -> None:
    assert by_bytes(limit)(views((10, 0), (10, 0), (10, 0)), 0) == gone


def test_a_segment_goes_when_the_log_starts_behind_it() -> None:
    assert [by_log_start(offset)(views((1, 0), (1, 0)), 0) for offset in (0, 9, 10, 19, 20)] == [0, 0, 1, 1, 2]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1000)), max_size=8), st.integers(0, 80))
def test_nothing_at_or_beyond_the_high_watermark_goes(shape: list[tuple[int, int]], high_watermark: int) -> None:
    segments = views(*shape)
    count = deletable(segments, [by_age(0), by_bytes(0)], high_watermark, 2000)
    assert all(segment.next_base <= high_watermark for segment in segments[:count])


def fill(log: Log, clock: ManualClock, batches: int) -> None:
    for number in range(batches):
        builder = RecordBatchBuilder()
        builder.append(clock.now_ms(), b"k", b"%0100d" % number)
        log.append_as_leader(memoryview(bytearray(builder.build())), 0)


class Rig:
    """A manager with one small-segmented partition, on a clock set by hand; deletions run inline."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.clock = ManualClock()
        config = TopicConfig(segment_bytes=400, file_delete_delay_ms=60_000, **settings)  # type: ignore[arg-type]
        self.manager = LogManager([directory], config, self.clock, _Inline())  # type: ignore[arg-type]
        self.manager.load({})
        self.log = self.manager.get_or_create(TP, None, None)


class _Inline:
    def submit(self, work: object, *args: object) -> None:
        work(*args)  # type: ignore[operator]


def test_old_segments_go_and_their_files_follow_after_the_delay(tmp_path: Path) -> None:
    rig = Rig(tmp_path, retention_ms=1000)
    fill(rig.log, rig.clock, 10)
    rig.clock.advance(2)
    fill(rig.log, rig.clock, 1)
    rig.manager.delete_old_segments(TP, rig.log.log_end_offset)
    assert 0 < rig.log.log_start_offset <= 10
    with pytest.raises(ApiError) as caught:
        rig.log.read(0, 100, rig.log.end, min_one_batch=True)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert list((tmp_path / "t-0").glob("*.deleted"))
    rig.manager.unlink_due()
    assert list((tmp_path / "t-0").glob("*.deleted")), "the delay has not passed"
    rig.clock.advance(61)
    rig.manager.unlink_due()
    assert not list((tmp_path / "t-0").glob("*.deleted"))


def test_when_all_is_old_the_log_goes_on_at_its_end(tmp_path: Path) -> None:
    rig = Rig(tmp_path, retention_ms=1000)
    fill(rig.log, rig.clock, 10)
    rig.clock.advance(2)
    rig.manager.delete_old_segments(TP, rig.log.log_end_offset)
    assert (rig.log.log_start_offset, rig.log.log_end_offset, rig.log.size) == (10, 10, 0)
    fill(rig.log, rig.clock, 1)
    assert rig.log.log_end_offset == 11


def test_a_slice_taken_before_is_still_readable(tmp_path: Path) -> None:
    rig = Rig(tmp_path, retention_bytes=0)
    fill(rig.log, rig.clock, 10)
    held = rig.log.read(0, 10_000, rig.log.end, min_one_batch=True)
    assert held is not None
    before = held.file.read(held.position, held.size)  # type: ignore[attr-defined]
    rig.manager.delete_old_segments(TP, rig.log.log_end_offset)
    rig.clock.advance(61)
    rig.manager.unlink_due()
    assert held.file.read(held.position, held.size) == before  # type: ignore[attr-defined]


def test_nothing_goes_from_a_topic_that_is_only_compacted(tmp_path: Path) -> None:
    rig = Rig(tmp_path, retention_ms=0, retention_bytes=0, cleanup_policy=("compact",))
    fill(rig.log, rig.clock, 10)
    rig.clock.advance(1000)
    rig.manager.delete_old_segments(TP, rig.log.log_end_offset)
    assert rig.log.log_start_offset == 0


def test_the_start_of_the_log_is_kept_over_a_restart(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    fill(rig.log, rig.clock, 10)
    rig.log.advance_start(2)
    rig.manager.close()
    again = Rig(tmp_path)
    assert (again.log.log_start_offset, again.log.log_end_offset) == (2, 10)
