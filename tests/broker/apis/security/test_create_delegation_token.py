"""CreateDelegationToken: for whom a token may be asked for, and what is answered."""

import logging

import pytest
from broker.security.token_store import ALICE, BOB, CAROL, KEY, NOW_MS, FakeStore, asked, caller

from sparklog.broker.apis.security import create_delegation_token
from sparklog.errors import ErrorCode
from sparklog.protocol.messages import CreateDelegationTokenRequest
from sparklog.security.delegation.token import DelegationToken
from sparklog.security.principal import Principal
from sparklog.testing.authorizer import ListedRights


@pytest.fixture
def store():
    return FakeStore()


def request(*renewers, owner=None, lifetime_ms=-1):
    renewer = CreateDelegationTokenRequest.CreatableRenewers
    return CreateDelegationTokenRequest(
        owner_principal_type=owner and owner.kind,
        owner_principal_name=owner and owner.name,
        renewers=[renewer(principal_type=each.kind, principal_name=each.name) for each in renewers],
        max_lifetime_ms=lifetime_ms,
    )


def create(message, **how):
    return asked(create_delegation_token, message, **how)


def test_a_token_is_the_callers_own(store, caplog):
    with caplog.at_level(logging.INFO, "sparklog.audit"):
        answer = create(request(CAROL), store=store, authorizer=ListedRights())
    (token,) = store.tokens.values()
    assert token == DelegationToken(answer.token_id, ALICE, ALICE, (CAROL,), NOW_MS, NOW_MS + 7000, NOW_MS + 1000)
    assert answer.error_code == ErrorCode.NONE
    assert (answer.principal_type, answer.principal_name) == ALICE
    assert (answer.token_requester_principal_type, answer.token_requester_principal_name) == ALICE
    assert (answer.issue_timestamp_ms, answer.expiry_timestamp_ms) == (NOW_MS, NOW_MS + 1000)
    assert answer.max_timestamp_ms == NOW_MS + 7000
    assert answer.hmac == KEY.hmac_of(token.id)
    (line,) = caplog.messages
    assert line.startswith(f"created: 'delegation token {token.id} of User:alice, requested by User:alice' by 'User:al")
    assert "hmac" not in line


def test_a_token_of_another_needs_a_right(store):
    rights = ListedRights("CREATE_TOKENS user User:bob")
    answer = create(request(owner=BOB, lifetime_ms=10), store=store, authorizer=rights)
    (token,) = store.tokens.values()
    assert (token.owner, token.requester, token.max_ms) == (BOB, ALICE, NOW_MS + 10)
    assert (answer.principal_name, answer.token_requester_principal_name) == ("bob", "alice")
    refused = create(request(owner=CAROL), store=store, authorizer=rights)
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (refused.principal_name, refused.token_requester_principal_name) == ("carol", "alice")
    assert (refused.token_id, refused.hmac, refused.max_timestamp_ms) == ("", b"", -1)
    assert len(store.tokens) == 1


@pytest.mark.parametrize(
    ("message", "by", "code"),
    [
        (request(owner=BOB), caller(token_id="t"), ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
        (request(Principal("Group", "g")), caller(), ErrorCode.INVALID_PRINCIPAL_TYPE),
        (request(owner=Principal("", "bob")), caller(), ErrorCode.INVALID_PRINCIPAL_TYPE),
    ],
)
def test_what_may_not_be_asked_for_is_refused(store, message, by, code):
    assert create(message, store=store, by=by).error_code == code
    assert store.tokens == {}


def test_without_a_key_there_are_no_tokens():
    assert create(request()).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_a_silent_zookeeper_is_told_of(store):
    class Silent(FakeStore):
        def change(self, token_id, change):
            self.failures = 1
            return super().change(token_id, change)

    assert create(request(), store=Silent()).error_code == ErrorCode.REQUEST_TIMED_OUT
