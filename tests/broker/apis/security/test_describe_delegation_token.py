"""DescribeDelegationToken: who sees which tokens."""

from dataclasses import replace

import pytest
from broker.security.token_store import ALICE, BOB, CAROL, KEY, OF_ALICE, FakeStore, asked, caller

from sparklog.broker.apis.security import describe_delegation_token
from sparklog.errors import ErrorCode
from sparklog.protocol.messages import DescribeDelegationTokenRequest
from sparklog.security.principal import Principal
from sparklog.testing.authorizer import ListedRights

DAVE = Principal("User", "dave")
OF_BOB = replace(OF_ALICE, id="b", owner=BOB, renewers=(), requester=CAROL)


@pytest.fixture
def store():
    return FakeStore(OF_ALICE, OF_BOB)


def describe(store, by, owners=None, *allowed):
    owner = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
    named = None if owners is None else [owner(principal_type=each.kind, principal_name=each.name) for each in owners]
    message = DescribeDelegationTokenRequest(owners=named)
    return asked(describe_delegation_token, message, by=by, store=store, authorizer=ListedRights(*allowed))


def ids(answer):
    assert answer.error_code == ErrorCode.NONE
    return {each.token_id for each in answer.tokens}


@pytest.mark.parametrize(
    ("by", "owners", "allowed", "seen"),
    [
        (ALICE, None, (), {"a"}),
        (CAROL, None, (), {"a", "b"}),
        (DAVE, None, (), set()),
        (DAVE, None, ("DESCRIBE delegation token a",), {"a"}),
        (DAVE, None, ("DESCRIBE_TOKENS user User:bob",), {"b"}),
        (CAROL, (BOB,), (), {"b"}),
        (CAROL, (), (), set()),
        (CAROL, (DAVE,), (), set()),
        (DAVE, (CAROL,), ("DESCRIBE_TOKENS user User:bob",), {"b"}),
        (ALICE, (BOB,), (), set()),
    ],
)
def test_a_token_is_seen_by_whom_it_concerns_and_who_may(store, by, owners, allowed, seen):
    assert ids(describe(store, caller(by), owners, *allowed)) == seen


def test_all_of_it_is_told(store):
    (found,) = describe(store, caller(ALICE)).tokens
    assert (found.principal_type, found.principal_name) == ALICE
    assert (found.token_requester_principal_type, found.token_requester_principal_name) == ALICE
    assert [(each.principal_type, each.principal_name) for each in found.renewers] == [CAROL]
    times = found.issue_timestamp, found.max_timestamp, found.expiry_timestamp
    assert times == (OF_ALICE.issued_ms, OF_ALICE.max_ms, OF_ALICE.expires_ms)
    assert found.hmac == KEY.hmac_of("a")


def test_whoever_may_not_ask_is_told_why(store):
    refused = describe(store, caller(token_id="a"))
    assert (refused.error_code, refused.tokens) == (ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, [])
    refused = describe(None, caller())
    assert (refused.error_code, refused.tokens) == (ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, [])
