from sparklog.errors import ErrorCode
from sparklog.structs import TopicPartition
from sparklog.txn.markers import Marker, Progress, marker_of, progress
from sparklog.txn.state import Producer, Transaction, TransactionState


def test_a_marker_says_how_the_prepared_transaction_ends():
    prepared = Transaction("x", 7, 3, 1000, TransactionState.PREPARE_COMMIT, frozenset({TopicPartition("t", 0)}))
    assert marker_of(prepared, 9) == Marker(Producer(7, 3), True, 9)
    aborted = prepared._replace(state=TransactionState.PREPARE_ABORT)
    assert marker_of(aborted, 9) == Marker(Producer(7, 3), False, 9)


def test_only_a_newer_producer_ends_the_trying():
    over = {code for code in ErrorCode if progress(code) is Progress.OVER}
    done = {code for code in ErrorCode if progress(code) is Progress.DONE}
    assert over == {ErrorCode.INVALID_PRODUCER_EPOCH}
    assert done == {ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}
    assert {progress(code) for code in set(ErrorCode) - over - done} == {Progress.AGAIN}
