"""Appending to a log and reading it. Whatever is done in whatever order: see test_model."""

import errno
import os
import shutil

import crc32c
import pytest
from log.samples import SMALL, abandon, batch_of, open_log, read_bytes, whole

from sparklog.errors import ApiError, ErrorCode, LogClosed, LogDirFailed
from sparklog.record.batch import RecordBatch
from sparklog.record.compression import CompressionType
from sparklog.record.records import iter_batches, iter_records
from sparklog.structs import OffsetAndEpoch
from sparklog.testing.clock import ManualClock


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


def test_a_batch_larger_than_asked_for_is_given_whole_only_to_the_first(home):
    log = open_log(home, {"segment.bytes": "10000"})
    data = batch_of(1000, size=5000)
    log.append_as_leader(data, 0)
    assert read_bytes(log.read(0, 10, log.end, min_one_batch=True)) == bytes(data)
    assert read_bytes(log.read(0, 10, log.end, min_one_batch=False)) == bytes(data[:10])


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
        assert log.latest_timestamp() == latest[start]
    log.advance_start(8)
    assert log.latest_timestamp() is None


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
    assert log.offset_for_timestamp(4_999_999) == (5_000_000, 0)


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


def test_offsets_further_apart_than_an_index_can_say_roll_a_segment(home):
    log = open_log(home)
    wide = batch_of(1000, codec=CompressionType.ZSTD)
    wide[23:27], wide[57:61] = (2**31 - 2).to_bytes(4, "big"), (2**31 - 1).to_bytes(4, "big")
    sealed = _sealed(wide)
    for _ in range(3):
        log.append_as_leader(memoryview(bytearray(sealed)), 0)
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
        assert log.offset_for_timestamp(timestamp) == (1020, 2)
    assert log.latest_timestamp() == (1020, 2)


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
    assert log.latest_timestamp() == (1004, 4)
    assert log.append_as_leader(batch_of(6000), 0).first_offset == 5
    assert log.offset_for_timestamp(5000) == (6000, 5)
    log.close()
    again = open_log(home, settings)
    assert [batch.base_offset for batch in iter_batches(whole(again))] == list(range(6))
