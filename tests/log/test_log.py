"""Appending to a log and reading it. Whatever is done in whatever order: see test_model."""

import errno
import os
import re
import shutil
import uuid
from functools import partial

import crc32c
import pytest
from log.samples import SMALL, TP, abandon, batch_of, open_log, read_bytes, whole, write_cleaned

from sparklog.clock import monotonic_ms
from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, DiskFull, ErrorCode, LogClosed, LogDirFailed, LogError
from sparklog.log.indexes.time_index import TimeIndex
from sparklog.log.log import Log
from sparklog.log.validator import prepare
from sparklog.record import layout
from sparklog.record.batch import RecordBatch, patch_max_timestamp
from sparklog.record.compression import CompressionType
from sparklog.record.rebuilding import empty_header
from sparklog.record.records import iter_batches, iter_records
from sparklog.structs import OffsetAndEpoch
from sparklog.testing.clock import ManualClock
from sparklog.testing.files import FaultyFiles
from sparklog.testing.steps import counted, finish


@pytest.fixture
def home(tmp_path):
    return tmp_path / "t-0"


@pytest.fixture
def log(home):
    return open_log(home, SMALL)


def filled(home, count=30, settings=SMALL, **how):
    log = open_log(home, settings, **how)
    for number in range(count):
        log.append_as_leader(batch_of(1000 + number, size=100), 0)
    return log


def test_an_offset_before_the_start_or_beyond_the_end_is_out_of_range(home):
    log = filled(home)
    for offset in (-1, 31, 1 << 40):
        with pytest.raises(ApiError, match=r"offset -?\d+ of t-0 is not in 0 to 30") as caught:
            log.read(offset, 100, log.end, min_one_batch=True)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(30, 100, log.end, min_one_batch=True) is None


def test_a_batch_larger_than_asked_for_is_given_whole_or_not_at_all(home):
    log = open_log(home, {"segment.bytes": "10000"})
    data = batch_of(1000, size=5000)
    log.append_as_leader(data, 0)
    assert read_bytes(log.read(0, 10, log.end, min_one_batch=True)) == bytes(data)
    assert log.read(0, 10, log.end, min_one_batch=False).size == 0


def test_a_batch_larger_than_a_segment_is_refused_and_leaves_the_log_as_it_was(home):
    largest = batch_of(1000, size=200)
    log = open_log(home, {"segment.bytes": str(len(largest))})
    log.append_as_leader(largest, 0)
    with pytest.raises(ApiError, match=f"larger than segment.bytes={len(largest)}") as caught:
        log.append_as_leader(batch_of(1000, size=201), 0)
    assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert (log.log_end_offset, log.segment_count) == (1, 1)


def test_what_the_topic_compresses_counts_as_it_is_stored(home):
    log = open_log(home, {"segment.bytes": "500", "compression.type": "zstd"})
    assert log.append_as_leader(batch_of(1000, size=5000), 0).first_offset == 0


def test_the_latest_time_is_that_of_a_record_that_is_not_deleted(home):
    log = open_log(home, {"segment.bytes": "400", "index.interval.bytes": "0"})
    for times in ((5000, 4000, 4500), (3000,), (3500, 3100), (10,), (20,)):
        log.append_as_leader(batch_of(*times), 0)
    latest = {
        0: (5000, 0),
        1: (4500, 2),
        2: (4500, 2),
        3: (3500, 4),
        4: (3500, 4),
        5: (3100, 5),
        6: (20, 7),
        7: (20, 7),
    }
    for start in range(8):
        log.advance_start(start)
        assert finish(log.latest_timestamp()) == latest[start]
    log.advance_start(8)
    assert finish(log.latest_timestamp()) is None


def test_the_latest_time_is_looked_for_in_the_segment_that_has_it_alone(home):
    log = open_log(home)
    for time in (1000, 3000, 2000):
        log.append_as_leader(batch_of(time), 0)
        log.roll()
    assert counted(log.latest_timestamp()) == (1, (3000, 1))


def test_of_records_of_the_latest_time_in_several_segments_the_first_is_found(home):
    """Also where a later segment is looked at first, for a time of which only the header of a batch is left."""
    log = open_log(home)
    for times in ((50,), (90, 50)):
        for time in times:
            log.append_as_leader(batch_of(time), 0)
        log.roll()
    _, erased, kept = iter_batches(whole(log))
    write_cleaned(home, 1, [bytes(empty_header(erased)), bytes(kept.buffer)], log.config)
    log.replace_segments([1], [1])
    assert finish(log.latest_timestamp()) == (50, 0)


@pytest.mark.parametrize("settings", [{}, {"compression.type": "zstd"}])
def test_a_batch_that_was_prepared_is_written_as_it_was(home, settings):
    log = open_log(home, settings)
    prepared = prepare(batch_of(1000, 1001, size=200), log.config, 0)
    data = bytes(prepared.batch.buffer)
    assert log.append_as_leader(prepared, 0) == (0, 1, -1, 0)
    assert whole(log)[layout.MAGIC :] == data[layout.MAGIC :]


def test_a_batch_that_was_prepared_under_other_settings_is_looked_at_again(home):
    log = open_log(home)
    prepared = [prepare(batch_of(1000, size=200), log.config, 0) for _ in range(2)]
    log.config = parse(TopicConfig, {"retention.ms": "5"})
    assert log.append_as_leader(prepared[0], 0).first_offset == 0, "these say nothing of a batch"
    log.config = parse(TopicConfig, {"max.message.bytes": "100"})
    with pytest.raises(ApiError) as refused:
        log.append_as_leader(prepared[1], 0)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert log.log_end_offset == 1


def test_the_bounds_on_times_are_by_the_brokers_clock(home):
    log = open_log(home, {"message.timestamp.before.max.ms": "10"}, clock=ManualClock(10_000))
    assert log.append_as_leader(batch_of(9_990), 0).first_offset == 0
    with pytest.raises(ApiError) as refused:
        log.append_as_leader(batch_of(9_989), 0)
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP


def test_whose_topic_a_log_is_lasts(home):
    log, topic_id = open_log(home), uuid.UUID(int=7)
    assert log.topic_id is None
    log.assign_topic_id(topic_id)
    log.close()
    assert (log.topic_id, open_log(home).topic_id) == (topic_id, topic_id)


def opened_again(log, *, clean):
    if clean:
        log.close()
    else:
        log.flush()
        abandon(log)
    return open_log(log.directory, clean=clean)


def begun_anew(log):
    log.restart_at(9)
    return log


@pytest.mark.parametrize(
    ("made", "entries"),
    [
        (lambda log: log, 1),
        (partial(opened_again, clean=True), 2),
        (partial(opened_again, clean=False), 2),
        (begun_anew, 1),
    ],
    ids=["as it was", "after a clean stop", "after a crash", "begun anew"],
)
def test_the_segment_that_is_appended_to_is_sealed_by_the_next_roll(home, made, entries):
    """Its last time gets an entry; it had one for the time before if it was opened again."""
    log = open_log(home)
    log.append_as_leader(batch_of(1000), 0)
    log = made(log)
    log.append_as_leader(batch_of(2000), 0)
    log.roll()
    assert [each.time_index_size for each in log.segment_facts()] == [12 * entries, 0]
    log.close()


def begun(search):
    """A search that has taken its first step."""
    next(search)
    return search


def cut_log(home):
    """A log of two segments that starts behind its first record, the latest one; the last one is the next latest."""
    log = open_log(home, {"index.interval.bytes": "0"})
    log.append_as_leader(batch_of(9000), 0)
    for number in range(1, 500):
        log.append_as_leader(batch_of(1000), 0)
        if number == 250:
            log.roll()
    log.append_as_leader(batch_of(2000), 0)
    log.advance_start(1)
    return log


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_time_is_found_although_its_segments_change_between_two_steps(home, how):
    log = cut_log(home)
    searches = [begun(log.offset_for_timestamp(1500)), begun(log.latest_timestamp())]
    log.roll()
    if how == "deleted":
        log.advance_start(500)
        assert log.delete_old_segments(500)
    else:
        batches = [bytes(batch.buffer) for view in log.read_all(1 << 20) for batch in iter_batches(view)]
        write_cleaned(home, 0, batches, log.config)
        log.replace_segments([0], [0, 251])
    assert [finish(search) for search in searches] == [(2000, 500)] * 2


def test_the_latest_time_is_found_although_its_segment_goes_while_a_large_batch_is_looked_into(home):
    """The latest record of the batch lies before the log's start, so that the others are to be looked at."""
    log = open_log(home, {"index.interval.bytes": "0"})
    log.append_as_leader(batch_of(5000, 1000, size=400_000), 0)
    for _ in range(20):
        log.append_as_leader(batch_of(1500), 0)
    log.roll()
    log.append_as_leader(batch_of(2000), 0)
    log.advance_start(1)
    search = begun(log.latest_timestamp())
    log.advance_start(22)
    assert log.delete_old_segments(22)
    assert finish(search) == (2000, 22)


def test_nothing_at_or_beyond_the_bound_is_given(home):
    log = filled(home)
    for visible in range(31):
        bound = log.position_of(visible)
        for offset in range(visible):
            read = read_bytes(log.read(offset, 1 << 20, bound, min_one_batch=True))
            assert [batch.base_offset for batch in iter_batches(read)][-1] < visible
        assert log.read(visible, 1 << 20, bound, min_one_batch=True) is None


def test_offsets_within_a_batch_lead_to_the_batch(log):
    data = [batch_of(1000, 1001, 1002), batch_of(1003, 1004)]
    for each in data:
        log.append_as_leader(each, 0)
    both = bytes(data[0]) + bytes(data[1])
    for offset, expected in ((0, both), (2, both), (3, bytes(data[1])), (4, bytes(data[1]))):
        assert read_bytes(log.read(offset, 1 << 20, log.end, min_one_batch=True)) == expected


def test_a_batch_on_disk_bears_its_offset_and_leader_epoch_and_its_crc_still_holds(log):
    for epoch in (3, 3, 5):
        log.append_as_leader(batch_of(1000, 1001), epoch)
    batches = list(iter_batches(whole(log)))
    assert [(batch.base_offset, batch.partition_leader_epoch) for batch in batches] == [(0, 3), (2, 3), (4, 5)]
    for batch in batches:
        batch.validate()


def lying(max_timestamp, *times):
    """A batch whose header says another max timestamp than its records have."""
    records = batch_of(*times)
    patch_max_timestamp(records, 0, max_timestamp)
    return records


def test_a_record_is_found_by_its_time_whatever_its_producer_says_of_it(home):
    log = open_log(home)
    log.append_as_leader(lying(1000, 1000, 5000), 0)
    log.append_as_leader(lying(2**62, 4000), 0)
    assert finish(log.offset_for_timestamp(5000)) == (5000, 1)
    assert finish(log.offset_for_timestamp(5001)) is None
    assert finish(log.latest_timestamp()) == (5000, 1)
    for batch in iter_batches(whole(log)):
        batch.validate()


def test_no_producer_keeps_its_records_beyond_the_retention(home):
    log = open_log(home, {"retention.ms": "1000", "segment.bytes": "300"}, clock=ManualClock(10_000))
    for _ in range(10):
        log.append_as_leader(lying(2**62, 5000), 0)
    while log.delete_old_segments(log.log_end_offset):
        pass
    assert log.log_start_offset == log.log_end_offset


@pytest.mark.parametrize("codec", list(CompressionType))
@pytest.mark.parametrize("topic_codec", ["producer", "uncompressed", "gzip", "zstd"])
def test_log_append_time_is_the_brokers_clock(home, codec, topic_codec):
    clock = ManualClock(5_000_000)
    settings = {"message.timestamp.type": "LogAppendTime", "compression.type": topic_codec}
    log = open_log(home, settings, clock=clock)
    assert log.append_as_leader(batch_of(1, 2, codec=codec), 0).log_append_time == 5_000_000
    (batch,) = iter_batches(whole(log))
    batch.validate()
    assert [record.timestamp for record in iter_records(batch)] == [5_000_000] * 2
    assert finish(log.offset_for_timestamp(4_999_999)) == (5_000_000, 0)


def test_old_records_do_not_roll_a_segment_each(home):
    # Data with the timestamps of another year, loaded today.
    log = filled(home, 20, {"segment.ms": "604800000"})
    assert log.segment_count == 1


def test_a_segment_is_rolled_when_its_records_span_the_time(home):
    log = open_log(home, {"segment.ms": "1000"})
    for timestamp in (5000, 6000, 6001, 2000, 7002):
        log.append_as_leader(batch_of(timestamp), 0)
    assert [segment.base_offset for segment in log._segments] == [0, 2, 4]


@pytest.mark.parametrize("index_bytes", ["4", "8", "12", "23", "24"])
def test_a_topic_with_room_for_no_index_still_takes_records(home, index_bytes):
    settings = {"segment.index.bytes": index_bytes, "index.interval.bytes": "0"}
    log = filled(home, 10, settings)
    assert log.log_end_offset == 10
    abandon(log)
    log = open_log(home, settings, clean=False)
    assert log.log_end_offset == 10
    assert [batch.base_offset for batch in iter_batches(whole(log))] == list(range(10))


def test_a_segment_with_more_index_entries_than_are_allowed_now_is_recovered(home):
    generous = {"index.interval.bytes": "0", "segment.index.bytes": "10000"}
    abandon(filled(home, 60, generous))
    log = open_log(home, generous | {"segment.index.bytes": "100"}, clean=False)
    for offset in range(60):
        read = read_bytes(log.read(offset, 1, log.end, min_one_batch=True))
        assert RecordBatch(read).base_offset == offset


def test_the_latest_time_finds_its_slot_in_an_index_that_a_recovery_has_filled(home):
    generous = {"index.interval.bytes": "0", "segment.index.bytes": "10000"}
    abandon(filled(home, 20, generous))
    open_log(home, generous | {"segment.index.bytes": "36"}, clean=False).close()
    index = TimeIndex(home / f"{0:020d}.timeindex", 0, 36)
    assert (index.entries, index.last) == (3, (1019, 19))


def test_offsets_further_apart_than_an_index_can_say_roll_a_segment(home):
    log = open_log(home)
    wide = batch_of(1000)
    wide[23:27] = (2**31 - 2).to_bytes(4, "big")  # as compaction leaves it
    sealed = _sealed(wide)
    for number in range(3):
        placed = (number * (2**31 - 1)).to_bytes(8, "big") + sealed[8:]
        log.append_as_follower(memoryview(bytearray(placed)))
    assert [segment.base_offset for segment in log._segments] == [0, 2**31 - 1, 2 * (2**31 - 1)]


def _sealed(data):
    data[17:21] = crc32c.crc32c(data[21:]).to_bytes(4, "big")
    return bytes(data)


def test_a_closed_log_is_closed(home):
    log = filled(home, 3)
    end = log.end
    log.close()
    log.close()
    for call in (
        lambda: log.append_as_leader(batch_of(), 0),
        lambda: log.read(0, 10, end, min_one_batch=True),
        lambda: list(log.read_all(10)),
        lambda: log.truncate_to(0),
    ):
        with pytest.raises(LogClosed):
            call()


def test_a_slice_outlives_the_log_and_its_files(home):
    log = filled(home)
    pieces = [log.read(offset, 1 << 20, log.end, min_one_batch=True) for offset in (0, 29)]
    expected = [read_bytes(piece) for piece in pieces]
    log.close()
    shutil.rmtree(home)
    del log
    assert [read_bytes(piece) for piece in pieces] == expected


def test_reading_all_gives_whole_batches_in_blocks(home):
    log = filled(home)
    blocks = [bytes(block) for block in log.read_all(500)]
    assert len(blocks) > 3
    for block in blocks:
        assert sum(batch.size_in_bytes for batch in iter_batches(block, partial_tail=False)) == len(block)
    offsets = [batch.base_offset for block in blocks for batch in iter_batches(block)]
    assert offsets == list(range(30))


@pytest.mark.parametrize("block", [12, 61, 200])
def test_reading_all_takes_a_batch_that_is_larger_than_a_block_whole(home, block):
    log = open_log(home)
    for size in (10, 400, 10):
        log.append_as_leader(batch_of(1, size=size), 0)
    assert b"".join(map(bytes, log.read_all(block))) == whole(log)
    assert [batch.base_offset for view in log.read_all(block) for batch in iter_batches(view)] == [0, 1, 2]


def test_the_end_of_an_epoch_is_known(log):
    for epoch in (1, 1, 4):
        log.append_as_leader(batch_of(), epoch)
    ends = {epoch: log.epochs.end_offset(epoch, log.log_end_offset) for epoch in range(6)}
    assert ends == {
        0: OffsetAndEpoch(0, 0),
        1: OffsetAndEpoch(2, 1),
        2: OffsetAndEpoch(2, 1),
        3: OffsetAndEpoch(2, 1),
        4: OffsetAndEpoch(3, 4),
        5: OffsetAndEpoch(3, 4),
    }


def test_times_are_found_after_a_truncation(home):
    log = filled(home, 30, {"index.interval.bytes": "0"})
    log.truncate_to(2)
    for timestamp in (1020, *[1000] * 30):
        log.append_as_leader(batch_of(timestamp), 0)
    for timestamp in (1002, 1010, 1020):
        assert finish(log.offset_for_timestamp(timestamp)) == (1020, 2)
    assert finish(log.latest_timestamp()) == (1020, 2)


@pytest.mark.parametrize("entry", [8, 12], ids=["offset index", "time index"])
def test_a_disk_that_has_no_room_for_an_index_entry_leaves_the_log_as_it_was(home, monkeypatch, entry):
    settings = {"index.interval.bytes": "0"}
    log = filled(home, 5, settings)
    before, write = whole(log), os.pwrite

    def refuse(fd, data, position):
        if len(data) == entry:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data, position)

    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", refuse)
        for _ in range(2):
            with pytest.raises(LogDirFailed, match="No space left"):
                log.append_as_leader(batch_of(5000), 0)
    assert whole(log) == before
    assert log.log_end_offset == 5
    assert finish(log.latest_timestamp()) == (1004, 4)
    assert log.append_as_leader(batch_of(6000), 0).first_offset == 5
    assert finish(log.offset_for_timestamp(5000)) == (6000, 5)
    log.close()
    again = open_log(home, settings)
    assert [batch.base_offset for batch in iter_batches(whole(again))] == list(range(6))


@pytest.mark.parametrize(("at", "what"), [(70, "a record"), (16, "a magic"), (8, "a length")])
def test_reading_all_leaves_out_what_is_damaged_and_says_where(home, caplog, at, what):
    log = filled(home)
    path = sorted(home.glob("*.log"))[0]
    batches = [*iter_batches(path.read_bytes())]
    data = bytearray(path.read_bytes())
    data[batches[0].size_in_bytes + at] ^= 0x7F
    path.write_bytes(data)
    offsets = [batch.base_offset for block in log.read_all(500) for batch in iter_batches(block, partial_tail=False)]
    assert offsets == [0, *range(2, 30)], what
    assert "where offset 1 is due, are damaged and left out" in caplog.text
    assert str(path) in caplog.text


def test_reading_all_ends_before_a_torn_tail(home, caplog):
    log = filled(home)
    path = sorted(home.glob("*.log"))[-1]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    offsets = [batch.base_offset for block in log.read_all(500) for batch in iter_batches(block, partial_tail=False)]
    assert offsets == [*range(29)]
    assert "where offset 29 is due" in caplog.text


def test_the_batches_tell_which_epoch_began_where(home):
    log = open_log(home, {"segment.bytes": "200"})
    for epoch in (1, 1, 3, 3, 5):
        log.append_as_leader(batch_of(1000, 1001), epoch)
    assert log.segment_count > 1
    found = {start: list(log._segments.epochs_from(start)) for start in (0, 1, 2, 4, 7, 9)}
    assert found == {
        0: [(1, 0), (3, 4), (5, 8)],
        1: [(1, 1), (3, 4), (5, 8)],
        2: [(1, 2), (3, 4), (5, 8)],
        4: [(3, 4), (5, 8)],
        7: [(3, 7), (5, 8)],
        9: [(5, 9)],
    }


def _refuse(*_, **__):
    raise OSError(errno.EIO, "Input/output error")


REFUSALS = {
    "open": ("sparklog.log.log.LogLoader.load", lambda log: open_log(log.directory), "cannot open {home}"),
    "topic id": (
        "sparklog.log.log.write_topic_id",
        lambda log: log.assign_topic_id(uuid.uuid4()),
        "cannot record the topic id in {home}",
    ),
    "append": (
        "sparklog.log.segment.LogSegment.append",
        lambda log: log.append_as_leader(batch_of(), 0),
        "cannot append to {home}",
    ),
    "roll": ("sparklog.log.segment.LogSegment.seal", lambda log: log.roll(), "cannot roll {home}"),
    "retention": (
        "sparklog.log.segment.LogSegment.delete_log",
        lambda log: log.delete_old_segments(30),
        "cannot delete segments of {home}",
    ),
    "truncation": (
        "sparklog.log.segment.LogSegment.truncate_to",
        lambda log: log.truncate_to(2),
        "cannot truncate {home} to 2",
    ),
    "restart": (
        "sparklog.log.producer_state.ProducerStateManager.restart_at",
        lambda log: log.restart_at(50),
        "cannot truncate {home} to 50",
    ),
    "flush": ("sparklog.log.segment.LogSegment.flush", lambda log: log.flush(), "cannot flush {home}"),
    "close": (
        "sparklog.log.producer_state.ProducerStateManager.take_snapshot",
        lambda log: log.close(),
        "cannot close {home}",
    ),
}


@pytest.mark.source
@pytest.mark.parametrize("what", REFUSALS)
def test_what_the_disk_refused_is_said(home, monkeypatch, what):
    refusing, act, said = REFUSALS[what]
    log = filled(home, 30, {"segment.bytes": "1000", "retention.bytes": "1000"})
    with monkeypatch.context() as patch:
        patch.setattr(refusing, _refuse)
        text = f"^{said.format(home=re.escape(str(home)))}: Input/output error"
        with pytest.raises(LogDirFailed, match=text) as refused:
            act(log)
    assert refused.value.errno == (None if what == "flush" else errno.EIO)


@pytest.mark.source
def test_a_roll_that_the_disk_refuses_leaves_the_old_segment_to_append_to(home, monkeypatch):
    log = filled(home, 3)
    files = sorted(os.listdir(home))
    with monkeypatch.context() as patch:
        patch.setattr("sparklog.log.segment.LogSegment.seal", _refuse)
        with pytest.raises(LogDirFailed):
            log.roll()
    assert [name for name in sorted(os.listdir(home)) if not name.endswith(".snapshot")] == files
    assert log.append_as_leader(batch_of(), 0).first_offset == 3
    log.roll()
    assert [segment.base_offset for segment in log._segments] == [0, 4]


@pytest.mark.parametrize("flushed", [True, False])
def test_a_roll_without_a_descriptor_left_takes_nothing_out_of_service(tmp_path, flushed):
    operations = (Log.roll, lambda log: log.append_as_leader(batch_of(), 0))
    for log in _refused_at_each_step(tmp_path, flushed, operations, error=errno.EMFILE, steps=("open",)):
        end = log.log_end_offset
        assert log.append_as_leader(batch_of(), 0).first_offset == end
        log.roll()
        assert read_bytes(log.read(end, 1, log.end, min_one_batch=True))
        log.close()


@pytest.mark.parametrize("flushed", [True, False])
def test_a_roll_that_finds_no_room_takes_nothing_out_of_service(tmp_path, flushed):
    fault = {"error": errno.ENOSPC, "steps": ("open", "pwrite", "ftruncate")}
    for log in _refused_at_each_step(tmp_path, flushed, (Log.roll,), **fault):
        assert log.append_as_leader(batch_of(), 0).first_offset == 3
        log.roll()
        log.flush()
        log.close()
        assert open_log(log.directory, clean=True).log_end_offset == 4


def _refused_at_each_step(tmp_path, flushed, operations, **fault):
    """A log of three records for each step that the operations take, from which on the disk refused, and a last one."""
    for n in range(40):
        log = filled(tmp_path / str(n), 3)
        if flushed:
            log.flush()
        with FaultyFiles(log.directory, fail_at=n, lasting=True, **fault):
            refused = _refusals(*(partial(each, log) for each in operations))
        assert all(isinstance(each, DiskFull) for each in refused), n
        yield log
        if not refused:
            return
    raise AssertionError("a roll takes steps without end")


def _refusals(*operations):
    errors = []
    for each in operations:
        try:
            each()
        except LogDirFailed as error:
            errors.append(error)
    return errors


def test_an_empty_segment_is_not_rolled(home):
    log = open_log(home)
    log.roll()
    assert log.segment_count == 1
    log.append_as_leader(batch_of(), 0)
    log.roll()
    log.roll()
    assert [segment.base_offset for segment in log._segments] == [0, 1]


def test_settings_take_effect_with_the_next_append(home):
    log = filled(home, 3, {"segment.bytes": "100000"})
    log.roll()
    log.append_as_leader(batch_of(), 0)
    log.config = parse(TopicConfig, {"segment.bytes": "100"})
    assert all(segment.config is log.config for segment in log._segments)
    log.append_as_leader(batch_of(), 0)
    assert log.segment_count == 3


def test_records_without_a_time_roll_as_early_when_the_wall_clock_is_set_back(home):
    clock = ManualClock()
    log = open_log(home, {"segment.ms": "1000"}, clock=clock)
    log.append_as_leader(batch_of(-1), 0)
    log.append_as_leader(batch_of(-1), 0)  # the first segment was found; its age is told from here on
    clock.set_wall(0)
    clock.advance(1)
    log.append_as_leader(batch_of(-1), 0)
    assert log.segment_count == 1
    clock.advance(0.5)
    log.append_as_leader(batch_of(-1), 0)
    assert log.segment_count == 2
    clock.set_wall(0)
    clock.advance(1.5)
    log.append_as_leader(batch_of(-1), 0)
    assert log.segment_count == 3


def test_a_flush_is_due_when_something_has_waited_for_so_long(home):
    clock = ManualClock()
    log = open_log(home, {"flush.ms": "1000"}, clock=clock)
    begun = monotonic_ms(clock)
    assert not log.flush_is_due(begun + 5000)
    log.append_as_leader(batch_of(), 0)
    clock.advance(0.5)
    log.append_as_leader(batch_of(), 0)
    assert not log.flush_is_due(begun + 999)
    assert log.flush_is_due(begun + 1000)
    log.flush()
    assert not log.flush_is_due(begun + 5000)


def test_a_recovery_point_beyond_the_end_of_what_a_crash_left_is_not_believed(home):
    filled(home, 3).close()
    assert open_log(home, clean=False, recovery_point=9).recovery_point == 3
    assert open_log(home, clean=False, recovery_point=2).recovery_point == 2
    assert open_log(home, clean=True, recovery_point=0).recovery_point == 3


def test_what_cannot_be_replaced_is_said(home):
    log = filled(home, 30, {"segment.bytes": "400"})
    first, second, *_, active = (segment.base_offset for segment in log._segments)
    for new, old in (([0], [active]), ([0], [7777]), ([first], []), ([first], [second])):
        with pytest.raises(LogError, match=re.escape(f"cannot replace segments {old} of t-0 by {new}")):
            log.replace_segments(new, old)


def test_a_truncation_at_or_beyond_the_end_changes_nothing(home):
    log = filled(home, 3)
    log.flush()
    for offset in (3, 4):
        log.truncate_to(offset)
        assert (log.log_end_offset, log.recovery_point, log.truncations) == (3, 3, 0)


def test_a_log_counts_how_often_it_was_cut(home):
    log = filled(home, 3)
    counts = [log.truncations]
    for cut in (lambda: log.truncate_to(2), lambda: log.truncate_to(1), lambda: log.restart_at(9)):
        cut()
        counts.append(log.truncations)
    assert counts == sorted({*counts}), "it grows each time"


def test_a_truncated_log_counts_as_flushed_no_further(home):
    log = filled(home, 5)
    log.flush()
    log.truncate_to(3)
    assert (log.log_end_offset, log.recovery_point) == (3, 3)


def test_a_start_is_never_beyond_the_end_nor_goes_back(home):
    log = filled(home, 5)
    log.advance_start(3)
    log.advance_start(2)
    assert log.log_start_offset == 3
    log.advance_start(9)
    assert log.log_start_offset == 5


def test_the_jitter_of_a_new_segment_is_drawn_below_its_bound_and_its_age(home):
    asked = []

    def draw(below):
        asked.append(below)
        return below - 1

    settings = parse(TopicConfig, {"segment.jitter.ms": "50", "segment.ms": "1000"})
    home.mkdir()
    log = Log(home, TP, settings, ManualClock(), lambda work: work(), draw=draw)
    log.append_as_leader(batch_of(), 0)
    log.roll()
    log.append_as_leader(batch_of(), 0)
    log.config = parse(TopicConfig, {"segment.jitter.ms": "5000", "segment.ms": "1000"})
    log.roll()
    log.append_as_leader(batch_of(), 0)
    log.config = parse(TopicConfig, {"segment.ms": "1000"})
    log.roll()
    assert asked == [50, 1000]
    assert [segment.jitter_ms for segment in log._segments] == [0, 49, 999, 0]
