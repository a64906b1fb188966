"""The client's half of a transaction, as a table of what may follow what."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.client.sequences import ProducerId
from sparklog.client.transaction import (
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


def test_a_partition_is_sent_to_once_it_is_added():
    transaction = _open()
    assert transaction.sends_to(_TP)
    assert not transaction.sends_to(_TP)
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
    transaction.sends_to(_TP)
    assert transaction.may_send(_TP)
    assert not transaction.pending
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
    for use in (transaction.check, lambda: transaction.end(commit=True), lambda: transaction.sends_to(_TP)):
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
    transaction.sends_to(_TP)
    state = transaction.prepare()
    assert state == "7:3"
    with pytest.raises(ApiError, match="waits for complete_transaction"):
        transaction.sends_to(_TP)
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
    "send": lambda transaction, _: transaction.sends_to(_TP),
    "commit": lambda transaction, _: transaction.end(commit=True),
    "abort": lambda transaction, _: transaction.end(commit=False),
    "ended": lambda transaction, _: transaction.step is Step.ENDING and transaction.ended(None),
    "request": lambda transaction, code: transaction.failed(ApiError(code)),
    "batch": lambda transaction, code: transaction.batch_failed(ApiError(code)),
}


@settings(max_examples=300, deadline=None)
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
