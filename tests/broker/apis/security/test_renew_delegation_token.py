"""RenewDelegationToken: who may renew which token."""

import logging

import pytest
from broker.security.token_store import BOB, CAROL, KEY, NOW_MS, OF_ALICE, FakeStore, asked, caller

from sparklog.broker.apis.security import renew_delegation_token
from sparklog.errors import ErrorCode
from sparklog.protocol.messages import RenewDelegationTokenRequest

SHOWN = KEY.hmac_of("a")


@pytest.fixture
def store():
    return FakeStore(OF_ALICE)


def renew(store, period_ms=3000, shown=SHOWN, **how):
    message = RenewDelegationTokenRequest(hmac=shown, renew_period_ms=period_ms)
    answer = asked(renew_delegation_token, message, store=store, **how)
    return answer.error_code, answer.expiry_timestamp_ms


@pytest.mark.parametrize("by", [caller(), caller(CAROL)])
def test_owner_and_renewers_renew_it(store, by, caplog):
    with caplog.at_level(logging.INFO, "sparklog.audit"):
        assert renew(store, by=by) == (ErrorCode.NONE, NOW_MS + 3000)
    assert store.tokens["a"].expires_ms == NOW_MS + 3000
    assert caplog.messages[0].startswith("renewed: 'delegation token a of User:alice")


def test_by_default_it_lasts_as_long_as_usual(store):
    assert renew(store, -1) == (ErrorCode.NONE, NOW_MS + 1000)


def test_whoever_may_not_is_told_why(store):
    assert renew(store, by=caller(BOB)) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, -1)
    assert renew(store, by=caller(token_id="a")) == (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, -1)
    assert renew(store, shown=b"guess") == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, -1)
    assert renew(None) == (ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, -1)
    assert store.tokens == {"a": OF_ALICE}
