"""Each request of the first version in each state, as tables."""

from __future__ import annotations

import pytest

from sparklog.errors import ErrorCode
from sparklog.structs import TopicPartition
from sparklog.txn.machine import Decision, EndRequest, InitRequest, TransactionMachine, TransactionSettings
from sparklog.txn.state import (
    COMPLETION,
    LAST_EPOCH,
    NO_EPOCH,
    PREDECESSORS,
    HeldTransaction,
    Producer,
    Transaction,
    TransactionState,
)

S = TransactionState
E = ErrorCode
MACHINE = TransactionMachine(TransactionSettings(900_000, 10_000))
NOW = 100_000
A, B = TopicPartition("a", 0), TopicPartition("b", 1)
PRODUCER = Producer(7, 3)
ALIVE = [each for each in S if each is not S.DEAD]


def held(state: S, **changes: object) -> HeldTransaction:
    open_ = state in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT)
    transaction = Transaction(
        "id", 7, 3, 60_000, state, frozenset({A} if open_ else ()), 90_000 if open_ else -1, 90_000
    )
    return HeldTransaction(transaction._replace(**changes))


def request(expected: Producer | None = None, timeout_ms: int = 5000) -> InitRequest:
    return InitRequest("id", timeout_ms, expected)


def end(held: HeldTransaction | None, producer: Producer, *, commit: bool) -> Decision:
    """As a client of the first version ends."""
    return MACHINE.end(held, EndRequest(producer, commit), now_ms=NOW)


def test_the_names_are_kafkas() -> None:
    assert [each.label for each in S] == [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
    ]  # fmt: skip


def test_a_prepared_transaction_has_one_way_to_go() -> None:
    for prepared, complete in COMPLETION.items():
        assert [state for state, before in PREDECESSORS.items() if prepared in before] == [complete]
    at_rest = {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}
    assert PREDECESSORS[S.PREPARE_COMMIT] == {S.ONGOING}
    assert PREDECESSORS[S.PREPARE_ABORT] == {S.ONGOING} | at_rest


@pytest.mark.parametrize(
    ("transactional_id", "timeout_ms", "error"),
    [
        ("id", 900_000, E.NONE),
        ("id", 900_001, E.INVALID_TRANSACTION_TIMEOUT),
        ("id", 0, E.INVALID_TRANSACTION_TIMEOUT),
        ("", 1, E.INVALID_REQUEST),
    ],
)
def test_what_init_may_ask_for(transactional_id: str, timeout_ms: int, error: ErrorCode) -> None:
    assert MACHINE.init_error(InitRequest(transactional_id, timeout_ms)) is error


def test_a_new_id_takes_a_producer_id_and_epoch_0() -> None:
    assert MACHINE.init(None, request(), None, NOW).needs_producer_id
    decision = MACHINE.init(None, request(), 99, NOW)
    assert decision.record == Transaction("id", 99, 0, 5000, update_ms=NOW)


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_init_raises_the_epoch(state: S) -> None:
    error, record, _ = MACHINE.init(held(state), request(), None, NOW)
    assert error is E.NONE
    assert record is not None
    assert (record.producer, record.state, record.timeout_ms, record.last_epoch) == (Producer(7, 4), S.EMPTY, 5000, -1)
    assert (record.start_ms, record.partitions) == (-1, frozenset())


def test_init_aborts_what_is_open_under_a_raised_epoch_and_sends_the_asker_away() -> None:
    error, record, _ = MACHINE.init(held(S.ONGOING), request(), None, NOW)
    assert error is E.CONCURRENT_TRANSACTIONS
    assert record is not None
    assert (record.state, record.producer, record.partitions) == (S.PREPARE_ABORT, Producer(7, 4), {A})
    assert record.timeout_ms == 60_000


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_init_waits_for_the_end_of_what_is_prepared(state: S) -> None:
    assert MACHINE.init(held(state), request(), None, NOW) == (E.CONCURRENT_TRANSACTIONS, None, False)


@pytest.mark.parametrize("expected", [None, Producer(7, LAST_EPOCH - 1)])
def test_an_exhausted_epoch_costs_a_new_producer_id(expected: Producer | None) -> None:
    worn = held(S.COMPLETE_COMMIT, epoch=LAST_EPOCH - 1)
    assert MACHINE.init(worn, request(expected), None, NOW).needs_producer_id
    record = MACHINE.init(worn, request(expected), 99, NOW).record
    assert record is not None
    assert (record.producer, record.last_producer_id) == (Producer(99, 0), 7)
    again = MACHINE.init(HeldTransaction(record), request(Producer(7, LAST_EPOCH - 1)), None, NOW)
    assert again.error is (E.NONE if expected else E.PRODUCER_FENCED)
    assert again.record is None or again.record.producer == Producer(99, 0)


@pytest.mark.parametrize(
    ("expected", "last_epoch", "answer"),
    [
        (Producer(7, 3), 2, Producer(7, 4)),
        (Producer(7, 2), 2, Producer(7, 3)),  # it did not hear the answer
        (Producer(7, 2), NO_EPOCH, E.PRODUCER_FENCED),
        (Producer(7, 1), 2, E.PRODUCER_FENCED),
        (Producer(7, 4), 2, E.PRODUCER_FENCED),
        (Producer(8, 3), 2, E.PRODUCER_FENCED),
    ],
)
def test_init_of_a_producer_that_goes_on(expected: Producer, last_epoch: int, answer: Producer | ErrorCode) -> None:
    error, record, _ = MACHINE.init(held(S.EMPTY, last_epoch=last_epoch), request(expected), None, NOW)
    assert (record.producer if record else error) == answer


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (3, Producer(6, 3)),  # its id was not worn when this one was given
        (LAST_EPOCH - 2, Producer(6, LAST_EPOCH - 2)),
        (3, Producer(9, LAST_EPOCH - 1)),  # worn, but not before this one
    ],
)
def test_only_the_last_epoch_of_the_id_before_goes_on_under_the_new_one(epoch: int, expected: Producer) -> None:
    found = held(S.EMPTY, epoch=epoch, last_producer_id=6, last_epoch=LAST_EPOCH - 1)
    assert MACHINE.init(found, request(expected), 99, NOW) == (E.PRODUCER_FENCED, None, False)
    assert MACHINE.init(found, request(Producer(6, LAST_EPOCH - 1)), 99, NOW).error is E.NONE


def test_what_init_writes() -> None:
    raised = MACHINE.init(held(S.COMPLETE_COMMIT), request(), None, NOW).record
    assert raised == Transaction("id", 7, 4, 5000, update_ms=NOW, last_producer_id=7)
    known = held(S.EMPTY, last_producer_id=7, last_epoch=2)
    assert MACHINE.init(known, request(Producer(7, 3)), None, NOW).record == raised._replace(last_epoch=3)
    unheard = MACHINE.init(known, request(Producer(7, 2)), None, NOW).record
    assert unheard == Transaction("id", 7, 3, 5000, update_ms=NOW, last_producer_id=7, last_epoch=2)


ADDING = {
    S.EMPTY: E.NONE,
    S.ONGOING: E.NONE,
    S.PREPARE_COMMIT: E.CONCURRENT_TRANSACTIONS,
    S.PREPARE_ABORT: E.CONCURRENT_TRANSACTIONS,
    S.COMPLETE_COMMIT: E.NONE,
    S.COMPLETE_ABORT: E.NONE,
}
ENDING = {
    (S.EMPTY, True): E.INVALID_TXN_STATE,
    (S.EMPTY, False): E.INVALID_TXN_STATE,
    (S.ONGOING, True): S.PREPARE_COMMIT,
    (S.ONGOING, False): S.PREPARE_ABORT,
    (S.PREPARE_COMMIT, True): E.CONCURRENT_TRANSACTIONS,
    (S.PREPARE_COMMIT, False): E.INVALID_TXN_STATE,
    (S.PREPARE_ABORT, True): E.INVALID_TXN_STATE,
    (S.PREPARE_ABORT, False): E.CONCURRENT_TRANSACTIONS,
    (S.COMPLETE_COMMIT, True): E.NONE,
    (S.COMPLETE_COMMIT, False): E.INVALID_TXN_STATE,
    (S.COMPLETE_ABORT, True): E.INVALID_TXN_STATE,
    (S.COMPLETE_ABORT, False): E.NONE,
}


@pytest.mark.parametrize("state", ALIVE)
def test_adding_partitions(state: S) -> None:
    error, record, _ = MACHINE.add_partitions(held(state), PRODUCER, [B], NOW)
    assert error is ADDING[state]
    if error is E.NONE:
        assert record is not None
        goes_on = state is S.ONGOING
        assert (record.state, record.partitions) == (S.ONGOING, {A, B} if goes_on else {B})
        assert (record.start_ms, record.update_ms) == (90_000 if goes_on else NOW, NOW)


def test_adding_what_is_there_writes_nothing() -> None:
    assert MACHINE.add_partitions(held(S.ONGOING), PRODUCER, [A], NOW) == (E.NONE, None, False)


@pytest.mark.parametrize(("state", "commit"), ENDING)
def test_ending(state: S, commit: bool) -> None:
    error, record, _ = end(held(state), PRODUCER, commit=commit)
    assert (record.state if record else error) == ENDING[state, commit]
    if record:
        assert (error, record.partitions, record.producer) == (E.NONE, {A}, PRODUCER)
        assert (record.start_ms, record.update_ms) == (90_000, NOW)


@pytest.mark.parametrize(
    ("producer", "error"),
    [
        (Producer(8, 3), E.INVALID_PRODUCER_ID_MAPPING),
        (Producer(7, 2), E.PRODUCER_FENCED),
        (Producer(7, 4), E.PRODUCER_FENCED),
    ],
)
@pytest.mark.parametrize("state", ALIVE)
def test_strangers_are_refused_in_every_state(state: S, producer: Producer, error: ErrorCode) -> None:
    assert MACHINE.add_partitions(held(state), producer, [B], NOW) == (error, None, False)
    assert end(held(state), producer, commit=True) == (error, None, False)
    assert MACHINE.verify(held(state), producer, A) is error


def test_an_id_that_nobody_knows() -> None:
    mapping = E.INVALID_PRODUCER_ID_MAPPING
    assert MACHINE.add_partitions(None, PRODUCER, [A], NOW).error is mapping
    assert end(None, PRODUCER, commit=True).error is mapping
    assert MACHINE.verify(None, PRODUCER, A) is mapping


@pytest.mark.parametrize("state", ALIVE)
def test_while_a_record_is_written_nothing_else_is_decided(state: S) -> None:
    busy = held(state)
    busy.pending = busy.current._replace(update_ms=NOW)
    assert MACHINE.init(busy, request(), 99, NOW).error is E.CONCURRENT_TRANSACTIONS
    assert MACHINE.add_partitions(busy, PRODUCER, [A], NOW).error is E.CONCURRENT_TRANSACTIONS
    assert end(busy, PRODUCER, commit=True).error is E.CONCURRENT_TRANSACTIONS
    assert MACHINE.time_out(busy, 1 << 60) is None
    assert MACHINE.expire(busy, 1 << 60) is None


@pytest.mark.parametrize(
    ("state", "tp", "error"),
    [
        (S.ONGOING, A, E.NONE),
        (S.ONGOING, B, E.INVALID_TXN_STATE),
        (S.EMPTY, A, E.INVALID_TXN_STATE),
        (S.COMPLETE_COMMIT, A, E.INVALID_TXN_STATE),
        (S.PREPARE_COMMIT, A, E.CONCURRENT_TRANSACTIONS),
        (S.PREPARE_ABORT, A, E.CONCURRENT_TRANSACTIONS),
    ],
)
def test_who_may_begin_to_write(state: S, tp: TopicPartition, error: ErrorCode) -> None:
    assert MACHINE.verify(held(state), PRODUCER, tp) is error


def test_nobody_begins_to_write_while_the_end_is_being_decided() -> None:
    ending = held(S.ONGOING)
    ending.begin(ending.current._replace(state=S.PREPARE_COMMIT))
    assert MACHINE.verify(ending, PRODUCER, A) is E.CONCURRENT_TRANSACTIONS
    growing = held(S.ONGOING)
    growing.begin(growing.current._replace(partitions=frozenset({A, B})))
    assert MACHINE.verify(growing, PRODUCER, A) is E.NONE
    assert MACHINE.verify(growing, PRODUCER, B) is E.INVALID_TXN_STATE


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() -> None:
    assert MACHINE.time_out(held(S.ONGOING), 150_000) is None
    aborted = MACHINE.time_out(held(S.ONGOING), 150_001)
    assert aborted is not None
    assert (aborted.state, aborted.producer, aborted.partitions) == (S.PREPARE_ABORT, Producer(7, 4), {A})


@pytest.mark.parametrize("state", [each for each in ALIVE if each is not S.ONGOING])
def test_only_an_open_transaction_times_out(state: S) -> None:
    assert MACHINE.time_out(held(state), 1 << 60) is None


@pytest.mark.parametrize("state", ALIVE)
def test_an_id_at_rest_expires(state: S) -> None:
    assert MACHINE.expire(held(state), 99_999) is None
    dead = MACHINE.expire(held(state), 100_000)
    assert (dead is not None) == (state in (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT))
    assert dead is None or dead.state is S.DEAD


@pytest.mark.parametrize("prepared", COMPLETION)
def test_completion_keeps_the_start_and_forgets_the_partitions(prepared: S) -> None:
    complete = MACHINE.complete(held(prepared).current, NOW)
    assert (complete.state, complete.partitions) == (COMPLETION[prepared], frozenset())
    assert (complete.start_ms, complete.update_ms, complete.producer) == (90_000, NOW, PRODUCER)


def test_a_raised_epoch_whose_record_was_lost_is_raised_once() -> None:
    zombie = held(S.ONGOING)
    aborted = MACHINE.init(zombie, request(), None, NOW).record
    assert aborted is not None
    zombie.begin(aborted)
    zombie.failed()
    assert (zombie.current.state, zombie.current.producer) == (S.ONGOING, PRODUCER)
    assert zombie.current.client == Producer(7, 4)
    assert end(zombie, PRODUCER, commit=True).error is E.PRODUCER_FENCED
    again = MACHINE.init(zombie, request(), None, NOW).record
    assert again is not None
    assert again.producer == again.client == Producer(7, 4)


@pytest.mark.parametrize("commit", [True, False])
def test_a_producers_own_end_that_was_lost_fences_nobody(commit: bool) -> None:
    ending = held(S.ONGOING)
    record = end(ending, PRODUCER, commit=commit).record
    assert record is not None
    ending.begin(record)
    ending.failed()
    assert end(ending, PRODUCER, commit=commit).record == record
    successor = MACHINE.init(ending, request(), None, NOW).record
    assert successor is not None
    assert successor.client == Producer(7, 4)


def test_the_last_epoch_is_given_to_no_producer() -> None:
    aborted = MACHINE.init(held(S.ONGOING, epoch=LAST_EPOCH - 1), request(), None, NOW).record
    assert aborted is not None
    assert (aborted.producer, aborted.client) == (Producer(7, LAST_EPOCH), Producer(7, LAST_EPOCH))
    told = {"next_producer_id": 99, "next_epoch": LAST_EPOCH}
    for impossible in (held(S.ONGOING, epoch=LAST_EPOCH), held(S.ONGOING, **told)):
        with pytest.raises(AssertionError):
            MACHINE.init(impossible, request(), None, NOW)


def test_an_illegal_step_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError):
        held(S.PREPARE_COMMIT).begin(held(S.ONGOING).current)
    busy = held(S.EMPTY)
    busy.begin(busy.current)
    with pytest.raises(AssertionError):
        busy.begin(busy.current)
