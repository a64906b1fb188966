"""Tokens that nobody has signed, as Kafka's own handlers make and take them."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest

from sparklog.errors import ConfigError
from sparklog.security.oauth.unsecured import UnsecuredLogin, UnsecuredValidator, unsecured_extensions
from sparklog.security.sasl.oauthbearer import TokenRefused, ValidToken
from sparklog.testing.clock import ManualClock

CLOCK = ManualClock(1_000_000)


def claims_of(token):
    part = token.split(".")[1]
    return json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def test_what_the_login_claims_the_validator_believes():
    clock = ManualClock(1_000_000)
    login = UnsecuredLogin({"unsecuredLoginStringClaim_sub": "alice", "unsecuredLoginLifetimeSeconds": "60"}, clock)
    validator = UnsecuredValidator({"unsecuredValidatorAllowableClockSkewMs": "500"}, clock)
    token = login()
    assert validator(token) == ValidToken("alice", 1_060_000)
    clock.advance(60.4)
    assert validator(token).name == "alice"
    clock.advance(0.2)
    with pytest.raises(TokenRefused, match="expired"):
        validator(token)
    assert validator(login()).name == "alice"


def test_claims_have_the_kinds_of_their_options():
    options = {
        "unsecuredLoginPrincipalClaimName": "user",
        "unsecuredLoginStringClaim_user": "alice",
        "unsecuredLoginNumberClaim_level": "2.5",
        "unsecuredLoginListClaim_scope": "|read|write",
        "unsecuredLoginListClaim_none": "",
        "unsecuredLoginExtension_traceId": "7",
    }
    assert claims_of(UnsecuredLogin(options, CLOCK)()) == {
        "user": "alice",
        "level": 2.5,
        "scope": ["read", "write"],
        "none": [],
        "iat": 1000,
        "exp": 4600,
    }
    assert unsecured_extensions(options) == {"traceId": "7"}


def test_a_scope_that_is_required_must_be_claimed():
    validator = UnsecuredValidator(
        {"unsecuredValidatorRequiredScope": "read", "unsecuredValidatorScopeClaimName": "scp"}, CLOCK
    )
    options = {"unsecuredLoginStringClaim_sub": "alice"}
    assert validator(UnsecuredLogin(options | {"unsecuredLoginStringClaim_scp": "write read"}, CLOCK)())
    with pytest.raises(TokenRefused) as caught:
        validator(UnsecuredLogin(options, CLOCK)())
    assert caught.value.status == "insufficient_scope"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"unsecuredLoginStringClaim_sub": ""},
        {"unsecuredLoginNumberClaim_sub": "5"},
        {"unsecuredLoginStringClaim_sub": "alice", "unsecuredLoginNumberClaim_exp": "5"},
        {"unsecuredLoginStringClaim_sub": "alice", "unsecuredLoginNumberClaim_x": "five"},
        {"unsecuredLoginStringClaim_sub": "alice", "unsecuredLoginLifetimeSeconds": "-5"},
    ],
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError):
        UnsecuredLogin(options, CLOCK)


def test_a_skew_that_makes_no_sense_is_refused():
    with pytest.raises(ConfigError, match="whole number"):
        UnsecuredValidator({"unsecuredValidatorAllowableClockSkewMs": "1.5"}, CLOCK)


def encoded(value):
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a",
        "..",
        f"{encoded({'alg': 'none'})}.{encoded([])}.",
        f"{encoded({'alg': 'none'})}.!.",
        f"{encoded({'alg': 'HS256'})}.{encoded({'sub': 'a', 'exp': 2000})}.",
        f"{encoded({'alg': 'none'})}.{encoded({'sub': 'a', 'exp': 2000})}.sig",
        f"{encoded({'alg': 'none'})}.{encoded({'sub': 'a', 'exp': 2000})}..",
        f"{encoded({})}.{encoded({'sub': 'a', 'exp': 2000})}.",
    ],
)
def test_what_is_no_unsigned_token_is_refused(token):
    with pytest.raises(TokenRefused):
        UnsecuredValidator({}, CLOCK)(token)
