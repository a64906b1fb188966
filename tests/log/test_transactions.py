"""Transactions as a partition sees them: what is stable, what was aborted, and that no restart forgets either."""

import os
import struct

import pytest
from log.samples import abandon, batch_of, marker_of, open_log, read_bytes, transactional

from sparklog.errors import ApiError, CorruptRecord, ErrorCode, LogDirFailed, LogError
from sparklog.log.indexes.transaction_index import AbortedTransaction, TransactionIndex, read_aborted
from sparklog.log.origin import AppendOrigin
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.control import ControlType
from sparklog.record.records import iter_batches
from sparklog.testing.clock import ManualClock

ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT
ROLLS_EACH = {"segment.bytes": "100"}


@pytest.fixture
def home(tmp_path):
    return tmp_path / "t-0"


@pytest.fixture
def log(home):
    return open_log(home)


def write(log, records):
    return log.append_as_leader(records, 0, AppendOrigin.COORDINATOR).first_offset


def interleaved(log):
    """Producer 1 aborts two transactions, 2 commits one in the middle, 3 has one open at the end."""
    write(log, transactional(1, 0, 2))  # 0, 1
    write(log, transactional(2, 0))  # 2
    write(log, marker_of(1, ABORT))  # 3
    write(log, transactional(1, 2))  # 4
    write(log, transactional(3, 0))  # 5
    write(log, marker_of(2, COMMIT))  # 6
    write(log, marker_of(1, ABORT))  # 7


ABORTED = [AbortedTransaction(1, 0, 3, 2), AbortedTransaction(1, 4, 7, 5)]


@pytest.mark.parametrize("start", range(8))
def test_a_piece_comes_with_all_aborted_transactions_that_it_has_records_of(home, start):
    log = open_log(home, {"index.interval.bytes": "0"})
    interleaved(log)
    log.on_high_watermark(8)
    for max_bytes in range(1, 800, 50):
        piece = log.read(start, max_bytes, log.end, min_one_batch=True)
        end = max(batch.last_offset for batch in iter_batches(read_bytes(piece))) + 1
        expected = [each for each in ABORTED if each.first_offset < end and each.last_offset >= start]
        assert [each for each in log.aborted_in(piece, start, 8)[1] if each.first_offset < end] == expected


def test_a_piece_whose_segment_is_gone_comes_with_all_that_its_range_has(home):
    log = open_log(home)
    write(log, transactional(1, 0))  # 0
    log.roll()
    write(log, marker_of(1, ABORT))  # 1
    log.on_high_watermark(2)
    piece = log.read(0, 1 << 20, log.end, min_one_batch=True)
    log.advance_start(1)
    assert log.delete_old_segments(2, lambda *_: 0)
    assert log.aborted_in(piece, 0, 2) == (piece, [AbortedTransaction(1, 0, 1, 2)])


def test_the_first_open_transaction_is_the_first_unstable_offset(log):
    assert log.first_unstable_offset is None
    write(log, transactional(1, 0, 2))
    assert log.first_unstable_offset == 0
    write(log, transactional(2, 0))
    write(log, marker_of(1, COMMIT))
    assert log.first_unstable_offset == 0, "its end is not replicated yet"
    log.on_high_watermark(3)
    assert log.first_unstable_offset == 0, "the marker, at 3, is not below the high watermark"
    log.on_high_watermark(4)
    assert log.first_unstable_offset == 2
    write(log, marker_of(2, ABORT))
    log.on_high_watermark(5)
    assert log.first_unstable_offset is None


def test_stable_is_what_is_replicated_and_lies_before_every_undecided_transaction(log):
    write(log, transactional(1, 0))  # 0
    write(log, marker_of(1, COMMIT))  # 1
    log.on_high_watermark(2)
    assert log.last_stable_offset == 2
    write(log, batch_of())  # 2
    write(log, transactional(2, 0))  # 3
    assert log.last_stable_offset == 2, "what lies before the transaction is not replicated"
    write(log, batch_of())  # 4
    log.on_high_watermark(5)
    assert log.last_stable_offset == 3
    write(log, marker_of(2, ABORT))  # 5
    log.on_high_watermark(6)
    assert log.last_stable_offset == 6


def test_a_start_beyond_an_open_transaction_is_stable_up_to_there(log):
    write(log, transactional(1, 0, 2))
    write(log, transactional(2, 0))
    log.advance_start(2)
    assert log.first_unstable_offset == 2


def test_aborted_transactions_are_indexed_with_the_stable_offset_behind_them(log):
    interleaved(log)
    assert read_aborted(log.directory / "00000000000000000000.txnindex") == ABORTED


@pytest.mark.parametrize("settings", [{}, ROLLS_EACH], ids=["one segment", "a segment a batch"])
@pytest.mark.parametrize(
    ("start", "end", "found"),
    [(0, 8, ABORTED), (0, 1, ABORTED[:1]), (3, 4, ABORTED[:1]), (4, 5, ABORTED[1:]), (7, 8, ABORTED[1:]), (8, 9, [])],
)
def test_those_that_touch_a_range_are_found(home, settings, start, end, found):
    log = open_log(home, settings)
    interleaved(log)
    assert (log.segment_count > 4) == bool(settings)
    assert log.aborted_transactions(start, end) == found
    log.close()


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "crash"])
@pytest.mark.parametrize("settings", [{}, ROLLS_EACH], ids=["one segment", "a segment a batch"])
@pytest.mark.parametrize("lost", [None, "*.txnindex", "*.snapshot", "*.index"])
def test_a_restart_forgets_nothing(home, clean, settings, lost):
    log = open_log(home, settings)
    interleaved(log)
    if clean:
        log.close()
    else:
        abandon(log)
    for path in home.glob(lost) if lost is not None and not (clean and lost == "*.txnindex") else ():
        path.unlink()
    for _ in range(2):
        log = open_log(home, settings, clean=clean)
        assert log.aborted_transactions(0, 100) == ABORTED
        log.on_high_watermark(log.log_end_offset)
        assert log.first_unstable_offset == 5
        log.close()


@pytest.mark.parametrize(("high_watermark", "unstable"), [(8, 5), (7, 4), (5, 2)])
def test_what_was_stable_before_a_crash_is_so_behind_it_and_behind_a_cut(home, high_watermark, unstable):
    log = open_log(home)
    interleaved(log)
    write(log, transactional(3, 1))  # 8
    abandon(log)
    log = open_log(home, clean=False, high_watermark=high_watermark)
    assert log.first_unstable_offset == unstable
    log.truncate_to(8)
    assert log.first_unstable_offset == unstable
    log.close()


def test_a_transaction_goes_on_after_a_restart(home):
    log = open_log(home)
    interleaved(log)
    log.close()
    log = open_log(home)
    write(log, transactional(3, 1))
    write(log, marker_of(3, ABORT))
    assert log.aborted_transactions(0, 100) == [*ABORTED, AbortedTransaction(3, 5, 9, 10)]
    log.on_high_watermark(10)
    assert log.first_unstable_offset is None
    log.close()


@pytest.mark.parametrize(("offset", "unstable", "aborted"), [(7, 4, ABORTED[:1]), (5, 2, ABORTED[:1]), (3, 0, [])])
@pytest.mark.parametrize("settings", [{}, ROLLS_EACH], ids=["one segment", "a segment a batch"])
def test_a_truncation_takes_back_what_it_cuts(home, settings, offset, unstable, aborted):
    log = open_log(home, settings)
    interleaved(log)
    log.truncate_to(offset)
    log.on_high_watermark(log.log_end_offset)
    assert log.aborted_transactions(0, 100) == aborted
    assert log.first_unstable_offset == unstable
    log.close()


def refusal(log, records, origin=AppendOrigin.COORDINATOR):
    before = (log.log_end_offset, log.size)
    with pytest.raises(ApiError) as caught:
        log.append_as_leader(records, 0, origin)
    assert (log.log_end_offset, log.size) == before
    return caught.value.code


def test_a_fenced_coordinator_and_a_fenced_producer_write_nothing(log):
    write(log, transactional(1, 0, epoch=3))
    write(log, marker_of(1, ABORT, epoch=3, coordinator_epoch=5))
    assert refusal(log, marker_of(1, COMMIT, epoch=3, coordinator_epoch=4)) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert refusal(log, marker_of(1, COMMIT, epoch=2, coordinator_epoch=5)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(log, transactional(1, 0, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_raised_marker_ends_what_lies_below_its_epoch_and_never_the_next_transaction(log):
    raised = AppendOrigin.RAISED_MARKER
    write(log, transactional(1, 0, epoch=3))
    for _ in range(2):  # sent again it changes nothing
        log.append_as_leader(marker_of(1, COMMIT, epoch=4), 0, raised)
        assert not log.has_open_transaction(1, 4)
    assert refusal(log, transactional(1, 1, epoch=3), AppendOrigin.CLIENT) is ErrorCode.INVALID_PRODUCER_EPOCH
    write(log, transactional(1, 0, epoch=4))
    assert refusal(log, marker_of(1, COMMIT, epoch=4), raised) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.has_open_transaction(1, 4)
    write(log, marker_of(1, ABORT, epoch=4))
    assert not log.has_open_transaction(1, 4), "a classic marker bears the epoch of what it ends"


def test_the_last_marker_of_a_producer_is_known(log):
    assert log.last_marker(1) == -1
    write(log, transactional(1, 0))
    assert log.last_marker(1) == -1
    write(log, marker_of(1, COMMIT))
    write(log, marker_of(2, ABORT))
    assert (log.last_marker(1), log.last_marker(2)) == (1, 2)


def test_a_record_outside_the_open_transaction_is_refused(log):
    write(log, transactional(1, 0))
    builder = RecordBatchBuilder(producer_id=1, producer_epoch=0, base_sequence=1)
    builder.append(1000, b"k", b"v")
    outside = memoryview(bytearray(builder.build()))
    assert refusal(log, outside, AppendOrigin.CLIENT) is ErrorCode.INVALID_TXN_STATE


def test_a_marker_whose_abort_cannot_be_indexed_is_not_in_the_log(log, monkeypatch):
    write(log, transactional(1, 0))

    def refuse(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(TransactionIndex, "append", refuse)
        with pytest.raises(LogDirFailed, match="No space left"):
            write(log, marker_of(1, ABORT))
    assert log.log_end_offset == 1
    assert log.first_unstable_offset == 0
    write(log, marker_of(1, ABORT))
    assert log.aborted_transactions(0, 9) == [AbortedTransaction(1, 0, 1, 2)]


def test_a_producer_with_an_open_transaction_is_never_forgotten(tmp_path):
    clock = ManualClock()
    log = open_log(tmp_path / "t-0", clock=clock, producer_expiration_ms=1000)
    write(log, transactional(1, 0))
    write(log, transactional(2, 0))
    write(log, marker_of(2, COMMIT))
    clock.advance(5)
    log.expire_producers()
    assert log.producer_count == 1
    write(log, marker_of(1, ABORT))
    log.remember_producers(10_000)
    clock.advance(5)
    log.expire_producers()
    assert log.producer_count == 1
    log.remember_producers(1000)
    log.expire_producers()
    assert log.producer_count == 0


def test_the_index_takes_markers_in_order_only(tmp_path):
    index = TransactionIndex(tmp_path / "x.txnindex", 0)
    assert not (tmp_path / "x.txnindex").exists()
    index.append(AbortedTransaction(1, 0, 9, 10))
    with pytest.raises(LogError, match="marker 9 after 9"):
        index.append(AbortedTransaction(2, 3, 9, 10))
    assert index.entries() == [AbortedTransaction(1, 0, 9, 10)]
    index.close()
    index.close()


@pytest.mark.parametrize(
    "content",
    ["00" * 33, "0001" + "00" * 32, "0000" + "00" * 8 + "0000000000000005" + "0000000000000004" + "00" * 8],
    ids=["cut short", "version 1", "ends before it begins"],
)
def test_an_index_of_garbage_is_refused_by_name(tmp_path, content):
    (tmp_path / "x.txnindex").write_bytes(bytes.fromhex(content))
    with pytest.raises(CorruptRecord, match=r"x\.txnindex"):
        read_aborted(tmp_path / "x.txnindex")


_GOOD = AbortedTransaction(1, 0, 9, 10)


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        ([_GOOD, AbortedTransaction(2, 3, 9, 10)], "entry 1 is .*, version 0"),
        ([AbortedTransaction(1, -1, 9, 10)], "entry 0 is .*, version 0"),
        ([AbortedTransaction(1, 10, 9, 10)], "entry 0 is .*, version 0"),
    ],
)
def test_the_entry_that_cannot_be_is_named(tmp_path, entries, complaint):
    path = tmp_path / "x.txnindex"
    path.write_bytes(b"".join(struct.pack(">hqqqq", 0, *entry) for entry in entries))
    with pytest.raises(CorruptRecord, match=rf"x\.txnindex: {complaint}"):
        TransactionIndex(path, 0).entries()


def test_a_transaction_of_one_offset_at_the_start_of_all_is_one(tmp_path):
    path = tmp_path / "x.txnindex"
    path.write_bytes(struct.pack(">hqqqq", 0, 1, 0, 0, 1))
    assert read_aborted(path) == [AbortedTransaction(1, 0, 0, 1)]


def test_half_an_entry_is_refused_by_whoever_looks(tmp_path):
    path = tmp_path / "x.txnindex"
    path.write_bytes(struct.pack(">hqqqq", 0, *_GOOD) + b"\0")
    index = TransactionIndex(path, 0)
    for look in (index.entries, lambda: index.overlapping(0, 5), lambda: index.append(_GOOD)):
        with pytest.raises(CorruptRecord, match=r"x\.txnindex ends in the middle of an entry"):
            look()


def test_entries_that_fall_between_two_reads_are_refused(tmp_path):
    """Each read holds together; what lies between two of them is looked at too."""
    path = tmp_path / "x.txnindex"
    rising = [AbortedTransaction(1, 0, 100 + number, 1) for number in range(64)]
    path.write_bytes(
        b"".join(struct.pack(">hqqqq", 0, *entry) for entry in [*rising, AbortedTransaction(1, 0, 163, 1)])
    )
    with pytest.raises(CorruptRecord, match="marker 163 after 163"):
        TransactionIndex(path, 0).overlapping(0, 1000)


def test_a_cut_index_takes_more_and_one_that_was_reset_begins_anew(tmp_path):
    index = TransactionIndex(tmp_path / "x.txnindex", 0)
    for marker in (5, 9):
        index.append(AbortedTransaction(1, 0, marker, 1))
    index.truncate_to(10)
    assert [entry.last_offset for entry in index.entries()] == [5, 9]
    index.truncate_to(9)
    assert [entry.last_offset for entry in index.entries()] == [5]
    index.append(AbortedTransaction(1, 0, 6, 1))
    assert [entry.last_offset for entry in read_aborted(index.path)] == [5, 6]
    index.reset()
    assert (index.entries(), index.path.stat().st_size) == ([], 0)
    index.append(_GOOD)
    index.flush()
    index.close()
    assert (TransactionIndex(tmp_path / "x.txnindex", 0).entries(), index.entries()) == ([_GOOD], [])


def begun(log, records, verification=None):
    return log.append_as_leader(records, 0, verification=verification).first_offset


class Coordinator:
    """A transaction's coordinator: counts what it is asked, and refuses if it is told to."""

    def __init__(self, refuse=False, code=ErrorCode.INVALID_TXN_STATE):
        self.asked = []
        self.refuse = refuse
        self.code = code

    def __call__(self, producer_id, epoch):
        self.asked.append((producer_id, epoch))
        if self.refuse:
            raise ApiError(self.code)


def test_the_coordinator_is_asked_once_a_transaction(log):
    coordinator = Coordinator()
    begun(log, transactional(1, 0), coordinator)
    begun(log, transactional(1, 1), coordinator)
    begun(log, transactional(1, 1), coordinator)
    assert coordinator.asked == [(1, 0)]
    write(log, marker_of(1, COMMIT))
    begun(log, transactional(1, 1), coordinator)
    assert coordinator.asked == [(1, 0)], "a batch that is sent again begins nothing"
    begun(log, transactional(1, 2), coordinator)
    assert coordinator.asked == [(1, 0), (1, 0)]


def test_another_epoch_is_another_transaction(log):
    coordinator = Coordinator()
    begun(log, transactional(1, 0), coordinator)
    begun(log, transactional(1, 0, epoch=1), coordinator)
    assert coordinator.asked == [(1, 0), (1, 1)]


def test_a_transaction_that_the_coordinator_does_not_know_does_not_begin(log):
    for verification in (Coordinator(refuse=True), None):
        with pytest.raises(ApiError) as refused:
            begun(log, transactional(1, 0), verification)
        assert refused.value.code is ErrorCode.INVALID_TXN_STATE
    assert log.log_end_offset == 0
    assert log.first_unstable_offset is None


def refused_with(log, records, coordinator):
    with pytest.raises(ApiError) as refused:
        begun(log, records, coordinator)
    return refused.value.code


def test_nothing_overtakes_the_first_batch_of_a_producer_that_is_to_come_again(log):
    """Else that one could never be written any more: its sequence would lie behind."""
    later = ErrorCode.NOT_ENOUGH_REPLICAS
    away, back = Coordinator(refuse=True, code=later), Coordinator()
    assert refused_with(log, transactional(1, 3), away) is later
    assert refused_with(log, transactional(1, 4), back) is later
    assert refused_with(log, transactional(1, 2), away) is later
    assert refused_with(log, transactional(1, 3), back) is later
    begun(log, transactional(2, 4), back)
    for sequence in (2, 3, 4):
        begun(log, transactional(1, sequence), back)
    assert log.log_end_offset == 4


def test_a_raised_epoch_ends_the_wait_for_a_refused_batch(log):
    later = ErrorCode.CONCURRENT_TRANSACTIONS
    assert refused_with(log, transactional(1, 0), Coordinator(refuse=True, code=later)) is later
    assert refused_with(log, transactional(1, 5, epoch=1), Coordinator(refuse=True, code=later)) is later
    assert refused_with(log, transactional(1, 6, epoch=1), Coordinator()) is later
    begun(log, transactional(1, 5, epoch=1), Coordinator())


def test_a_refusal_for_good_is_not_waited_for(log):
    assert refused_with(log, transactional(1, 0), Coordinator(refuse=True)) is ErrorCode.INVALID_TXN_STATE
    begun(log, transactional(1, 5), Coordinator())


def test_a_refused_batch_that_never_came_again_is_forgotten(tmp_path):
    clock = ManualClock()
    log = open_log(tmp_path / "t-0", clock=clock)
    later = ErrorCode.NOT_ENOUGH_REPLICAS
    assert refused_with(log, transactional(1, 0), Coordinator(refuse=True, code=later)) is later
    clock.advance(86_400.0)
    log.expire_producers()
    begun(log, transactional(1, 5), Coordinator())


def test_nobody_is_asked_about_a_producer_without_transactions(log):
    builder = RecordBatchBuilder(producer_id=1, producer_epoch=0, base_sequence=0)
    builder.append(1, b"k", b"v")
    coordinator = Coordinator(refuse=True)
    begun(log, memoryview(bytearray(builder.build())), coordinator)
    assert coordinator.asked == []


def test_a_transaction_that_is_open_goes_on_after_a_restart_without_asking(log, home):
    begun(log, transactional(1, 0), Coordinator())
    abandon(log)
    again = open_log(home)
    assert begun(again, transactional(1, 1)) == 1


def test_a_transaction_needs_a_producer_id(log):
    builder = RecordBatchBuilder(is_transactional=True)
    builder.append(1, b"k", b"v")
    with pytest.raises(ApiError, match="without a producer id") as refused:
        begun(log, memoryview(bytearray(builder.build())), Coordinator())
    assert refused.value.code is ErrorCode.INVALID_RECORD


def test_an_aborted_transaction_is_found_without_reading_all_of_them(tmp_path, monkeypatch):
    index = TransactionIndex(tmp_path / "0.txnindex", 0)
    for number in range(10_000):
        index.append(AbortedTransaction(number, 10 * number, 10 * number + 5, 10 * number + 5))
    read, pread = [], os.pread

    def counted(fd, size, position):
        read.append(size)
        return pread(fd, size, position)

    monkeypatch.setattr(os, "pread", counted)
    for start in (0, 4_321, 50_000, 99_990):
        read.clear()
        found, is_all = index.overlapping(start, start + 20)
        assert [each.producer_id for each in found] == [
            number for number in range(10_000) if 10 * number + 5 >= start and 10 * number < start + 20
        ]
        assert is_all == (start + 20 <= 99_995)
        assert sum(read) < 5_000, "of 340 000 bytes"
    assert index.overlapping(0, 5) == ([AbortedTransaction(0, 0, 5, 5)], True)
    assert index.overlapping(0, 6)[1], "the second says so"
    assert index.overlapping(99_996, 200_000) == ([], False)
    index.truncate_to(50_000)
    assert index.overlapping(49_990, 200_000)[0] == [AbortedTransaction(4999, 49_990, 49_995, 49_995)]
    os.ftruncate(index._fd, 34 * 100)
    with pytest.raises(CorruptRecord, match=r"0\.txnindex ends before its entry \d+$"):
        index.overlapping(49_990, 200_000)


@pytest.mark.parametrize("is_wrapped", [False, True], ids=["one by one", "within another"])
@pytest.mark.parametrize("segment_bytes", ["1000000", "1500"])
def test_a_piece_is_cut_where_many_transactions_were_aborted(home, is_wrapped, segment_bytes):
    log = open_log(home, {"segment.bytes": segment_bytes})
    if is_wrapped:
        log.append_as_leader(transactional(99, 0), 0, AppendOrigin.COORDINATOR)
    for number in range(30):
        log.append_as_leader(transactional(1, number), 0, AppendOrigin.COORDINATOR)
        log.append_as_leader(marker_of(1, ControlType.ABORT), 0, AppendOrigin.COORDINATOR)
    if is_wrapped:
        log.append_as_leader(marker_of(99, ControlType.ABORT), 0, AppendOrigin.COORDINATOR)
    end = log.log_end_offset
    log.on_high_watermark(end)
    offset = 0
    while offset < end:
        whole = log.read(offset, 1 << 20, log.end, min_one_batch=True)
        piece, aborted = log._segments.aborted_in(whole, offset, end, 4)
        batches = list(iter_batches(read_bytes(piece), partial_tail=False))
        assert (piece.file, piece.position) == (whole.file, whole.position)
        assert sum(batch.is_control for batch in batches) <= 4
        assert 0 < len(aborted) <= 4 + 2
        beyond = batches[-1].last_offset + 1
        must = [each for each in log.aborted_transactions(offset, end) if each.first_offset < beyond]
        assert [each for each in aborted if each.first_offset < beyond] == must
        offset = beyond


def test_a_marker_is_found_so_many_behind_an_offset(tmp_path):
    index = TransactionIndex(tmp_path / "0.txnindex", 0)
    assert index.marker_behind(0, 1) is None
    for number in range(5):
        index.append(AbortedTransaction(number, 10 * number, 10 * number + 5, 10 * number + 5))
    assert [index.marker_behind(start, 2) for start in (0, 5, 6, 25, 26)] == [25, 25, 35, 45, None]


def test_an_index_that_cannot_be_opened_has_nothing_to_let_go_of(tmp_path):
    with pytest.raises(IsADirectoryError):
        TransactionIndex(tmp_path, 0)
