"""What a token must say (``ValidatorAccessTokenValidatorTest.java`` and jose4j's rules)."""

import pytest

from sparklog.security.oauth.claims import ClaimRules
from sparklog.security.sasl.oauthbearer import TokenRefused, ValidToken

GOOD = {"sub": "alice", "exp": 200, "iat": 100}
NOW_MS = 150_000


def test_what_is_said_is_believed():
    assert ClaimRules().believe(GOOD, NOW_MS) == ValidToken("alice", 200_000)
    assert ClaimRules("email").believe(GOOD | {"email": " bob "}, NOW_MS).name == "bob"
    assert ClaimRules().believe({"sub": "alice", "exp": 150.5}, NOW_MS).expires_ms == 150_500


@pytest.mark.parametrize("claim", ["sub", "exp"])
@pytest.mark.parametrize("value", [None, True, [], {}, "", " ", float("nan"), -1])
def test_name_and_end_must_be_told(claim, value):
    with pytest.raises(TokenRefused, match=claim):
        ClaimRules().believe(GOOD | {claim: value}, NOW_MS)


def test_a_token_counts_in_its_time_alone_give_or_take_the_skew():
    for skew_ms in (0, 10_000):
        rules = ClaimRules(clock_skew_ms=skew_ms)
        assert rules.believe(GOOD, 199_999 + skew_ms)
        assert rules.believe(GOOD, 100_000 - skew_ms)
        with pytest.raises(TokenRefused, match="expired"):
            rules.believe(GOOD, 200_000 + skew_ms)
        for claim in ("iat", "nbf"):
            with pytest.raises(TokenRefused, match="future"):
                rules.believe(GOOD | {claim: 160}, 159_999 - skew_ms)
    with pytest.raises(TokenRefused, match="before it was issued"):
        ClaimRules(clock_skew_ms=60_000).believe(GOOD | {"iat": 200}, NOW_MS)


def test_the_time_of_issue_may_be_needed():
    claims = {"sub": "alice", "exp": 200}
    assert ClaimRules().believe(claims, NOW_MS)
    with pytest.raises(TokenRefused, match="iat"):
        ClaimRules(needs_issue_time=True).believe(claims, NOW_MS)


def test_the_issuer_must_be_the_one_expected():
    rules = ClaimRules(issuer="https://a")
    assert rules.believe(GOOD | {"iss": "https://a"}, NOW_MS)
    for claims in (GOOD, GOOD | {"iss": "https://a/"}):
        with pytest.raises(TokenRefused, match="iss"):
            rules.believe(claims, NOW_MS)


@pytest.mark.parametrize(
    ("expected", "told", "is_good"),
    [
        (None, ["a"], True),
        (set(), None, True),
        (set(), "a", False),
        ({"a", "b"}, "a", True),
        ({"a", "b"}, ["c", "b"], True),
        ({"a", "b"}, ["c"], False),
        ({"a"}, None, False),
        ({"a"}, 5, False),
        ({"a"}, ["a", ""], False),
    ],
)
def test_the_audience_must_be_one_of_those_expected(expected, told, is_good):
    rules = ClaimRules(audiences=None if expected is None else frozenset(expected))
    if is_good:
        assert rules.believe(GOOD | {"aud": told}, NOW_MS)
    else:
        with pytest.raises(TokenRefused, match="aud"):
            rules.believe(GOOD | {"aud": told}, NOW_MS)


def test_scopes_must_be_there_that_are_required():
    rules = ClaimRules(required_scopes=frozenset({"read", "write"}))
    for told in ("read write more", ["write", "read"], ["read write"]):
        assert rules.believe(GOOD | {"scope": told}, NOW_MS)
    with pytest.raises(TokenRefused) as caught:
        rules.believe(GOOD | {"scope": "read"}, NOW_MS)
    assert (caught.value.status, caught.value.scope) == ("insufficient_scope", "read write")
    with pytest.raises(TokenRefused, match="scp"):
        ClaimRules(scope_claim="scp").believe(GOOD | {"scp": [1]}, NOW_MS)
