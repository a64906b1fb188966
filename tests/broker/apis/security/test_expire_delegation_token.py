"""ExpireDelegationToken: who may end which token, now or later."""

import logging

import pytest
from broker.security.token_store import BOB, CAROL, KEY, NOW_MS, OF_ALICE, FakeStore, asked, caller

from sparklog.broker.apis.security import expire_delegation_token
from sparklog.errors import ErrorCode
from sparklog.protocol.messages import ExpireDelegationTokenRequest

SHOWN = KEY.hmac_of("a")


@pytest.fixture
def store():
    return FakeStore(OF_ALICE)


def expire(store, period_ms=-1, shown=SHOWN, **how):
    message = ExpireDelegationTokenRequest(hmac=shown, expiry_time_period_ms=period_ms)
    answer = asked(expire_delegation_token, message, store=store, **how)
    return answer.error_code, answer.expiry_timestamp_ms


@pytest.mark.parametrize("by", [caller(), caller(CAROL)])
def test_owner_and_renewers_end_it_at_once(store, by, caplog):
    with caplog.at_level(logging.INFO, "sparklog.audit"):
        assert expire(store, by=by) == (ErrorCode.NONE, NOW_MS)
    assert store.tokens == {}
    assert caplog.messages[0].startswith("removed: 'delegation token a of User:alice")


def test_or_later(store, caplog):
    with caplog.at_level(logging.INFO, "sparklog.audit"):
        assert expire(store, 5) == (ErrorCode.NONE, NOW_MS + 5)
    assert store.tokens["a"].expires_ms == NOW_MS + 5
    assert caplog.messages[0].startswith("changed the end of: ")


def test_whoever_may_not_is_told_why(store):
    assert expire(store, by=caller(BOB)) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, -1)
    assert expire(store, by=caller(token_id="a")) == (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, -1)
    assert expire(store, shown=b"guess") == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, -1)
    assert expire(None) == (ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, -1)
    assert store.tokens == {"a": OF_ALICE}
