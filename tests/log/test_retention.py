"""What retention gives up, and what it never does."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import nullcontext, suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log.samples import open_log, read_bytes

from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, DiskFull, ErrorCode, LogDirFailed
from sparklog.log.directories.manager import LogManager
from sparklog.log.log import Log
from sparklog.log.retention import Age, Offloaded, SegmentView, Size, deletable, given_up, policies_of
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.records import iter_batches
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.files import FaultyFiles
from sparklog.testing.steps import counted, finish

NEED_ROOM = ("open", "write", "pwrite", "ftruncate", "truncate", "mkdir", "fdatasync")
TP = TopicPartition("t", 0)


def views(*segments: tuple[int, int]) -> list[SegmentView]:
    """Segments of ten offsets each, given as (size, latest timestamp)."""
    return [SegmentView(n * 10, n * 10 + 10, size, latest) for n, (size, latest) in enumerate(segments)]


def test_age_stops_at_the_first_segment_that_is_young() -> None:
    segments = views((1, 100), (1, 900), (1, 100))
    assert Age(TopicConfig(retention_ms=500)).give_up(segments, 1000) == 1


@pytest.mark.parametrize(("limit", "gone"), [(30, 0), (29, 0), (20, 1), (11, 1), (10, 2), (0, 3)])
def test_size_never_leaves_less_than_the_limit(limit: int, gone: int) -> None:
    assert Size(TopicConfig(retention_bytes=limit)).give_up(views((10, 0), (10, 0), (10, 0)), 0) == gone


def test_a_segment_goes_when_the_log_starts_behind_it() -> None:
    assert [deletable(views((1, 0), (1, 0)), 0, start, 20) for start in (0, 9, 10, 19, 20)] == [0, 0, 1, 1, 2]


def test_without_a_limit_nothing_is_too_old_or_too_much() -> None:
    segments = views((10, 0), (10, 0))
    assert Age(TopicConfig(retention_ms=-1)).give_up(segments, 1 << 60) == 0
    assert Size(TopicConfig(retention_bytes=-1)).give_up(segments, 0) == 0


def test_age_is_over_only_beyond_the_limit() -> None:
    by_age = Age(TopicConfig(retention_ms=500))
    assert [by_age.give_up(views((1, 500), (1, 500)), now) for now in (1000, 1001)] == [0, 2]


def test_what_is_offloaded_may_go_however_young_up_to_the_first_that_is_not() -> None:
    segments = [
        each._replace(is_offloaded=is_so) for each, is_so in zip(views(*[(1, 9)] * 4), (1, 1, 0, 1), strict=True)
    ]
    assert Offloaded(TopicConfig()).give_up(segments, 9) == 2


@pytest.mark.parametrize(
    ("settings", "gone"),
    [
        ({"retention_ms": -1, "retention_bytes": -1}, 1),
        ({"retention_ms": 0, "retention_bytes": -1}, 3),
        ({"retention_ms": -1, "retention_bytes": 0}, 3),
        ({"retention_ms": -1, "retention_bytes": 10}, 2),
        ({"retention_ms": 0, "retention_bytes": 0, "cleanup_policy": ("compact",)}, 1),
        ({"retention_ms": 0, "retention_bytes": -1, "cleanup_policy": ("compact", "delete")}, 3),
        ({"retention_ms": 0, "retention_bytes": 20, "retention_policies": ("size",)}, 1),
        ({"retention_ms": 0, "retention_bytes": 10, "retention_policies": ("size", "age")}, 3),
        ({"retention_ms": 0, "retention_bytes": 0, "retention_policies": ("offload",)}, 1),
    ],
)
def test_what_a_topics_settings_give_up(settings: dict[str, object], gone: int) -> None:
    segments = views((10, 0), (10, 0), (10, 0))
    wanted = given_up(policies_of(TopicConfig(**settings)), segments, 1000)
    assert deletable(segments, wanted, 10, 30) == gone


@pytest.mark.parametrize(("high_watermark", "gone"), [(0, 0), (9, 0), (10, 1), (29, 2), (30, 3)])
def test_what_some_policy_gives_up_goes_up_to_the_high_watermark(high_watermark: int, gone: int) -> None:
    segments = views((10, 0), (10, 0), (10, 0))
    wanted = given_up(policies_of(TopicConfig(retention_bytes=0, retention_ms=10_000)), segments, 1000)
    assert deletable(segments, wanted, 10, high_watermark) == gone


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1000)), max_size=8), st.integers(0, 80))
def test_nothing_at_or_beyond_the_high_watermark_goes(shape: list[tuple[int, int]], high_watermark: int) -> None:
    segments = views(*shape)
    wanted = given_up(policies_of(TopicConfig(retention_bytes=0, retention_ms=0)), segments, 2000)
    count = deletable(segments, wanted, 0, high_watermark)
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
        config = TopicConfig(segment_bytes=400, file_delete_delay_ms=60_000, **settings)
        self.manager = LogManager([directory], config, self.clock, _Inline())
        self.manager.load({})
        self.log = self.manager.get_or_create(TP, None, None)


class _Inline:
    def submit(self, work: object, *args: object) -> None:
        work(*args)  # type: ignore[operator]


def test_retention_makes_room_on_a_full_disk(tmp_path: Path) -> None:
    rig = Rig(tmp_path, retention_ms=1000)
    for epoch in range(10):
        rig.log.epochs.assign(epoch, rig.log.log_end_offset)
        fill(rig.log, rig.clock, 1)
    rig.clock.advance(2)
    before = rig.log.segment_count
    assert before > 2
    with FaultyFiles(tmp_path, fail_at=0, lasting=True, error=errno.ENOSPC, steps=NEED_ROOM) as files:
        rig.manager.delete_old_segments(TP, rig.log.log_end_offset)
        assert files.count > 0
        assert rig.log.segment_count == 1
        assert rig.log.log_start_offset == rig.log._segments.first.base_offset
        assert rig.log.epochs.entries[0].start_offset == rig.log.log_start_offset
        with pytest.raises(DiskFull):  # the last one can go only when another is begun
            rig.manager.delete_old_segments(TP, rig.log.log_end_offset)
        rig.clock.advance(60)
        finish(rig.manager.unlink_due())
    assert not list(tmp_path.rglob("*.deleted"))
    end = rig.log.log_end_offset
    rig.manager.close()
    again = Rig(tmp_path)
    assert (again.log.log_end_offset, again.log.log_start_offset) == (end, rig.log.log_start_offset)


def test_many_segments_go_some_at_a_time_and_their_files_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparklog.log.log._DELETED_AT_ONCE", 2)
    rig = Rig(tmp_path, retention_ms=1000)
    fill(rig.log, rig.clock, 10)
    rig.clock.advance(2)
    fill(rig.log, rig.clock, 1)
    left = [rig.log.segment_count]
    while rig.manager.delete_old_segments(TP, rig.log.log_end_offset):
        left.append(rig.log.segment_count)
    assert len(left) > 3
    snapshots = {int(path.stem) for path in tmp_path.rglob("*.snapshot")}
    assert snapshots
    assert snapshots <= set(rig.log._segments.bases)
    assert all(before - after <= 2 for before, after in pairwise(left))
    files = len(list(tmp_path.rglob("*.deleted")))
    rig.clock.advance(61)
    begun = rig.manager.unlink_due()
    next(begun)
    begun.close()  # as when the broker stops: what is left is not forgotten
    assert len(list(tmp_path.rglob("*.deleted"))) == files - 1
    assert counted(rig.manager.unlink_due())[0] == files - 1
    assert not list(tmp_path.rglob("*.deleted"))


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
    finish(rig.manager.unlink_due())
    assert list((tmp_path / "t-0").glob("*.deleted")), "the delay has not passed"
    rig.clock.advance(61)
    finish(rig.manager.unlink_due())
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
    finish(rig.manager.unlink_due())
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


def kept_on_disk(directory: Path) -> list[int]:
    """Where the segments begin that a start would find."""
    return sorted(int(path.stem) for path in directory.glob("*.log"))


@pytest.mark.parametrize("refused", [("rename",), ("rename", "unlink")], ids=["names", "names and removals"])
@pytest.mark.parametrize("step", [0, 1, 2, 3, 4, 10])
def test_what_a_full_disk_does_not_let_go_stays_in_the_log_and_goes_later(
    tmp_path: Path, refused: tuple[str, ...], step: int
) -> None:
    rig = Rig(tmp_path, retention_bytes=1000)
    fill(rig.log, rig.clock, 20)
    end, count = rig.log.log_end_offset, rig.log.segment_count
    with (
        FaultyFiles(tmp_path, fail_at=step, lasting=True, error=errno.ENOSPC, steps=refused) as files,
        suppress(DiskFull),
    ):
        while rig.manager.delete_old_segments(TP, end):
            pass
    assert files.count > step, "nothing was refused"
    start, first = rig.log.log_start_offset, rig.log._segments.first.base_offset
    assert kept_on_disk(tmp_path / "t-0") == list(rig.log._segments.bases)
    assert first == start if refused == ("rename",) else first < start
    assert 0 < start < end
    assert offsets_from(rig.log, start) == list(range(start, end))
    with pytest.raises(ApiError) as caught:
        rig.log.read(start - 1, 100, rig.log.end, min_one_batch=True)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    for known in (0, start):
        again = opened_after_crash(rig.log.directory, tmp_path / f"crashed-{known}", known)
        assert (again.log_start_offset, again.log_end_offset) == (max(known, first), end)
        assert offsets_from(again, start) == list(range(start, end))
        again.close()
    while rig.manager.delete_old_segments(TP, end):
        pass
    rig.clock.advance(61)
    finish(rig.manager.unlink_due())
    assert rig.log.segment_count < count
    assert rig.log._segments.first.base_offset == start
    assert not [path.name for path in (tmp_path / "t-0").iterdir() if path.suffix == ".deleted"]
    assert kept_on_disk(tmp_path / "t-0") == list(rig.log._segments.bases)


@pytest.mark.parametrize(
    ("step", "error", "kind"),
    [(0, errno.ENOSPC, DiskFull), (0, errno.EIO, LogDirFailed), (4, errno.EIO, LogDirFailed), (4, errno.ENOSPC, None)],
)
def test_only_a_full_disk_that_has_let_something_go_is_no_refusal(
    tmp_path: Path, step: int, error: int, kind: type[LogDirFailed] | None
) -> None:
    rig = Rig(tmp_path, retention_bytes=1000)
    fill(rig.log, rig.clock, 20)
    fault = FaultyFiles(tmp_path, fail_at=step, lasting=True, error=error, steps=("rename", "unlink"))
    with fault, nullcontext() if kind is None else pytest.raises(kind, match="cannot delete segments") as caught:
        assert rig.log.delete_old_segments(20)
    if kind is not None:
        assert type(caught.value) is kind


def offsets_from(log: Log, start: int) -> list[int]:
    """What a reader gets that begins there."""
    found: list[int] = []
    while start < log.log_end_offset:
        piece = log.read(start, 1, log.end, min_one_batch=True)
        (batch,) = iter_batches(memoryview(read_bytes(piece)))
        found += range(batch.base_offset, batch.next_offset)
        start = batch.next_offset
    return found


def opened_after_crash(directory: Path, copy: Path, start: int) -> Log:
    """What a start finds after a kill; ``start`` is what the checkpoint says."""
    shutil.copytree(directory, copy)
    return open_log(copy, {"segment.bytes": "400"}, clean=False, log_start_offset=start)


def test_what_is_given_up_is_in_the_log_no_more_before_the_first_file_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path, retention_bytes=1000)
    fill(rig.log, rig.clock, 20)
    seen: list[int] = []
    rename = os.rename

    def watched(source: Path, target: Path) -> None:
        if str(target).endswith(".deleted"):
            seen.append(rig.log.log_start_offset)
        rename(source, target)

    monkeypatch.setattr(os, "rename", watched)
    assert rig.manager.delete_old_segments(TP, rig.log.log_end_offset)
    assert seen == [rig.log._segments.first.base_offset] * len(seen)
    assert seen[0] > 0
