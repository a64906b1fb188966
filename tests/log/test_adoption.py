"""Segments taken into a log whole: what an append of the same batches would have left, and what is refused."""

import errno
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

from sparklog.errors import ApiError, DiskFull, ErrorCode, LogDirFailed, LogError
from sparklog.log.adoption import ADOPTION, AppendAdoption, Offer, RestoreAdoption, offer_path
from sparklog.log.origin import AppendOrigin
from sparklog.record.batch import RecordBatch, patch_max_timestamp
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.record.control import ControlType
from sparklog.record.records import iter_batches
from sparklog.testing.files import FaultyFiles

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


def test_nothing_overtakes_what_was_refused_while_the_log_was_held(home):
    log = open_log(home, SMALL)
    adoption = appending(log, write_offer(home, [in_a_row(batches_of(1))]))
    adoption.check()
    log.hold(adoption, allowed)

    def written(sequence):
        return log.append_as_leader(transactional(8, sequence), EPOCH, verification=allowed).first_offset

    for sequence in (0, 1):
        with pytest.raises(ApiError) as refused:
            written(sequence)
        assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        log.release()
    assert [written(0), written(1)] == [0, 1]
    log.close()


def test_an_offer_is_looked_into_and_not_opened_to_be_written(home, monkeypatch):
    log = open_log(home, SMALL)
    adoption = appending(log, write_offer(home, [in_a_row(batches_of(2))]))
    opened, real = [], os.open

    def noted(path, flags, *more, **how):
        if ".log." in str(path):
            opened.append(flags & os.O_ACCMODE)
        return real(path, flags, *more, **how)

    monkeypatch.setattr(os, "open", noted)
    adoption.check()
    assert opened == [os.O_RDONLY]
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
    with pytest.raises(ApiError, match="is no file") as refused:
        appending(log, Offer("offered", (0,), 3)).check()
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
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
    with pytest.raises(ApiError, match="LogAppendTime") as refused:
        appending(log, Offer("t", (0,), 3))
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
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


def test_what_is_refused_says_what_a_produce_of_it_would(home):
    log = open_log(home, SMALL)
    batches = in_a_row(batches_of(9))
    with pytest.raises(ApiError, match="what is to be given offsets counts from 0") as refused:
        appending(log, Offer("t", (3,), 9))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(ApiError, match=r"no segments begin at \[5, 5\] before 5") as refused:
        appending(log, Offer("t", (5, 5), 5))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(ApiError) as refused:
        appending(log, write_offer(home, [batches])).check()
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    with pytest.raises(ApiError, match=f"position {len(batches[0])}: it ends before offset 3, not 4") as refused:
        appending(log, write_offer(home, [batches[:1]])._replace(end_offset=4)).check()
    assert refused.value.code is ErrorCode.INVALID_RECORD
    log.close()


def test_a_segment_may_be_as_large_as_the_topics(home):
    batches = in_a_row(batches_of(2))
    log = open_log(home, {"segment.bytes": str(sum(map(len, batches)))})
    adoption = appending(log, write_offer(home, [batches]))
    adoption.check()
    assert adoption.record_count == 6
    log.close()


def files_of(home):
    return {path.name: path.read_bytes() for path in home.iterdir() if path.suffix in (".index", ".timeindex")}


def test_its_indexes_are_those_of_an_append(tmp_path):
    settings = {"index.interval.bytes": "100", "segment.index.bytes": "400"}
    found = []
    for name in ("produced", "adopted"):
        log, batches = open_log(tmp_path / name / "t-0", settings), batches_of(9)
        if name == "adopted":
            adopt(log, appending(log, write_offer(log.directory, [in_a_row(batches)])))
        else:
            for each in batches:
                log.append_as_leader(memoryview(bytearray(each)), EPOCH, verification=allowed)
            log.roll()
        log.close()
        found.append(files_of(log.directory))
    assert found[0] == found[1]
    assert len(found[0][f"{0:020d}.index"]) == 8 * 4


def test_an_offer_has_indexes_of_no_more_than_the_topics_size(home):
    """The last entry of the time index has a place of its own."""
    log = open_log(home, {"index.interval.bytes": "0", "segment.index.bytes": "24"})
    batches = in_a_row([changed_times(3 * number, 1000 + number) for number in range(6)])
    adopt(log, appending(log, write_offer(home, [batches])))
    segment = log._segments.first
    assert (segment.offset_index.entries, segment.time_index.entries) == (3, 2)
    assert segment.time_index.last == (1005, 17)
    log.close()


@pytest.mark.parametrize(("time", "entries"), [(-1, 0), (0, 1), (1, 1)])
def test_the_latest_time_of_an_offer_is_in_its_index_though_it_is_the_first(home, time, entries):
    log = open_log(home)
    first, second = in_a_row([changed_times(0, time), changed_times(3, 9000)])
    adopt(log, appending(log, write_offer(home, [[first], [second]])))
    assert [segment.time_index.entries for segment in log._segments] == [entries, 1, 0]
    log.close()


def changed_times(sequence, time):
    builder = RecordBatchBuilder(producer_id=7, producer_epoch=0, base_sequence=sequence, is_transactional=True)
    for number in range(3):
        builder.append(time, None, b"%d" % number)
    return builder.build()


def test_what_is_prepared_is_on_the_disk(home, monkeypatch):
    log = open_log(home, SMALL)
    adoption = appending(log, write_offer(home, [in_a_row(batches_of(2))]))
    adoption.check()
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))))
    assert adoption.prepared_for is None
    adoption.prepare(5, EPOCH)
    assert sorted(synced[:-1]) == [f"{0:020d}.{kind}.offered.offer.tmp" for kind in ("index", "log", "timeindex")]
    assert synced[-1] == home.name
    assert (adoption.prepared_for, adoption.base_offset, adoption.end_offset) == ((5, EPOCH), 5, 11)
    assert adoption.epochs == [(EPOCH, 5)]
    log.close()


def test_what_cannot_be_prepared_is_told_of(home):
    log = open_log(home, SMALL)
    adoption = appending(log, write_offer(home, [in_a_row(batches_of(2))]))
    adoption.check()
    with (
        FaultyFiles(home, fail_at=0, error=errno.ENOSPC),
        pytest.raises(DiskFull, match=f"cannot prepare segments for {home}: No space"),
    ):
        adoption.prepare(0, EPOCH)
    assert adoption.prepared_for is None
    log.close()


@pytest.mark.parametrize("step", range(4))
def test_what_is_not_certain_yet_is_called_off_where_the_disk_has_no_room(home, step):
    """The file that makes it certain is opened, written, synced and renamed."""
    log = open_log(home, SMALL)
    adoption = appending(log, write_offer(home, [in_a_row(batches_of(2))]))
    adoption.check()
    adoption.prepare(0, EPOCH)
    with (
        FaultyFiles(home, fail_at=step, error=errno.ENOSPC),
        pytest.raises(DiskFull, match=f"cannot adopt segments in {home}: No space"),
    ):
        adoption.commit()
    assert not (home / ADOPTION).exists()
    adoption.discard()
    assert not [*home.glob("*.tmp")]
    log.close()
    log = open_log(home, SMALL)
    assert log.log_end_offset == 0
    log.close()


def test_what_may_be_certain_is_called_off_too(home):
    """The disk refused the sync of the directory: the name may last, and must not."""
    log = open_log(home, SMALL)
    adoption = appending(log, write_offer(home, [in_a_row(batches_of(2))]))
    adoption.check()
    adoption.prepare(0, EPOCH)
    with FaultyFiles(home, fail_at=4, error=errno.ENOSPC) as files, pytest.raises(DiskFull):
        adoption.commit()
    assert files.count == 7, "it was removed, and that synced"
    assert not (home / ADOPTION).exists()
    with (
        FaultyFiles(home, fail_at=4, error=errno.ENOSPC, lasting=True),
        pytest.raises(LogDirFailed, match=f"cannot call off an adoption in {home}") as refused,
    ):
        adoption.commit()
    assert not isinstance(refused.value, DiskFull)
    adoption.discard()
    assert (home / ADOPTION).exists()
    assert [*home.glob("*.tmp")], "the next start needs them"
    log.abandon()
    log = open_log(home, SMALL)
    assert (log.log_end_offset, (home / ADOPTION).exists()) == (6, False)
    log.close()


def test_what_is_certain_is_finished_by_the_next_start(home, caplog):
    log = open_log(home, SMALL)
    log.append_as_leader(batch_of(1000), EPOCH)
    adoption = appending(log, write_offer(home, [in_a_row(batches_of(2))]))
    adoption.check()
    adoption.prepare(1, EPOCH)
    log.hold(adoption, allowed)
    log.flush()
    with (
        FaultyFiles(home, fail_at=6, error=errno.ENOSPC),
        pytest.raises(LogDirFailed, match=f"cannot adopt segments in {home}") as refused,
    ):
        adoption.commit()
    assert not isinstance(refused.value, DiskFull)
    adoption.discard()
    log.abandon()
    log = open_log(home, SMALL)
    assert f"{home}: segments were being adopted from offset 1 on; that is finished" in caplog.text
    assert [each.base_offset for each in iter_batches(whole(log))] == [0, 1, 4]
    assert not [*home.glob("*.tmp")]
    log.close()


def test_offers_of_others_are_left(home):
    log = open_log(home, SMALL)
    mine, _ = (appending(log, write_offer(home, [in_a_row(batches_of(1))], tag)) for tag in ("mine", "yours"))
    mine.check()
    mine.discard()
    assert [path.name for path in home.glob("*.tmp")] == [f"{0:020d}.log.yours.offer.tmp"]
    log.close()


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
    log.begin_epoch(EPOCH)
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


def test_what_was_refused_while_a_log_was_restored_is_not_overtaken(home, original):
    log = open_log(home, SMALL)
    offer = write_offer(home, segments_of(original))
    adoption = RestoreAdoption(home, offer, log.config, log._clock.now_ms(), log.producers_to_restore())
    adoption.check()
    adoption.prepare(0, EPOCH)
    log.hold(adoption)
    refused = []

    def send(sequence):
        try:
            log.append_as_leader(transactional(9, sequence, 2), EPOCH, verification=allowed)
        except ApiError as error:
            refused.append((sequence, error.code))

    send(0)
    adoption.commit()
    log.take_adopted(adoption)
    log.release()
    for sequence in (2, 0, 2):
        send(sequence)
    assert refused == [(each, ErrorCode.NOT_ENOUGH_REPLICAS) for each in (0, 2)]
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


@pytest.mark.parametrize("begun", [0, 1, 3])
def test_the_epoch_of_the_leader_begins_behind_what_is_restored(home, original, begun):
    """Also where it had begun before there was anything: else followers and consumers are told of another history."""
    log, segments = open_log(home, SMALL), segments_of(original)
    for number, part in enumerate((segments[:begun], segments[begun:])):
        log.begin_epoch(EPOCH + number)
        if part:
            restore(log, write_offer(home, part, f"part{number}"), epoch=EPOCH + number)
    assert log.epochs.entries == (*original.epochs.entries[:2], (EPOCH + 1, original.log_end_offset))
    for epoch in (0, 2):
        assert log.end_offset_for_epoch(epoch) == original.end_offset_for_epoch(epoch)
    log.close()


@pytest.mark.parametrize("hole", [0, 5])
def test_a_crash_between_restoring_and_noting_the_epochs(home, hole):
    """The file says yet that the leader's epoch began where the first batch was put."""
    batches = [RecordBatch(bytearray(batch_of(1000))) for _ in range(2)]
    for epoch, batch in enumerate(batches):
        batch.assign(hole + epoch, epoch)
    log = open_log(home, SMALL | {"cleanup.policy": "compact"})
    log.begin_epoch(EPOCH)
    offer_path(home, 0, "offered").write_bytes(b"".join(each.buffer for each in batches))
    offer = Offer("offered", (0,), hole + 2)
    adoption = RestoreAdoption(home, offer, log.config, log._clock.now_ms(), log.producers_to_restore())
    adoption.check()
    adoption.prepare(0, EPOCH)
    log.hold(adoption)
    log.flush()
    adoption.commit()
    log.abandon()
    log = open_log(home, SMALL | {"cleanup.policy": "compact"}, clean=False)
    assert [log.end_offset_for_epoch(epoch) for epoch in (0, 1)] == [(hole + 1, 0), (hole + 2, 1)]
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


def test_a_marker_that_is_none_is_not_restored(home):
    """What cannot be read of it is said with its place."""
    log = open_log(home, SMALL)
    good = in_a_row(batches_of(1))[0]
    builder = RecordBatchBuilder(producer_id=7, producer_epoch=0, is_transactional=True, is_control=True)
    builder.append(1000, b"no marker", b"")
    bad = in_a_row([builder.build()], 3)[0]
    with pytest.raises(ApiError, match=f"at position {len(good)}: ") as refused:
        restore(log, write_offer(home, [[good, bad]]))
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    log.close()
