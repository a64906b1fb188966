import pytest

from sparklog.client.producer.refusal import Refusal, leaves_doubt, refusal_of
from sparklog.errors import ErrorCode

_E = ErrorCode


@pytest.mark.parametrize(
    ("code", "refusal"),
    [
        (_E.NONE, None),
        (_E.DUPLICATE_SEQUENCE_NUMBER, None),
        (_E.NOT_LEADER_OR_FOLLOWER, Refusal.PASSING),
        (_E.NETWORK_EXCEPTION, Refusal.PASSING),
        (_E.OUT_OF_ORDER_SEQUENCE_NUMBER, Refusal.OUT_OF_SEQUENCE),
        (_E.UNKNOWN_PRODUCER_ID, Refusal.OUT_OF_SEQUENCE),
        (_E.PRODUCER_FENCED, Refusal.FENCED),
        (_E.MESSAGE_TOO_LARGE, Refusal.TOO_LARGE),
        (_E.RECORD_LIST_TOO_LARGE, Refusal.TOO_LARGE),
        (_E.INVALID_RECORD, Refusal.FINAL),
    ],
)
@pytest.mark.parametrize("is_transactional", [False, True])
def test_what_a_code_means(code, refusal, is_transactional):
    assert refusal_of(code, is_transactional=is_transactional) is refusal


def test_an_old_epoch_is_another_producers_only_in_a_transaction():
    assert refusal_of(_E.INVALID_PRODUCER_EPOCH, is_transactional=True) is Refusal.FENCED
    assert refusal_of(_E.INVALID_PRODUCER_EPOCH, is_transactional=False) is Refusal.OUT_OF_SEQUENCE


def test_what_a_leader_says_before_it_appends_leaves_no_doubt():
    assert not leaves_doubt(_E.NOT_ENOUGH_REPLICAS)
    assert leaves_doubt(_E.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    assert leaves_doubt(_E.NOT_LEADER_OR_FOLLOWER)
    assert leaves_doubt(_E.NETWORK_EXCEPTION)
