"""The client's half of a transaction, as a table of what may follow what."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.client.producer.sequences import ProducerId
from sparklog.client.producer.transaction import (
    NO_TRANSACTION,
    Severity,
    Step,
    Transaction,
    parse_prepared,
    prepared_text,
    severity,
)
from sparklog.errors import ApiError, ConfigError, ConnectionFailed, ErrorCode, RemoteProtocolError
from sparklog.structs import TopicPartition

_E = ErrorCode
_TP = TopicPartition("t", 0)
_ME = ProducerId(7, 3)


def _open(**how):
    transaction = Transaction("x", **how)
    transaction.initialized(_ME)
    transaction.begin()
    return transaction


def _sends_to(transaction, tp):
    transaction.require_open()
    return transaction.joins(tp)


def test_a_partition_is_sent_to_once_it_is_added():
    transaction = _open()
    assert _sends_to(transaction, _TP)
    assert not _sends_to(transaction, _TP)
    assert not transaction.may_send(_TP)
    transaction.partitions_added([_TP])
    assert transaction.may_send(_TP)
    transaction.end(commit=True)
    transaction.ended(None)
    transaction.begin()
    assert not transaction.may_send(_TP)


def test_in_the_second_version_nothing_is_added_first():
    transaction = _open()
    transaction.second_version = True
    _sends_to(transaction, _TP)
    assert transaction.may_send(_TP)
    assert not transaction.pending
    assert not transaction.has_begun
    transaction.goes_out()
    assert transaction.has_begun
    transaction.end(commit=True)
    transaction.ended(ProducerId(7, 4))
    assert transaction.producer == ProducerId(7, 4)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionFailed("x"), Severity.RETRIABLE),
        (ApiError(_E.CONCURRENT_TRANSACTIONS), Severity.RETRIABLE),
        (ApiError(_E.COORDINATOR_LOAD_IN_PROGRESS), Severity.RETRIABLE),
        (ApiError(_E.TRANSACTION_ABORTABLE), Severity.ABORTABLE),
        (ApiError(_E.INVALID_PRODUCER_ID_MAPPING), Severity.ABORTABLE),
        (ApiError(_E.ILLEGAL_GENERATION), Severity.ABORTABLE),
        (ApiError(_E.INVALID_PRODUCER_EPOCH), Severity.FATAL),
        (ApiError(_E.PRODUCER_FENCED), Severity.FATAL),
        (ApiError(_E.INVALID_TXN_STATE), Severity.FATAL),
        (ApiError(_E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), Severity.FATAL),
        (ApiError(_E.UNKNOWN_SERVER_ERROR), Severity.FATAL),
        (RemoteProtocolError("x"), Severity.FATAL),
    ],
)
def test_what_errors_mean(error, expected):
    assert severity(error) is expected


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ApiError(_E.REQUEST_TIMED_OUT), _E.TRANSACTION_ABORTABLE),
        (ConnectionFailed("x"), _E.TRANSACTION_ABORTABLE),
        (ApiError(_E.MESSAGE_TOO_LARGE), _E.MESSAGE_TOO_LARGE),
        (ApiError(_E.PRODUCER_FENCED), _E.PRODUCER_FENCED),
    ],
)
def test_a_spoiled_transaction_does_not_ask_to_be_tried_again(error, told):
    transaction = _open()
    transaction.batch_failed(error)
    for use in (transaction.check, lambda: transaction.end(commit=True), lambda: _sends_to(transaction, _TP)):
        with pytest.raises(ApiError) as raised:
            use()
        assert raised.value.code is told


@pytest.mark.parametrize("code", [_E.INVALID_PRODUCER_EPOCH, _E.PRODUCER_FENCED])
def test_a_fence_has_one_code_and_says_who_fences_whom(code):
    error = _open().explained(ApiError(code, "as the broker has it"))
    assert error.code is _E.PRODUCER_FENCED
    assert "a newer producer has the transactional id 'x' and fenced this one" in str(error)
    assert "as the broker has it" in str(error)


@pytest.mark.parametrize(
    ("code", "setting"),
    [
        (_E.INVALID_TXN_STATE, "transaction.timeout.ms"),
        (_E.INVALID_TRANSACTION_TIMEOUT, "transaction.max.timeout.ms"),
    ],
)
def test_an_error_names_the_setting_that_leads_to_it(code, setting):
    error = _open().explained(ApiError(code, "x"))
    assert error.code is code
    assert setting in str(error)


@pytest.mark.parametrize("error", [ApiError(_E.MESSAGE_TOO_LARGE), ConnectionFailed("x")])
def test_other_errors_speak_for_themselves(error):
    assert _open().explained(error) is error


def test_an_end_whose_answer_was_lost_can_be_asked_for_again_but_not_turned_around():
    transaction = _open()
    transaction.end(commit=True)
    transaction.end(commit=True)
    with pytest.raises(ApiError, match="being ended"):
        transaction.end(commit=False)


def test_two_phases():
    transaction = _open(two_phase=True)
    transaction.second_version = True
    _sends_to(transaction, _TP)
    transaction.goes_out()
    state = transaction.prepare()
    assert state == "7:3"
    with pytest.raises(ApiError, match="waits for complete_transaction"):
        _sends_to(transaction, _TP)
    assert transaction.decide(state)
    heir = Transaction("x", two_phase=True)
    heir.initialized(ProducerId(7, 4), prepared=_ME)
    assert heir.step is Step.PREPARED
    assert heir.decide("7:3")
    assert not heir.decide("7:2")
    assert not heir.decide("")


def test_preparing_nothing_has_an_empty_name():
    transaction = _open(two_phase=True)
    assert transaction.prepare() == ""
    assert not transaction.decide("")


def test_preparing_needs_the_setting():
    with pytest.raises(ConfigError, match=r"transaction\.two\.phase\.commit\.enable"):
        _open().prepare()


@given(st.builds(ProducerId, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1)) | st.just(NO_TRANSACTION))
def test_the_text_of_a_prepared_transaction_is_read_back(producer):
    assert parse_prepared(prepared_text(producer)) == producer


@pytest.mark.parametrize("text", ["x", "1", "1:", "-1:0", "1:-1", "1:2:3"])
def test_other_texts_are_refused(text):
    with pytest.raises(ConfigError, match="prepare_transaction"):
        parse_prepared(text)


_ERRORS = [_E.PRODUCER_FENCED, _E.TRANSACTION_ABORTABLE, _E.MESSAGE_TOO_LARGE, _E.INVALID_TXN_STATE]
_STEPS = {
    "begin": lambda transaction, _: transaction.begin(),
    "send": lambda transaction, _: _sends_to(transaction, _TP),
    "commit": lambda transaction, _: transaction.end(commit=True),
    "abort": lambda transaction, _: transaction.end(commit=False),
    "ended": lambda transaction, _: transaction.step is Step.ENDING and transaction.ended(None),
    "request": lambda transaction, code: transaction.failed(ApiError(code)),
    "batch": lambda transaction, code: transaction.batch_failed(ApiError(code)),
}


@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from(list(_STEPS)), st.sampled_from(_ERRORS)), max_size=30))
def test_after_a_fence_nothing_works_and_after_an_abortable_error_only_abort(steps):
    transaction = Transaction("x")
    transaction.initialized(_ME)
    for step, code in steps:
        before = transaction.step
        try:
            _STEPS[step](transaction, code)
        except ApiError:
            assert transaction.step is before
            continue
        if before is Step.FATAL:
            assert step in ("ended", "request", "batch")
            assert transaction.step is Step.FATAL
        if before is Step.ABORTABLE:
            assert step not in ("begin", "send", "commit")
        if step == "request" and code is _E.PRODUCER_FENCED:
            assert transaction.step is Step.FATAL
            assert not transaction.may_send(_TP)


def _refused(call):
    with pytest.raises(ApiError) as caught:
        call()
    return caught.value.code


def test_a_producer_begins_with_nothing():
    transaction = Transaction("x")
    assert (transaction.step, transaction.error, transaction.producer) == (Step.UNINITIALIZED, None, None)
    assert (transaction.two_phase, transaction.second_version, transaction.commits) == (False, False, False)
    assert (transaction.prepared, transaction.added, transaction.pending) == (NO_TRANSACTION, set(), set())
    assert not transaction.has_begun
    assert _refused(transaction.begin) is _E.INVALID_TXN_STATE
    transaction.check()
    transaction.initialized(_ME)
    assert (transaction.step, transaction.producer, transaction.has_begun) == (Step.READY, _ME, False)


def test_calls_out_of_place_are_refused_and_change_nothing():
    ready = Transaction("x", two_phase=True)
    ready.initialized(_ME)
    for call in (
        ready.require_open,
        lambda: _sends_to(ready, _TP),
        ready.sends_offsets,
        ready.prepare,
        lambda: ready.decide("7:3"),
        lambda: ready.end(commit=True),
        lambda: ready.end(commit=False),
    ):
        assert _refused(call) is _E.INVALID_TXN_STATE
        assert (ready.step, ready.has_begun, ready.pending) == (Step.READY, False, set())
    ready.begin()
    ready.require_open()
    assert _refused(ready.begin) is _E.INVALID_TXN_STATE
    ready.end(commit=False)
    assert _refused(lambda: _sends_to(ready, _TP)) is _E.INVALID_TXN_STATE


def _added(transaction, added):
    transaction.asks_to_add()
    transaction.add_answered(added)


def test_one_refusal_takes_nothing_back_that_is_known_or_in_doubt():
    for before in (True, None):
        transaction = _open()
        _added(transaction, before)
        _added(transaction, False)
        assert transaction.has_begun
        assert transaction.is_known is (before is True)
    transaction = _open()
    transaction.asks_to_add()
    _added(transaction, False)
    assert transaction.has_begun
    transaction.add_answered(False)
    assert not transaction.has_begun


def test_offsets_begin_a_transaction_of_the_second_version():
    transaction = _open()
    transaction.second_version = True
    transaction.sends_offsets()
    assert transaction.is_known


def test_a_transaction_that_never_began_needs_another_epoch_until_it_is_ended():
    transaction = _open()
    _added(transaction, None)
    transaction.end(commit=False)
    transaction.never_began()
    transaction.end_answered()
    assert (transaction.has_begun, transaction.is_spoiled) == (False, True)
    transaction.ended(ProducerId(7, 4))
    assert not transaction.is_spoiled


def test_the_coordinator_knows_of_a_transaction_once_something_is_in_it():
    for act, has_begun in [
        (lambda transaction: _sends_to(transaction, _TP), False),
        (lambda transaction: transaction.goes_out(), True),
        (lambda transaction: transaction.sends_offsets(), False),
        (lambda transaction: transaction.partitions_added([_TP]), True),
        (lambda transaction: transaction.asks_to_add(), True),
        (lambda transaction: _added(transaction, True), True),
        (lambda transaction: _added(transaction, False), False),
        (lambda transaction: _added(transaction, None), True),
    ]:
        transaction = _open()
        assert not transaction.has_begun
        act(transaction)
        assert transaction.has_begun is has_begun
        transaction.end(commit=True)
        if transaction._asking:
            transaction.add_answered(None)
        transaction.ended(None)
        assert (transaction.has_begun, transaction.added, transaction.pending) == (False, set(), set())
        assert (transaction.step, transaction.producer) == (Step.READY, _ME)


def test_each_partition_is_added_by_itself():
    transaction, other = _open(), TopicPartition("t", 1)
    assert _sends_to(transaction, _TP)
    assert _sends_to(transaction, other)
    transaction.partitions_added([_TP])
    assert (transaction.added, transaction.pending) == ({_TP}, {other})
    transaction.partitions_added([other])
    assert (transaction.added, transaction.pending) == ({_TP, other}, set())
    assert not _sends_to(transaction, _TP)


def test_what_a_predecessor_prepared_waits_for_a_decision():
    transaction = Transaction("x", two_phase=True)
    transaction.initialized(_ME, ProducerId(7, 2))
    assert (transaction.step, transaction.has_begun) == (Step.PREPARED, True)
    assert _refused(transaction.begin) is _E.INVALID_TXN_STATE
    assert transaction.decide("7:2")
    assert not transaction.decide("7:3")
    assert not transaction.decide("")
    transaction.end(commit=True)
    transaction.ended(None)
    assert transaction.prepared == NO_TRANSACTION
    transaction.begin()


def test_nothing_prepared_is_never_committed():
    transaction = _open(two_phase=True)
    assert transaction.prepare() == ""
    assert not transaction.decide("")


@pytest.mark.parametrize("commit", [True, False])
def test_why_what_waits_is_not_sent(commit):
    transaction = _open()
    assert transaction.obstacle is None
    transaction.end(commit=commit)
    obstacle: Any = transaction.obstacle
    assert (obstacle is None) is commit
    if not commit:
        assert obstacle.code is _E.OPERATION_NOT_ATTEMPTED
    error = ApiError(_E.UNKNOWN_PRODUCER_ID)
    transaction.failed(error)
    assert (transaction.step, transaction.obstacle) == (Step.ABORTABLE, error)
    assert _refused(transaction.check) is _E.UNKNOWN_PRODUCER_ID
    assert _refused(lambda: transaction.end(commit=True)) is _E.UNKNOWN_PRODUCER_ID
    transaction.end(commit=False)
    transaction.ended(None)
    transaction.check()
    assert (transaction.step, transaction.error, transaction.obstacle) == (Step.READY, None, None)


def test_what_an_end_still_owes_is_known_when_it_is_asked_again():
    transaction = _open()
    transaction.goes_out()
    assert not transaction.is_spoiled
    transaction.failed(ApiError(_E.UNKNOWN_PRODUCER_ID))
    transaction.end(commit=False)
    assert (transaction.has_begun, transaction.is_spoiled) == (True, True)
    transaction.end_answered()
    transaction.end(commit=False)
    assert (transaction.has_begun, transaction.is_spoiled) == (False, True)
    transaction.ended(ProducerId(7, 4))
    assert (transaction.has_begun, transaction.is_spoiled) == (False, False)


def test_the_first_fatal_error_stays():
    transaction = _open()
    first = ApiError(_E.PRODUCER_FENCED)
    transaction.failed(first)
    transaction.failed(ApiError(_E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    transaction.batch_failed(ApiError(_E.INVALID_PRODUCER_EPOCH))
    assert (transaction.step, transaction.error) == (Step.FATAL, first)
    assert not transaction.may_send(_TP)
    assert _refused(lambda: transaction.end(commit=False)) is _E.PRODUCER_FENCED


def test_what_is_not_fatal_spoils_only_what_is_open_or_being_ended():
    transaction = Transaction("x")
    transaction.initialized(_ME)
    transaction.failed(ApiError(_E.UNKNOWN_PRODUCER_ID))
    transaction.batch_failed(ApiError(_E.INVALID_RECORD))
    assert (transaction.step, transaction.error) == (Step.READY, None)


@pytest.mark.parametrize("commit", [True, False])
def test_a_batch_that_fails_spoils_a_commit_and_no_abort(commit):
    transaction = _open()
    transaction.end(commit=commit)
    transaction.batch_failed(ApiError(_E.INVALID_RECORD))
    assert transaction.step is (Step.ABORTABLE if commit else Step.ENDING)
    fenced = _open()
    fenced.end(commit=commit)
    fenced.batch_failed(ApiError(_E.PRODUCER_FENCED))
    assert fenced.step is Step.FATAL


@pytest.mark.parametrize("text", ["7", "7:", ":3", "-1:3", "7:-1", "7:3:1", "x:3"])
def test_what_is_no_prepared_state(text):
    with pytest.raises(ConfigError):
        parse_prepared(text)


def test_the_least_prepared_state():
    assert parse_prepared("0:0") == ProducerId(0, 0)
    assert prepared_text(ProducerId(0, 0)) == "0:0"
    assert parse_prepared("") == NO_TRANSACTION == ProducerId(-1, -1)
