"""Segments taken into a log whole: what an append of the same batches would have left, and what is refused."""

import os

import pytest
from log.samples import (
    SMALL,
    batch_of,
    in_a_row,
    marker_of,
    open_log,
    transactional,
    whole,
    write_offer,
)

from sparklog.errors import ApiError, ErrorCode, LogError
from sparklog.log.adoption import ADOPTION, AppendAdoption, Offer, RestoreAdoption, offer_path
from sparklog.log.origin import AppendOrigin
from sparklog.record.batch import RecordBatch, patch_max_timestamp
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.record.control import ControlType
from sparklog.record.records import iter_batches

EPOCH = 3


def allowed(_producer_id, _epoch):
    """The coordinator counts every partition in."""


def batches_of(count, *, first_sequence=0, records=3):
    return [transactional(7, first_sequence + n * records, records) for n in range(count)]


def appending(log, offer):
    return AppendAdoption(log.directory, offer, log.config, log._clock.now_ms())


def adopt(log, adoption, epoch=EPOCH):
    """What a broker does, one step after the other."""
    adoption.check()
    adoption.prepare(log.log_end_offset, epoch)
    log.hold(adoption, allowed)
    try:
        log.flush()
        adoption.commit()
        log.take_adopted(adoption)
    finally:
        log.release()


def restore(log, offer, epoch=EPOCH):
    adopt(
        log, RestoreAdoption(log.directory, offer, log.config, log._clock.now_ms(), log.producers_to_restore()), epoch
    )


def end(log, kind=ControlType.COMMIT):
    log.append_as_leader(marker_of(7, kind), EPOCH, AppendOrigin.COORDINATOR)


def state_of(log):
    """All that readers, producers and followers may learn of a log."""
    return (
        whole(log),
        log.log_start_offset,
        log.log_end_offset,
        log.first_unstable_offset,
        sorted(log.producers),
        log.epochs.entries,
        log.aborted_transactions(0, log.log_end_offset),
        [log.read(offset, 1, log.end, min_one_batch=True) is not None for offset in range(log.log_end_offset)],
    )


@pytest.fixture
def home(tmp_path):
    return tmp_path / "t-0"


@pytest.mark.parametrize("before", [0, 1, 4])
@pytest.mark.parametrize("kind", [None, ControlType.COMMIT, ControlType.ABORT])
@pytest.mark.parametrize("count", [1, 3, 9])
def test_adopting_leaves_what_appending_leaves(tmp_path, before, kind, count):
    produced, adopted = open_log(tmp_path / "a" / "t-0", SMALL), open_log(tmp_path / "b" / "t-0", SMALL)
    batches = batches_of(count)
    for log in (produced, adopted):
        for _ in range(before):
            log.append_as_leader(batch_of(1000, size=100), EPOCH)
    for batch in batches:
        produced.append_as_leader(memoryview(bytearray(batch)), EPOCH, verification=allowed)
    placed = in_a_row(batches)
    middle = count // 2 + 1
    segments = [each for each in (placed[:middle], placed[middle:]) if each]
    adopt(adopted, appending(adopted, write_offer(adopted.directory, segments)))
    for log in (produced, adopted):
        assert log.first_unstable_offset == before
        if kind is not None:
            end(log, kind)
        log.on_high_watermark(log.log_end_offset)
    assert state_of(adopted) == state_of(produced)
    for log in (produced, adopted):
        log.close()
    again = [open_log(log.directory, SMALL) for log in (produced, adopted)]
    assert state_of(again[1]) == state_of(again[0])
    for log in again:
        log.append_as_leader(batch_of(5000), EPOCH)
        log.close()


def test_the_log_goes_on_behind_it_in_a_segment_of_its_own(home):
    log = open_log(home, SMALL)
    log.append_as_leader(batch_of(1000), EPOCH)
    placed = in_a_row(batches_of(4))
    adopt(log, appending(log, write_offer(home, [placed[:2], placed[2:]])))
    assert log._segments.bases == (0, 1, 7, 13)
    assert log._segments.active.size == 0
    log.append_as_leader(transactional(7, 12), EPOCH)
    assert log.log_end_offset == 14
    log.close()


def test_indexes_are_made(home):
    log = open_log(home, SMALL)
    adopt(log, appending(log, write_offer(home, [in_a_row(batches_of(4))])))
    segment = log._segments.first
    segment.check_indexes()
    assert segment.offset_index.entries == 1
    assert segment.latest.timestamp == 1002
    log.close()


def test_a_log_that_grew_meanwhile(home):
    log = open_log(home, SMALL)
    adoption = appending(log, write_offer(home, [in_a_row(batches_of(2))]))
    adoption.check()
    adoption.prepare(log.log_end_offset, EPOCH)
    log.append_as_leader(batch_of(1000), EPOCH)
    adoption.prepare(log.log_end_offset, EPOCH)
    log.hold(adoption, allowed)
    adoption.commit()
    log.take_adopted(adoption)
    log.release()
    assert [each.base_offset for each in iter_batches(whole(log))] == [0, 1, 4]
    assert log.first_unstable_offset == 1
    log.close()


def test_nothing_is_appended_while_the_log_is_held(home):
    log = open_log(home, SMALL)
    adoption = appending(log, write_offer(home, [in_a_row(batches_of(1))]))
    adoption.check()
    log.hold(adoption, allowed)
    with pytest.raises(ApiError) as refused:
        log.append_as_leader(batch_of(1000), EPOCH)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert refused.value.code.retriable
    log.release()
    log.append_as_leader(batch_of(1000), EPOCH)
    log.close()


def test_a_producer_that_may_not_write(home):
    """Fencing, order, and the coordinator's word count as in an append."""
    log = open_log(home, SMALL)
    adoption = appending(log, write_offer(home, [in_a_row(batches_of(1))]))
    adoption.check()
    with pytest.raises(ApiError) as refused:
        log.hold(adoption)
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE
    log.append_as_leader(transactional(7, 0, epoch=1), EPOCH, verification=allowed)
    with pytest.raises(ApiError) as refused:
        log.hold(adoption, allowed)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    log.close()


def test_a_gap_of_sequences(home):
    log = open_log(home, SMALL)
    log.append_as_leader(transactional(7, 0), EPOCH, verification=allowed)
    later = appending(log, write_offer(home, [in_a_row(batches_of(1, first_sequence=2))], "later"))
    later.check()
    with pytest.raises(ApiError) as refused:
        log.hold(later, allowed)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    adopt(log, appending(log, write_offer(home, [in_a_row(batches_of(1, first_sequence=1))], "due")))
    assert log.log_end_offset == 4
    log.close()


def changed(data, **header):
    builder = RecordBatchBuilder(**({"producer_id": 7, "producer_epoch": 0, "is_transactional": True} | header))
    for number in range(3):
        builder.append(1000 + number, None, data)
    return builder.build()


BAD = {
    "another byte": (lambda data: data[:-1] + b"X", ErrorCode.CORRUPT_MESSAGE),
    "cut": (lambda data: data[:-1], ErrorCode.CORRUPT_MESSAGE),
    "offset": (lambda data: bytes(7) + b"\x07" + data[8:], ErrorCode.INVALID_RECORD),
    "no transaction": (
        lambda _: in_a_row([changed(b"", base_sequence=6, is_transactional=False)], 6)[0],
        ErrorCode.INVALID_RECORD,
    ),
    "another producer": (
        lambda _: in_a_row([changed(b"", base_sequence=6, producer_id=8)], 6)[0],
        ErrorCode.INVALID_RECORD,
    ),
    "sequence": (
        lambda _: in_a_row([changed(b"", base_sequence=7)], 6)[0],
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ),
    "too large": (lambda _: in_a_row([changed(b"v" * 20, base_sequence=6)], 6)[0], ErrorCode.MESSAGE_TOO_LARGE),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_batch(home, kind):
    change, code = BAD[kind]
    log = open_log(home, SMALL | {"max.message.bytes": "100"})
    before = sorted(os.listdir(home))
    first, second, third = in_a_row(batches_of(3))
    offer_path(home, 0, "offered").write_bytes(first + second + change(third))
    adoption = appending(log, Offer("offered", (0,), 10 if kind == "offset" else 9))
    with pytest.raises(ApiError) as refused:
        adoption.check()
    assert refused.value.code is code
    assert f"{0:020d}.log.offered" in str(refused.value)
    assert f"position {len(first) + len(second)}" in str(refused.value)
    adoption.discard()
    assert sorted(os.listdir(home)) == before
    log.close()


def test_a_max_timestamp_that_is_not_its_records(home):
    log = open_log(home, SMALL)
    data = bytearray(batches_of(1)[0])
    patch_max_timestamp(data, 0, 5000)
    with pytest.raises(ApiError, match="max timestamp 5000, its records' is 1002"):
        appending(log, write_offer(home, [[bytes(data)]])).check()
    log.close()


def test_a_segment_that_is_too_large(home):
    log = open_log(home, SMALL)
    with pytest.raises(ApiError, match=r"more than segment\.bytes=700"):
        appending(log, write_offer(home, [in_a_row(batches_of(9))])).check()
    log.close()


def test_a_segment_that_ends_early(home):
    log = open_log(home, SMALL)
    offer = write_offer(home, [in_a_row(batches_of(2))])
    with pytest.raises(ApiError, match="ends before offset 6, not 8"):
        appending(log, offer._replace(end_offset=8)).check()
    log.close()


def test_a_link_is_no_segment(home, tmp_path):
    log = open_log(home, SMALL)
    (tmp_path / "elsewhere").write_bytes(in_a_row(batches_of(1))[0])
    offer_path(home, 0, "offered").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ApiError, match="is no file"):
        appending(log, Offer("offered", (0,), 3)).check()
    log.close()


@pytest.mark.parametrize("offer", [Offer("t", (), 0), Offer("t", (0, 5, 5), 9), Offer("t", (0, 9), 9)])
def test_an_offer_of_no_segments(home, offer):
    log = open_log(home, SMALL)
    with pytest.raises(ApiError) as refused:
        appending(log, offer)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    log.close()


def test_a_topic_that_gives_times(home):
    log = open_log(home, SMALL | {"message.timestamp.type": "LogAppendTime"})
    with pytest.raises(ApiError, match="LogAppendTime"):
        appending(log, Offer("t", (0,), 3))
    log.close()


def test_names_that_lead_elsewhere(home):
    with pytest.raises(LogError, match="letters and digits"):
        offer_path(home, 0, "../x")


def test_a_start_removes_what_was_only_offered(home):
    log = open_log(home, SMALL)
    write_offer(home, [in_a_row(batches_of(2))])
    log.close()
    log = open_log(home, SMALL)
    assert not list(home.glob("*.tmp"))
    assert log.log_end_offset == 0
    log.close()


def test_what_cannot_be_read_is_for_a_person_to_decide(home):
    open_log(home, SMALL).close()
    (home / ADOPTION).write_text("0\n1\nhalf a line\n")
    with pytest.raises(LogError, match="neither finished nor undone"):
        open_log(home, SMALL)


# Restoring


@pytest.fixture
def original(tmp_path):
    """A log with two epochs, an aborted transaction, a committed one, one that is open, and compressed batches."""
    log = open_log(tmp_path / "original" / "t-0", SMALL)
    for epoch in (0, 2):
        log.begin_epoch(epoch)
        for number, kind in enumerate((ControlType.ABORT, ControlType.COMMIT)):
            log.append_as_leader(batch_of(1000, 1500, size=100, codec=CompressionType.ZSTD), epoch)
            sequence = (epoch + number) * 2
            log.append_as_leader(transactional(7, sequence, 2), epoch, verification=allowed)
            log.append_as_leader(marker_of(7, kind), epoch, AppendOrigin.COORDINATOR)
    log.append_as_leader(transactional(8, 0, 2), 2, verification=allowed)
    yield log
    log.close()


def segments_of(log, first=0):
    return [
        [bytes(each.buffer) for each in iter_batches(segment.log.read(0, segment.size))]
        for segment in log._segments
        if segment.size and segment.base_offset >= first
    ]


def comparable(log):
    """Without the time at which a producer was heard of."""
    text, *others = state_of(log)
    others[3] = [entry._replace(last_timestamp=0, last_marker_offset=0, coordinator_epoch=0) for entry in others[3]]
    return text, *others


def test_restoring_leaves_the_same_log(home, original):
    log = open_log(home, SMALL)
    restore(log, write_offer(home, segments_of(original)))
    assert comparable(log) == comparable(original)
    end(log, ControlType.ABORT)
    log.close()
    again = open_log(home, SMALL)
    assert len(again.aborted_transactions(0, again.log_end_offset)) == 2
    again.close()


def test_restoring_goes_on_where_the_log_ends(home, original):
    log, segments = open_log(home, SMALL), segments_of(original)
    for number, segment in enumerate(segments):
        restore(log, write_offer(home, [segment], f"part{number}"))
    assert comparable(log) == comparable(original)
    log.close()


def test_epochs_of_another_cluster(home, original):
    """None is above the partition's own, by which whatever comes next is written."""
    log = open_log(home, SMALL)
    restore(log, write_offer(home, segments_of(original)), epoch=1)
    assert log.epochs.entries[0].epoch == 0
    assert log.epochs.latest.epoch == 1
    assert {each.partition_leader_epoch for each in iter_batches(whole(log))} == {0, 1}
    log.append_as_leader(batch_of(9000), 1)
    log.close()


def test_epochs_that_fall(home):
    log = open_log(home, SMALL)
    first, second = (RecordBatch(bytearray(each)) for each in batches_of(2))
    first.assign(0, 5)
    second.assign(3, 4)
    with pytest.raises(ApiError, match="leader epoch 4 behind a batch of 5"):
        restore(log, write_offer(home, [[bytes(first.buffer), bytes(second.buffer)]]))
    log.close()


def test_a_hole_is_right_only_where_a_log_is_compacted(home, tmp_path):
    first, second = in_a_row(batches_of(1))[0], in_a_row(batches_of(1, first_sequence=9), 9)[0]
    log = open_log(home, SMALL)
    with pytest.raises(ApiError, match="ends before offset 3, not 9"):
        restore(log, write_offer(home, [[first], [second]]))
    log.close()
    log = open_log(tmp_path / "compacted" / "t-0", SMALL | {"cleanup.policy": "compact"})
    restore(log, write_offer(log.directory, [[first], [second]]))
    assert log.log_end_offset == 12
    log.close()
