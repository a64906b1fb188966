"""Where a client has its token from, and how long it keeps it."""

import json
from base64 import b64decode

import jwt
import pytest

from sparklog.errors import AuthenticationFailed
from sparklog.security.oauth.http import EndpointFailed
from sparklog.security.oauth.login import ClientCredentials, Grant, KeptToken, TokenFile
from sparklog.testing.clock import ManualClock


def test_a_file_is_read_each_time(tmp_path):
    path = tmp_path / "token"
    read = TokenFile(path)
    with pytest.raises(AuthenticationFailed, match="No such file"):
        read()
    for token in ("one", "two"):
        path.write_text(f"{token}\n")
        assert read() == token
    path.write_bytes(b"\xff")
    with pytest.raises(AuthenticationFailed, match="no text"):
        read()


def asking(answer, **more):
    sent = []

    def post(body, headers):
        sent.append((body, headers))
        return answer

    return ClientCredentials("a b", "s%c:t", post=post, clock=ManualClock(1_000_000), scope="", **more), sent


def test_the_issuer_is_asked_by_id_and_secret():
    ask, sent = asking(json.dumps({"access_token": " t ", "expires_in": 60}).encode())
    assert ask() == Grant("t", 60_000)
    body, headers = sent[0]
    assert body == b"grant_type=client_credentials"
    assert b64decode(headers["Authorization"].removeprefix("Basic ")) == b"a b:s%c:t"
    assert "s%c:t" not in repr(ask)


def test_id_and_secret_may_be_encoded_as_the_rfc_has_it():
    ask, sent = asking(b'{"access_token":"t"}', is_url_encoded=True)
    ask()
    assert b64decode(sent[0][1]["Authorization"].removeprefix("Basic ")) == b"a+b:s%25c%3At"


def test_a_scope_is_asked_for():
    sent = []
    ask = ClientCredentials("i", "s", "read write", lambda body, _: sent.append(body) or b'{"access_token":"t"}', None)
    ask()
    assert sent == [b"grant_type=client_credentials&scope=read+write"]


def test_a_token_may_say_itself_when_it_ends():
    token = jwt.encode({"exp": 2000}, "k" * 32, "HS256")
    assert asking(json.dumps({"access_token": token}).encode())[0]() == Grant(token, 1_000_000)
    assert asking(b'{"access_token":"opaque","expires_in":0}')[0]() == Grant("opaque", None)


@pytest.mark.parametrize("answer", [b"", b"[]", b"{}", b'{"access_token":5}', b'{"error":"hidden"}', b"\xff"])
def test_an_answer_without_a_token_is_refused_and_not_told(answer):
    with pytest.raises(AuthenticationFailed, match="no access_token") as caught:
        asking(answer)[0]()
    assert "hidden" not in str(caught.value)


class Issuer:
    def __init__(self, clock, life_ms=100_000):
        self.clock, self.life_ms, self.times, self.failures = clock, life_ms, 0, []

    def __call__(self):
        self.times += 1
        if self.failures:
            raise self.failures.pop(0)
        return Grant(f"token-{self.times}", self.life_ms)


def test_a_token_is_kept_for_most_of_its_life():
    clock = ManualClock()
    kept = KeptToken(Issuer(clock), clock)
    assert kept() == "token-1"
    clock.advance(79.9)
    assert kept() == "token-1"
    clock.advance(0.2)
    assert kept() == "token-2"


@pytest.mark.parametrize("step_s", [-3600, 3600])
def test_a_clock_that_is_set_keeps_no_token_beyond_its_life(step_s):
    clock = ManualClock()
    issuer = Issuer(clock)
    kept = KeptToken(issuer, clock)
    assert kept() == "token-1"
    clock.set_wall(clock.now_ms() + step_s * 1000)
    clock.advance(80.1)
    assert kept() == "token-2"
    clock.advance(79.8)
    assert kept() == "token-2"
    issuer.failures = [EndpointFailed("HTTP status 401", is_transient=False) for _ in range(9)]
    clock.set_wall(clock.now_ms() - 3_600_000)
    clock.advance(21)
    with pytest.raises(EndpointFailed):
        kept()


def test_a_machine_that_has_slept_keeps_no_token_beyond_its_life():
    """The monotonic clock has slept too."""
    clock = ManualClock()
    kept = KeptToken(Issuer(clock), clock)
    assert kept() == "token-1"
    clock.set_wall(clock.now_ms() + 80_100)
    assert kept() == "token-2"


def test_a_token_of_unknown_life_is_asked_for_each_time():
    clock = ManualClock()
    kept = KeptToken(Issuer(clock, None), clock)
    assert [kept(), kept()] == ["token-1", "token-2"]


def test_an_issuer_that_fails_is_asked_again_for_a_while():
    clock = ManualClock()
    issuer = Issuer(clock)
    issuer.failures = [EndpointFailed("busy", is_transient=True) for _ in range(3)]
    assert KeptToken(issuer, clock)() == "token-4"
    assert clock.monotonic() == pytest.approx(0.1 + 0.2 + 0.4)
    issuer.failures = [EndpointFailed("busy", is_transient=True) for _ in range(100)]
    with pytest.raises(EndpointFailed):
        KeptToken(issuer, clock)()
    assert clock.monotonic() < 12


def test_an_issuer_that_refuses_is_not_asked_again():
    clock = ManualClock()
    issuer = Issuer(clock)
    issuer.failures = [EndpointFailed("HTTP status 401", is_transient=False)]
    with pytest.raises(EndpointFailed):
        KeptToken(issuer, clock)()
    assert (issuer.times, clock.monotonic()) == (1, 0)


def test_the_old_token_goes_on_while_it_is_valid():
    clock = ManualClock()
    issuer = Issuer(clock)
    kept = KeptToken(issuer, clock)
    assert kept() == "token-1"
    issuer.failures = [EndpointFailed("HTTP status 401", is_transient=False) for _ in range(9)]
    clock.advance(90)
    assert kept() == "token-1"
    clock.advance(10)
    with pytest.raises(EndpointFailed):
        kept()
