"""What a log knows when the disk has refused an append: what it knew before, of producers and of transactions."""

import errno
from contextlib import suppress

import pytest
from log.samples import abandon, batch_of, marker_of, open_log, transactional, whole

from sparklog.errors import ApiError, DiskFull, ErrorCode, LogDirFailed, LogError
from sparklog.log.indexes.transaction_index import AbortedTransaction
from sparklog.log.origin import AppendOrigin
from sparklog.record.batch import patch_header
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.control import ControlType
from sparklog.record.records import iter_batches
from sparklog.testing.files import NO_ERROR, FaultyFiles

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT
EVERY_APPEND = {"index.interval.bytes": "0"}
NEEDS_ROOM = ("open", "pwrite", "ftruncate")
NEEDS_A_DESCRIPTOR = ("open", "openread", "scandir")


@pytest.fixture
def home(tmp_path):
    return tmp_path / "t-0"


def idempotent(producer_id, sequence, size=10):
    builder = RecordBatchBuilder(producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    builder.append(1000, None, b"v" * size)
    return memoryview(bytearray(builder.build()))


def write(log, records):
    return log.append_as_leader(records, 0, AppendOrigin.COORDINATOR).first_offset


def filled(home):
    """Producer 7 has no transactions, 1 has committed one and 3 has aborted one, 2 and 4 have theirs open."""
    log = open_log(home, EVERY_APPEND)
    log.append_as_leader(idempotent(7, 0), 0)  # 0
    write(log, transactional(1, 0))  # 1
    write(log, transactional(2, 0, 2))  # 2, 3
    write(log, marker_of(1, COMMIT))  # 4
    log.on_high_watermark(5)
    write(log, transactional(3, 0))  # 5
    write(log, transactional(4, 0))  # 6
    write(log, marker_of(3, ABORT))  # 7
    return log


FIRST = AbortedTransaction(3, 5, 7, 2)


def known(log):
    producers = sorted(str(entry) for entry in log.producers)
    return log.log_end_offset, log.first_unstable_offset, producers, log.aborted_transactions(0, 99), whole(log)


def test_an_abort_for_which_no_descriptor_is_left_loses_nothing_that_is_known(home):
    log = open_log(home)
    for sequence in range(3):
        log.append_as_leader(idempotent(7, sequence), 0)
    write(log, transactional(2, 0))
    before = known(log)
    full = FaultyFiles(home, fail_at=0, lasting=True, error=errno.EMFILE, steps=NEEDS_A_DESCRIPTOR)
    with full, pytest.raises(DiskFull, match="Too many open files"):
        write(log, marker_of(2, ABORT))
    assert known(log) == before
    assert log.append_as_leader(idempotent(7, 1), 0).first_offset == 1, "it is in the log already"
    assert write(log, marker_of(2, ABORT)) == 4
    assert log.aborted_transactions(0, 9) == [AbortedTransaction(2, 3, 4, 5)]


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("step", range(6))
@pytest.mark.parametrize("clean", [True, False])
def test_a_marker_that_is_refused_at_any_step_changes_nothing(home, step, half, lasting, clean):
    log = filled(home)
    before, was_refused = known(log), False
    with FaultyFiles(home, fail_at=step, half=half, lasting=lasting, error=errno.ENOSPC, steps=NEEDS_ROOM):
        try:
            write(log, marker_of(2, ABORT))
        except DiskFull:
            was_refused = True
            assert known(log) == before
    if was_refused:
        assert write(log, marker_of(2, ABORT)) == 8
    write(log, transactional(2, 2))  # 9
    assert_all_is_known(log)
    if clean:
        log.close()
    else:
        abandon(log)
    assert_all_is_known(open_log(home, EVERY_APPEND, clean=clean))


def assert_all_is_known(log):
    assert log.aborted_transactions(0, 99) == [FIRST, AbortedTransaction(2, 2, 8, 6)]
    log.on_high_watermark(log.log_end_offset)
    assert log.first_unstable_offset == 6
    assert [log.has_open_transaction(id_, 0) for id_ in (1, 2, 3, 4)] == [False, True, False, True]
    assert log.append_as_leader(idempotent(7, 0), 0).first_offset == 0
    assert sorted(batch.first_offset for entry in log.producers for batch in entry.batches) == [0, 1, 2, 5, 6, 9]
    position = 0
    for batch in iter_batches(whole(log)):
        assert log.position_of(batch.base_offset).position == position
        position += batch.size_in_bytes


@pytest.mark.parametrize("step", range(3))
def test_a_disk_that_takes_a_part_of_a_write_without_a_word_is_given_the_rest(home, step):
    log = filled(home)
    with FaultyFiles(home, fail_at=step, half=True, error=NO_ERROR, steps=["pwrite"]) as files:
        write(log, marker_of(2, ABORT))
        assert files.count > step
    write(log, transactional(2, 2))
    assert_all_is_known(log)
    log.close()
    assert_all_is_known(open_log(home))


def test_what_was_committed_stays_stable_when_an_abort_is_refused(home):
    log = open_log(home)
    for sequence in range(3):
        write(log, transactional(1, sequence))
        write(log, marker_of(1, COMMIT))
    write(log, transactional(2, 0))  # 6
    log.on_high_watermark(7)
    with FaultyFiles(home, fail_at=1, error=errno.ENOSPC, steps=NEEDS_ROOM), pytest.raises(DiskFull):
        write(log, marker_of(2, ABORT))
    assert log.first_unstable_offset == 6


def test_what_was_committed_stays_stable_when_the_end_is_cut_off(home):
    log = open_log(home)
    for sequence in range(3):
        write(log, transactional(1, sequence))
        write(log, marker_of(1, COMMIT))
    log.on_high_watermark(4)
    assert log.first_unstable_offset == 4
    log.truncate_to(5)
    assert log.first_unstable_offset == 4
    log.truncate_to(3)
    write(log, marker_of(1, COMMIT))
    assert log.first_unstable_offset == 2, "the high watermark is not beyond the end"


@pytest.mark.parametrize("step", range(3))
def test_a_followers_batches_are_taken_whole_or_not_at_all(home, step):
    log = filled(home)
    before = known(log)
    records, offset = bytearray(), log.log_end_offset
    for batch in (marker_of(2, ABORT), transactional(5, 0), transactional(2, 2), marker_of(4, ABORT), idempotent(7, 1)):
        patch_header(batch, 0, offset, 0)
        records += batch
        offset += 1
    with FaultyFiles(home, fail_at=step, error=errno.ENOSPC, steps=["pwrite"]), suppress(DiskFull):
        log.append_as_follower(memoryview(records))
        assert step > 3
    assert known(log) == before
    assert log.append_as_follower(memoryview(records)) == 13
    ended = [FIRST, AbortedTransaction(2, 2, 8, 6), AbortedTransaction(4, 6, 11, 9)]
    assert log.aborted_transactions(0, 99) == ended
    log.on_high_watermark(13)
    assert log.first_unstable_offset == 9
    log.close()
    log = open_log(home)
    assert (log.aborted_transactions(0, 99), log.first_unstable_offset) == (ended, 9)


def test_a_follower_forgets_whom_it_did_not_know_before_what_was_refused(home):
    log = open_log(home)
    records = bytearray()
    for offset, batch in enumerate((transactional(1, 5), marker_of(1, ABORT))):
        patch_header(batch, 0, offset, 0)
        records += batch
    with FaultyFiles(home, fail_at=1, error=errno.ENOSPC, steps=["pwrite"]), pytest.raises(DiskFull):
        log.append_as_follower(memoryview(records))
    assert (log.producer_count, log.first_unstable_offset, log.log_end_offset) == (0, None, 0)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EACCES])
@pytest.mark.parametrize("step", range(12))
@pytest.mark.parametrize("clean", [True, False])
def test_a_directory_that_cannot_be_listed_is_not_taken_for_an_empty_one(home, step, error, clean):
    log = filled(home)
    before = known(log)
    log.close()
    with FaultyFiles(home, fail_at=step, error=error, steps=["scandir"]) as files:
        try:
            open_log(home, clean=clean)
        except LogError:
            pass
        else:
            assert files.count <= step
    assert known(open_log(home, clean=clean))[0] == before[0]


def client(log, records):
    return log.append_as_leader(records, 0, verification=lambda *_: None).first_offset


def refusal(log, records):
    try:
        client(log, records)
    except (ApiError, DiskFull) as error:
        return error.code
    return None


@pytest.mark.parametrize("written", [0, 2])
@pytest.mark.parametrize("batch", [idempotent, transactional])
def test_nothing_overtakes_a_batch_that_a_full_disk_refused(home, batch, written):
    """What was in flight behind it is told what it was told, whether there is room by then or not."""
    log = open_log(home)
    for sequence in range(written):
        client(log, batch(1, sequence))
    with FaultyFiles(home, fail_at=0, error=errno.ENOSPC, steps=["pwrite"], lasting=True):
        for sequence in (written, written + 1):
            assert refusal(log, batch(1, sequence)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert refusal(log, batch(1, written + 1)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert [client(log, batch(1, sequence)) for sequence in (written, written + 1)] == [written, written + 1]


def test_nothing_overtakes_the_first_batch_of_a_producer_that_came_before_a_truncation_was_finished(home):
    log = open_log(home)
    client(log, batch_of(1, 2, 3))
    client(log, batch_of(4))
    with FaultyFiles(home, fail_at=0, error=errno.ENOSPC, lasting=True):
        with pytest.raises(LogDirFailed):
            log.truncate_to(3)
        with pytest.raises(LogDirFailed):
            client(log, idempotent(1, 0))
    with pytest.raises(ApiError) as refused:
        client(log, idempotent(1, 1))
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [client(log, idempotent(1, sequence)) for sequence in (0, 1)] == [3, 4]


def test_nothing_is_waited_for_that_bears_no_sequence(home):
    log = open_log(home)
    for records, origin in (
        (marker_of(1, COMMIT), AppendOrigin.COORDINATOR),
        (transactional(2, -1), AppendOrigin.COORDINATOR),
        (batch_of(), AppendOrigin.CLIENT),
    ):
        with FaultyFiles(home, fail_at=0, error=errno.ENOSPC, steps=["pwrite"]), pytest.raises(DiskFull):
            log.append_as_leader(records, 0, origin)
    assert [client(log, transactional(id_, 3)) for id_ in (1, 2)] == [0, 1]
    assert write(log, batch_of()) == 2
