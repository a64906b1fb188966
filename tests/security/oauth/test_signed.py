"""Signed tokens: only those of a key of the issuer, while keys come and go."""

import json

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from sparklog.errors import AuthenticationFailed, ConfigError
from sparklog.security.oauth.claims import ClaimRules
from sparklog.security.oauth.http import EndpointFailed
from sparklog.security.oauth.signed import IssuerKeys, KeyRefresher, SignedValidator
from sparklog.security.sasl.oauthbearer import TokenRefused, ValidToken
from sparklog.testing.clock import ManualClock
from sparklog.testing.eventually import eventually

RSA, OTHER = (rsa.generate_private_key(65537, 2048) for _ in range(2))
EC, ED = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
CLAIMS = {"sub": "alice", "iat": 1000, "exp": 2000}


def public(key, key_id, **more):
    algorithm = RSAAlgorithm if key in (RSA, OTHER) else ECAlgorithm if key is EC else OKPAlgorithm
    return algorithm.to_jwk(key.public_key(), as_dict=True) | ({} if key_id is None else {"kid": key_id}) | more


def key_set(*keys):
    return json.dumps({"keys": list(keys)}).encode()


class Issuer:
    def __init__(self, *keys):
        self.keys, self.times, self.error = keys, 0, None

    def __call__(self):
        self.times += 1
        if self.error:
            raise self.error
        return key_set(*self.keys)


def validator(keys, clock=None, rules=None):
    return SignedValidator(keys, rules or ClaimRules(needs_issue_time=True), clock or ManualClock(1_500_000))


def signed(key, algorithm, key_id=None, claims=CLAIMS):
    return jwt.encode(claims, key, algorithm, headers={} if key_id is None else {"kid": key_id})


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [(RSA, "RS256"), (RSA, "RS512"), (RSA, "PS256"), (EC, "ES256"), (ED, "EdDSA")],
    ids=lambda each: str(each)[:5],
)
@pytest.mark.parametrize("key_id", ["one", None])
def test_what_a_key_of_the_issuer_has_signed_is_believed(key, algorithm, key_id):
    keys = IssuerKeys(Issuer(public(OTHER, "two"), public(key, "one")), ManualClock())
    assert validator(keys)(signed(key, algorithm, key_id)) == ValidToken("alice", 2_000_000)
    with pytest.raises(TokenRefused, match="no key"):
        validator(keys)(signed(key, algorithm, "two"))


def test_what_is_signed_by_others_or_not_at_all_is_refused():
    keys = IssuerKeys(Issuer(public(RSA, "one")), ManualClock())
    header, claims, signature = signed(RSA, "RS256", "one").split(".")
    forged = signed(RSA, "RS256", "one", CLAIMS | {"sub": "admin"}).split(".")[1]
    for token in (
        signed(OTHER, "RS256", "one"),
        signed(OTHER, "RS256"),
        f"{header}.{forged}.{signature}",
        f"{header}.{claims}.",
        f"{header}.{claims}",
        jwt.encode(CLAIMS, None, "none"),
        jwt.encode(CLAIMS, None, "none", headers={"kid": "one"}),
        "",
        "a.b.c",
        "\x00",
    ):
        with pytest.raises(TokenRefused):
            validator(keys)(token)


def test_a_public_key_is_no_secret_to_sign_with():
    """Whoever knows the public key must not sign with it by an algorithm that has one key for both."""
    shared = {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA", "kid": "shared", "alg": "HS256"}
    keys = IssuerKeys(Issuer(public(RSA, "one"), shared), ManualClock())
    secret = b"secret-secret-secret-secret-secret"
    for key_id in ("one", "shared", None):
        with pytest.raises(TokenRefused, match="no key"):
            validator(keys)(jwt.encode(CLAIMS, secret, "HS256", headers={} if key_id is None else {"kid": key_id}))


def test_what_is_signed_must_be_true_as_well():
    keys = IssuerKeys(Issuer(public(RSA, "one")), ManualClock())
    for claims, complaint in (({"exp": 1500}, "expired"), ({"iat": 1501}, "future"), ({"sub": ""}, "nobody")):
        with pytest.raises(TokenRefused, match=complaint):
            validator(keys)(signed(RSA, "RS256", claims=CLAIMS | claims))


@pytest.mark.parametrize("levels", [900, 5_000, 100_000])
def test_a_header_of_very_many_levels_is_refused(levels):
    header = jwt.utils.base64url_encode(b"[" * levels).decode()
    with pytest.raises(TokenRefused):
        validator(IssuerKeys(Issuer(public(RSA, "one")), ManualClock()))(f"{header}.e30.x")


def test_a_key_that_is_new_is_asked_for_at_most_once_in_a_while():
    clock, issuer = ManualClock(), Issuer(public(RSA, "one"))
    keys = IssuerKeys(issuer, clock, least_pause_s=10.0)
    issuer.keys = (public(OTHER, "two"),)
    token = signed(OTHER, "RS256", "two")
    for passed, is_wanted in ((0, False), (9.9, False), (0.1, True)):
        clock.advance(passed)
        with pytest.raises(TokenRefused):
            validator(keys)(token)
        assert keys.wanted.is_set() is is_wanted
    keys.refresh()
    assert not keys.wanted.is_set()
    assert validator(keys)(token).name == "alice"
    with pytest.raises(TokenRefused):
        validator(keys)(signed(RSA, "RS256", "one"))
    assert not keys.wanted.is_set()


@pytest.mark.parametrize("error", [OSError("gone"), EndpointFailed("away", is_transient=True)])
def test_keys_that_cannot_be_read_again_stay(error, caplog):
    issuer = Issuer(public(RSA, "one"))
    keys = IssuerKeys(issuer, ManualClock())
    issuer.error = error
    keys.refresh()
    assert "stay as they are" in caplog.text
    assert validator(keys)(signed(RSA, "RS256", "one")).name == "alice"


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[]", b'{"keys":[]}', b'{"keys":[{"kty":"what"}]}', b"\xff", b'{"keys":5}']
)
def test_without_keys_there_is_no_start(text):
    with pytest.raises(ConfigError, match="jwks"):
        IssuerKeys(lambda: text, ManualClock())


def test_without_an_issuer_there_is_no_start():
    for error in (OSError("gone"), EndpointFailed("away", is_transient=True)):
        issuer = Issuer()
        issuer.error = error
        with pytest.raises(ConfigError, match=str(error)):
            IssuerKeys(issuer, ManualClock())
    assert issubclass(EndpointFailed, AuthenticationFailed)


def test_the_thread_reads_when_keys_are_wanted_and_ends():
    clock, issuer = ManualClock(), Issuer(public(RSA, "one"))
    keys = IssuerKeys(issuer, clock)
    refresher = KeyRefresher(keys, every_s=3600.0)
    issuer.keys = (public(OTHER, "two"),)
    clock.advance(60)
    keys.find("two", "RS256")
    eventually(lambda: keys.find("two", "RS256"))
    refresher.close()
    assert not refresher._thread.is_alive()


def test_the_thread_reads_from_time_to_time():
    issuer = Issuer(public(RSA, "one"))
    refresher = KeyRefresher(IssuerKeys(issuer, ManualClock()), every_s=0.001)
    eventually(lambda: issuer.times > 3)
    refresher.close()


def test_the_thread_outlives_keys_of_which_nothing_can_be_made(caplog):
    issuer = Issuer(public(RSA, "one"))
    refresher = KeyRefresher(IssuerKeys(issuer, ManualClock()), every_s=0.001)
    issuer.error = RecursionError("too many levels")
    eventually(lambda: "too many levels" in caplog.text)
    issuer.error, read = None, issuer.times
    eventually(lambda: issuer.times > read + 3)
    refresher.close()
