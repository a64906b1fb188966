"""Who may renew and end a token, and how long it lasts: as Kafka decides it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import ApiError, ErrorCode
from sparklog.security.delegation.token import DelegationToken, TokenRules, has_ended
from sparklog.security.principal import Principal

ALICE, BOB, CAROL, DAVE = (Principal("User", each) for each in ("alice", "bob", "carol", "dave"))
RULES = TokenRules(max_lifetime_ms=7000, expiry_time_ms=1000)
TOKEN = DelegationToken("id", ALICE, BOB, (CAROL,), issued_ms=100_000, max_ms=107_000, expires_ms=101_000)
LONG = (1 << 63) - 1


def code_of(attempt, *asked):
    with pytest.raises(ApiError) as refused:
        attempt(*asked)
    return refused.value.code


@pytest.mark.parametrize(
    ("lifetime_ms", "max_ms", "expires_ms"),
    [
        (-1, 107_000, 101_000),
        (0, 107_000, 101_000),
        (5000, 105_000, 101_000),
        (500, 100_500, 100_500),
        (LONG, 107_000, 101_000),
    ],
)
def test_a_new_token_lasts_as_long_as_it_is_asked_to_and_may(lifetime_ms, max_ms, expires_ms):
    made = RULES.issued("id", ALICE, BOB, [CAROL], lifetime_ms, 100_000)
    assert made == replace(TOKEN, max_ms=max_ms, expires_ms=expires_ms)


@pytest.mark.parametrize("by", [ALICE, CAROL], ids=str)
def test_owner_and_renewers_let_it_last_longer_up_to_its_maximum(by):
    assert RULES.renewed(TOKEN, by, -1, 100_900).expires_ms == 101_900
    assert RULES.renewed(TOKEN, by, 3000, 100_900).expires_ms == 103_900
    assert RULES.renewed(TOKEN, by, 0, 100_900).expires_ms == 100_900
    assert RULES.renewed(TOKEN, by, LONG, 100_900).expires_ms == 107_000


@pytest.mark.parametrize("by", [ALICE, CAROL], ids=str)
def test_owner_and_renewers_let_it_end_now_or_later(by):
    assert RULES.ended(TOKEN, by, -1, 100_500) is None
    assert RULES.ended(TOKEN, by, 0, 100_500).expires_ms == 100_500
    assert RULES.ended(TOKEN, by, 5000, 100_500).expires_ms == 105_500
    assert RULES.ended(TOKEN, by, LONG, 100_500).expires_ms == 107_000


@pytest.mark.parametrize("by", [BOB, DAVE, Principal("Group", "alice")], ids=str)
@pytest.mark.parametrize("rule", [RULES.renewed, RULES.ended])
@pytest.mark.parametrize("now_ms", [100_000, 200_000])
def test_nobody_else_changes_it_not_even_who_has_asked_for_it(by, rule, now_ms):
    assert code_of(rule, TOKEN, by, -1, now_ms) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


def test_a_token_that_has_ended_is_not_renewed_and_may_go_at_once():
    assert RULES.renewed(TOKEN, ALICE, -1, 101_000)
    assert code_of(RULES.renewed, TOKEN, ALICE, -1, 101_001) is ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert code_of(RULES.ended, TOKEN, ALICE, 0, 101_001) is ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert RULES.ended(TOKEN, ALICE, -1, 101_001) is None


def test_it_ends_with_its_maximum_whatever_its_expiry_says():
    forged = replace(TOKEN, expires_ms=LONG)
    assert forged.ends_ms == 107_000
    assert not has_ended(forged, 107_000)
    assert code_of(RULES.renewed, forged, ALICE, -1, 107_001) is ErrorCode.DELEGATION_TOKEN_EXPIRED


def test_it_concerns_who_may_see_it():
    assert [TOKEN.concerns(each) for each in (ALICE, BOB, CAROL, DAVE)] == [True, True, True, False]
    assert str(TOKEN) == "delegation token id of User:alice, requested by User:bob"


@given(st.integers(-10, 20_000), st.lists(st.tuples(st.integers(-1, 9000), st.integers(0, 2000))))
def test_no_renewal_makes_it_last_beyond_its_maximum(lifetime_ms, renewals):
    now_ms = 100_000
    token = RULES.issued("id", ALICE, ALICE, [], lifetime_ms, now_ms)
    for period_ms, passed_ms in renewals:
        now_ms += passed_ms
        if has_ended(token, now_ms):
            assert code_of(RULES.renewed, token, ALICE, period_ms, now_ms) is ErrorCode.DELEGATION_TOKEN_EXPIRED
        else:
            token = RULES.renewed(token, ALICE, period_ms, now_ms)
        assert token.ends_ms <= token.max_ms <= 100_000 + RULES.max_lifetime_ms
