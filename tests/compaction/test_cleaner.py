"""One pass over one log: what stays, at what rate it is read, and what is too large for a buffer or an index."""

import os
from contextlib import closing, suppress
from dataclasses import replace

import pytest
from compaction import ours
from compaction.keyed import Producer, append, batch_of, fill, leftovers, mark, records_of, table_of
from compaction.logs import LogWriter
from compaction.ours import opened

from sparklog.compaction.cleaner import LogCleaning
from sparklog.compaction.task import Buffers
from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, CorruptRecord, DiskFull, ErrorCode
from sparklog.log.files import segment_path
from sparklog.record.compression import CompressionType
from sparklog.record.control import ControlType
from sparklog.record.records import iter_batches, iter_records
from sparklog.testing.clock import ManualClock

NOW_MS = 1_700_000_100_000
FAR = 1 << 31


def config_of(**settings):
    names = {name.replace("_", "."): str(value) for name, value in settings.items()}
    return parse(TopicConfig, {"cleanup.policy": "compact", "segment.bytes": "1000"} | names)


@pytest.fixture
def log(tmp_path):
    (tmp_path / "t-0").mkdir()
    with closing(opened(tmp_path / "t-0", config_of(), NOW_MS)) as log:
        yield log


def task_of(log, first_dirty=None, **buffers):
    return ours.task_of(log, ours.sections_of(log, first_dirty, NOW_MS), NOW_MS, **buffers)


def clean(log, first_dirty=None, **buffers):
    return ours.cleaned(log, task_of(log, first_dirty, **buffers))


def test_the_last_value_of_each_key_stays_at_its_offset(log):
    for number in range(20):
        append(log, (b"k%d" % (number % 3), b"%d" % number), (b"once-%d" % number, b"v"))
    log.roll()
    before, table = records_of(log), table_of(log)
    stats = clean(log)
    last = {}
    for each in before:
        last[each[1]] = each
    assert records_of(log) == sorted(last.values())
    assert table_of(log) == table
    assert (stats.messages_read, stats.messages_written, stats.keys) == (40, 23, 23)
    assert (stats.first_offset, stats.end_offset) == (0, 40)
    assert stats.bytes_read > stats.bytes_written == log.size - log.segment_facts()[-1].size


def test_a_tombstone_goes_after_its_horizon_and_not_before(log):
    append(log, (b"k", b"v"), (b"other", b"v"))
    append(log, (b"k", None))
    log.roll()
    clean(log)
    assert [each[1:] for each in records_of(log)] == [(b"other", b"v"), (b"k", None)]
    append(log, (b"x", b"y"))
    log.roll()
    for later, is_there in ((86_400_000 - 1, True), (86_400_000, False)):
        now_ms = NOW_MS + later
        sections = ours.sections_of(log, 0, now_ms)
        ours.cleaned(log, ours.task_of(log, sections, now_ms))
        assert ((b"k", None) in [each[1:] for each in records_of(log)]) is is_there


@pytest.mark.parametrize("codec", list(CompressionType))
@pytest.mark.parametrize("read_bytes", [1, 61, 200])
def test_a_batch_that_is_larger_than_the_buffer_is_read_whole(tmp_path, codec, read_bytes):
    (tmp_path / "t-0").mkdir()
    with closing(opened(tmp_path / "t-0", config_of(segment_bytes=100_000), NOW_MS)) as log:
        for number in range(3):
            append(log, *((b"%d" % key, os.urandom(900)) for key in range(number, number + 20)), codec=codec)
        log.roll()
        table = table_of(log)
        clean(log, read_bytes=read_bytes)
        assert table_of(log) == table
        assert len(records_of(log)) == 22


def test_what_is_read_and_written_is_paid_for(log):
    fill(log)
    clock = ManualClock()
    task = task_of(log)
    rate = 500
    task = replace(task, buffers=Buffers(1 << 20, 0.9, 300, rate))
    cleaning = LogCleaning(task, clock, ours.SEED)
    for group in cleaning.run():
        for path in log.replace_segments(group.new, group.old):
            path.unlink()
    stats = cleaning.stats
    moved = stats.map_bytes_read + stats.bytes_read + stats.bytes_written
    assert clock.monotonic() == pytest.approx(moved / rate, rel=0.02)
    assert stats.seconds == pytest.approx(clock.monotonic(), rel=0.02)
    assert stats.index_seconds == pytest.approx(stats.map_bytes_read / rate, rel=0.02)


def test_a_rate_without_bound_costs_no_time(log):
    fill(log)
    clock = ManualClock()
    for _ in LogCleaning(task_of(log), clock, ours.SEED).run():
        pass
    assert clock.monotonic() == 0


@pytest.mark.parametrize("keys", [1, 2, 5, 19])
def test_a_map_that_is_full_ends_a_pass_that_goes_forward(log, keys):
    append(log, *((b"%d" % number, b"old") for number in range(12)))
    append(log, *((b"%d" % number, b"new") for number in range(12)))
    append(log, (b"0", b"newest"))
    log.roll()
    table, point = table_of(log), 0
    for _ in range(40):
        stats = clean(log, point, buffer_bytes=24 * keys, load_factor=1.0)
        assert stats.end_offset > point
        assert stats.buffer_utilization == pytest.approx(stats.keys / keys)
        assert table_of(log) == table
        point = stats.end_offset
        if point == log.end.segment_base:
            break
    assert point == log.end.segment_base
    assert len(records_of(log)) <= 24


def follow(log, *offsets, key=b"k"):
    """Batches with these offsets, as a leader may give them."""
    for offset in offsets:
        log.append_as_follower(batch_of([(key, b"%d" % offset)], base=offset))
    log.on_high_watermark(log.log_end_offset)


@pytest.mark.parametrize(
    "offsets",
    [
        (0, FAR - 1, FAR + 5, FAR + 6),
        (0, 1, FAR, 2 * FAR, 2 * FAR + 1, 5 * FAR),
        (5, FAR + 4, FAR + 5),
        (0, 3 * FAR, 3 * FAR + 1),
    ],
)
def test_a_gap_that_no_index_can_hold_parts_segments(log, offsets):
    for number, offset in enumerate(offsets):
        follow(log, offset, key=b"%d" % number)
    follow(log, offsets[-1] + 1, key=b"0")
    log.roll()
    table, end = table_of(log), log.log_end_offset
    stats = clean(log)
    assert stats.end_offset == end
    assert [each[0] for each in records_of(log)] == [*offsets[1:], offsets[-1] + 1]
    assert table_of(log) == table
    bases = [each.base_offset for each in log.segment_facts()]
    assert bases == sorted(set(bases))
    for offset, key, _ in records_of(log):
        piece = log.read(offset, 1, log.end, min_one_batch=True)
        (found,) = [
            each
            for batch in iter_batches(bytes(piece.file.read(piece.position, piece.size)))
            for each in iter_records(batch)
        ]
        assert (found.offset, found.key) == (offset, key)


def test_a_gap_within_one_segment_splits_what_is_written(tmp_path):
    """A segment may hold offsets as far apart as an index can tell, counted from its own base."""
    (tmp_path / "t-0").mkdir()
    with closing(opened(tmp_path / "t-0", config_of(segment_bytes=100_000), NOW_MS)) as log:
        follow(log, 0, key=b"a")
        log.roll()
        follow(log, FAR - 10, key=b"b")
        log.roll()
        follow(log, FAR, FAR + 100, key=b"c")
        log.roll()
        clean(log)
        assert [each[1] for each in records_of(log)] == [b"a", b"b", b"c"]
        assert table_of(log) == {b"a": b"0", b"b": b"%d" % (FAR - 10), b"c": b"%d" % (FAR + 100)}


def test_offsets_of_another_segment_are_damage(log):
    """No CRC covers them; a map that believed them would call every later value of these keys outdated."""
    fill(log)
    path = log.directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    *_, last = [batch.base_offset for batch in iter_batches(bytes(data))]
    at = bytes(data).rindex(last.to_bytes(8, "big"))
    data[at : at + 8] = (1 << 40).to_bytes(8, "big")
    with open(path, "r+b") as file:
        file.write(data)
    with pytest.raises(CorruptRecord, match=r"0\.log: a batch has offsets beyond"):
        list(LogCleaning(task_of(log), ManualClock(), ours.SEED).run())
    assert leftovers(log.directory) == []


@pytest.mark.parametrize("at", [0, 16, 17, 21, 23, 27, 43, 57, 61, 65])
def test_a_flipped_bit_anywhere_is_damage_or_changes_no_record(log, at):
    fill(log)
    path = log.directory / f"{0:020d}.log"
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x40]))
    names = sorted(each.name for each in log.directory.iterdir())
    with pytest.raises(CorruptRecord, match=rf"{path}(, at byte 0 or soon behind it)?: "):
        list(LogCleaning(task_of(log), ManualClock(), ours.SEED).run())
    assert sorted(each.name for each in log.directory.iterdir()) == names


def test_without_room_for_a_group_nothing_is_written(log, monkeypatch):
    fill(log)
    status = os.statvfs(log.directory)
    full = os.statvfs_result((*status[:4], 0, *status[5:]))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    with pytest.raises(DiskFull, match="free some room"):
        list(LogCleaning(task_of(log), ManualClock(), ours.SEED).run())
    assert leftovers(log.directory) == []


def test_a_pass_takes_no_more_room_than_its_largest_group_has(log):
    """At each moment what is written beside the log is of one group, no larger than its old segments, and none is left
    once the group is in place. In the second pass groups are of several segments.
    """

    def beside():
        return sum(path.stat().st_size for path in log.directory.glob("*.log.*"))

    fill(log, 6, keys=1000)  # every record stays: what is written is as large as the log
    fill(log, 6, name="few")
    written, merged, seen = [], [], []
    for _ in range(2):
        fill(log, 1, name="few")
        old = {each.base_offset: each.size for each in log.segment_facts()}
        for group in LogCleaning(task_of(log), ManualClock(), ours.SEED, lambda: seen.append(beside())).run():
            new = [segment_path(log.directory, base, ".log.cleaned").stat().st_size for base in group.new]
            assert beside() == sum(new)
            assert max([*seen, beside()]) <= sum(old[base] for base in group.old)
            for path in log.replace_segments(group.new, group.old):
                path.unlink()
            assert beside() == 0
            written.append(sum(new))
            merged.append(len(group.old) > 1)
            seen.clear()
    assert any(merged)
    assert sum(written) > 3 * max(written) > 2000


def test_a_pass_that_is_not_wanted_any_more_leaves_nothing(log):
    class Enough(Exception):
        pass

    fill(log)
    asked = []

    def is_wanted():
        asked.append(1)
        if len(asked) > 6:
            raise Enough

    with suppress(Enough):
        for _ in LogCleaning(task_of(log), ManualClock(), ours.SEED, is_wanted).run():
            for name in leftovers(log.directory):  # of the group that is handed out
                (log.directory / name).unlink()
    assert len(asked) == 7
    assert leftovers(log.directory) == []


def test_a_producer_goes_on_after_a_cleaning_and_a_restart_and_a_fenced_one_stays_fenced(tmp_path):
    (tmp_path / "t-0").mkdir()
    log = opened(tmp_path / "t-0", config_of(), NOW_MS)
    append(log, (b"k", b"1"), (b"k", b"2"), producer=Producer(5, 1, 0))
    append(log, (b"k", b"3"), producer=Producer(6, 3, 0, is_transactional=True))
    mark(log, Producer(6, 4, 0), ControlType.ABORT)
    append(log, (b"k", b"last"))
    log.roll()
    clean(log)
    assert records_of(log) == [(4, b"k", b"last")]
    for _ in range(2):
        log.close()
        for path in log.directory.glob("*.snapshot"):
            path.unlink()  # all that is known is what is in the log
        log = opened(tmp_path / "t-0", config_of(), NOW_MS)
        end = log.log_end_offset
        assert append(log, (b"k", b"1"), (b"k", b"2"), producer=Producer(5, 1, 0)) == 0, "it is a repetition"
        for stale in (Producer(5, 0, 2), Producer(6, 3, 1, is_transactional=True)):
            with pytest.raises(ApiError) as caught:
                append(log, (b"k", b"x"), producer=stale)
            assert caught.value.code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
        with pytest.raises(ApiError) as caught:
            append(log, (b"k", b"x"), producer=Producer(5, 1, 7))
        assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert log.log_end_offset == end
        log.roll()
        if log.segment_count > 1:
            clean(log, 0)
    assert append(log, (b"k", b"on"), producer=Producer(5, 1, 2)) == end
    log.close()


def test_a_fetch_that_was_read_before_a_swap_finds_its_aborted_transactions_after_it(log):
    producer = Producer(7, 0, 0, is_transactional=True)
    first = append(log, (b"k", b"kept"))
    append(log, (b"k", b"aborted"), producer=producer)
    append(log, (b"other", b"v"))
    mark(log, producer, ControlType.ABORT)
    log.roll()
    append(log, (b"end", b"v"))
    bound = log.last_stable_offset
    piece = log.read(first, 1 << 20, log.end, min_one_batch=True)
    _, before = log.aborted_in(piece, first, bound)
    clean(log)
    _, after = log.aborted_in(piece, first, bound)
    assert before == after
    assert [each.producer_id for each in after] == [7]
    assert b"aborted" not in [each[2] for each in records_of(log)]


def test_what_was_aborted_stays_so_where_a_crash_takes_the_start_of_the_log_back(tmp_path):
    """A start that no checkpoint has yet is lost in a crash; what lies before it is part of the log again."""
    (tmp_path / "t-0").mkdir()
    log = opened(tmp_path / "t-0", config_of(), NOW_MS)
    producer = Producer(7, 0, 0, is_transactional=True)
    append(log, (b"k", b"aborted"), producer=producer)
    mark(log, producer, ControlType.ABORT)
    append(log, (b"other", b"v"))
    log.roll()
    log.advance_start(2)
    clean(log)
    log.close()
    with closing(opened(tmp_path / "t-0", config_of(), NOW_MS, log_start_offset=0)) as log:
        assert records_of(log) == [(2, b"other", b"v")]


@pytest.mark.parametrize("seed", range(12))
def test_any_log_replays_to_the_same_table_pass_after_pass(tmp_path, seed):
    """The logs of the comparison with Kafka's cleaner; with maps and buffers of any size."""
    writer = LogWriter(seed, {"min.compaction.lag.ms": "0"}, without=("delete",))
    written = writer.write(tmp_path / "t-0", 60)
    first_dirty, sizes = None, (24 * 5, 24 * 40, 1 << 20)
    for number in range(4):
        writer.pass_time(1000 * (1, 90_000, 60, 200_000)[number])
        before = _committed(tmp_path / "t-0", written)
        _, stats = ours.clean(
            tmp_path / "t-0",
            config=written.settings,
            now_ms=writer.now_ms,
            first_dirty=first_dirty,
            buffer_bytes=sizes[number % 3],
            read_bytes=(70, 1000, 1 << 16)[number % 3],
        )
        assert _committed(tmp_path / "t-0", written) == before
        first_dirty = stats.end_offset


def _committed(directory, written):
    """The table that a read_committed reader comes to."""
    with closing(opened(directory, parse(TopicConfig, written.settings), written.now_ms)) as log:
        bound = log.last_stable_offset
        aborted = log.aborted_transactions(0, bound)
        found = {}
        for batch in iter_batches(b"".join(map(bytes, log.read_all(1 << 20)))):
            if batch.is_control or batch.base_offset >= bound:
                continue
            if batch.is_transactional and any(
                each.producer_id == batch.producer_id and each.first_offset <= batch.base_offset <= each.last_offset
                for each in aborted
            ):
                continue
            for each in iter_records(batch):
                if each.key is not None:
                    found[each.key] = each.value
        return {key: value for key, value in found.items() if value is not None}
