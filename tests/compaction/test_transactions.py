"""Which batches are of aborted transactions, and which markers are still needed."""

from sparklog.compaction.transactions import CleanedTransactions, TraceLog
from sparklog.log.indexes.transaction_index import AbortedTransaction
from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.control import ControlType, EndTransactionMarker, ProducerIdAndEpoch, build_marker


def data(offset, producer_id=1, *, transactional=True):
    builder = RecordBatchBuilder(base_offset=offset, producer_id=producer_id, is_transactional=transactional)
    builder.append(0, b"k", b"v")
    return RecordBatch(builder.build())


def marker(offset, kind, producer_id=1):
    built = build_marker(EndTransactionMarker(kind, 0), ProducerIdAndEpoch(producer_id, 0), 0, base_offset=offset)
    return RecordBatch(built)


def aborted(first, last, producer_id=1):
    return AbortedTransaction(producer_id, first, last, last + 1)


def test_a_batch_of_an_aborted_transaction_is_told_from_one_of_a_committed():
    transactions = CleanedTransactions([aborted(0, 2)])
    assert transactions.is_aborted(data(0))
    assert transactions.is_aborted(data(1))
    assert not transactions.is_last_trace(marker(2, ControlType.ABORT))
    assert not transactions.is_aborted(data(3))
    assert not transactions.is_last_trace(marker(4, ControlType.COMMIT))


def test_a_marker_of_which_no_batch_was_met_is_the_last_trace():
    transactions = CleanedTransactions([aborted(0, 2)])
    assert transactions.is_last_trace(marker(2, ControlType.ABORT))
    assert transactions.is_last_trace(marker(3, ControlType.COMMIT))
    assert transactions.take_listed() == []


def test_an_aborted_transaction_is_listed_while_a_batch_of_it_was_met():
    transactions = CleanedTransactions([aborted(0, 2), aborted(3, 5)])
    transactions.is_aborted(data(0))
    transactions.is_last_trace(marker(2, ControlType.ABORT))
    transactions.is_last_trace(marker(5, ControlType.ABORT))
    assert transactions.take_listed() == [aborted(0, 2)]
    assert transactions.take_listed() == []


def test_a_batch_without_a_transaction_is_of_none():
    assert not CleanedTransactions([aborted(0, 2)]).is_aborted(data(0, transactional=False))


def test_transactions_of_several_producers_are_told_apart():
    transactions = CleanedTransactions([aborted(0, 4, producer_id=1), aborted(2, 3, producer_id=2)])
    assert transactions.is_aborted(data(0, 1))
    assert not transactions.is_aborted(data(1, 2))
    assert transactions.is_aborted(data(2, 2))


def test_an_entry_whose_marker_is_gone_takes_nothing_that_comes_behind_it():
    """Its index may be damaged, or another's: what was committed afterwards stays."""
    transactions = CleanedTransactions([aborted(0, 2), aborted(5, 7)])
    assert transactions.is_aborted(data(0))
    assert not transactions.is_aborted(data(3))
    assert transactions.is_aborted(data(5))
    assert not transactions.is_last_trace(marker(7, ControlType.ABORT))


def test_an_emptied_marker_is_the_last_trace_and_ends_nothing():
    transactions = CleanedTransactions([aborted(0, 5)])
    assert transactions.is_aborted(data(0))
    empty = RecordBatch(
        RecordBatchBuilder(base_offset=1, producer_id=1, is_transactional=True, is_control=True).build()
    )
    assert transactions.is_last_trace(empty)
    assert transactions.is_aborted(data(2))


def test_entries_may_come_in_any_order():
    transactions = CleanedTransactions([aborted(3, 5), aborted(0, 2)])
    assert transactions.is_aborted(data(0))
    transactions.is_last_trace(marker(2, ControlType.ABORT))
    assert transactions.is_aborted(data(4))


# Going on in the middle of a log


def batches():
    """Two producers, one of which aborts twice; its second transaction goes on where the walk is split."""
    return [
        data(0, 1), data(1, 2), data(2, 1), marker(3, ControlType.ABORT, 1), data(4, 1, transactional=False),
        data(5, 1), data(6, 2), data(7, 1), marker(8, ControlType.COMMIT, 2), data(9, 1),
        marker(10, ControlType.ABORT, 1), data(11, 2), marker(12, ControlType.COMMIT, 2),
    ]  # fmt: skip


ABORTED = [aborted(0, 3), aborted(5, 10)]


def shown(transactions, some):
    said = [transactions.is_last_trace(batch) if batch.is_control else transactions.is_aborted(batch) for batch in some]
    return said, transactions.take_listed()


def test_who_goes_on_knows_what_the_one_before_has_seen():
    whole, listed = shown(CleanedTransactions(ABORTED), batches())
    for split in range(len(batches()) + 1):
        log, first = TraceLog(ABORTED), CleanedTransactions(ABORTED)
        for batch in batches()[:split]:
            log.show(batch)
        for trace in log.traces:
            first.replay(trace)
        said, told = shown(CleanedTransactions.going_on(ABORTED, first.here()), batches()[split:])
        assert said == whole[split:]
        assert told == [each for each in listed if each.last_offset >= split]


def test_batches_that_say_nothing_new_leave_no_trace():
    log = TraceLog([aborted(3, 6)])
    for offset in (0, 1, 3, 4, 5):
        log.show(data(offset))
    log.show(marker(6, ControlType.ABORT))
    log.show(data(7))
    log.show(data(8, transactional=False))
    log.show(data(9))
    assert [each.base_offset for each in log.traces] == [0, 3, 6, 7]
