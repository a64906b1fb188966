"""What stands before the requests of a listener with SASL."""

import asyncio
import logging

import pytest

from sparklog.errors import AuthenticationFailed, ErrorCode, RemoteProtocolError
from sparklog.net.authentication import SaslGate, SaslTerms
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.connection import ClientConnection
from sparklog.protocol.messages import SaslAuthenticateRequest, SaslHandshakeRequest, decode_response, encode
from sparklog.security.caller import Caller
from sparklog.security.principal import ANONYMOUS, Principal
from sparklog.security.sasl.mechanism import Authenticated
from sparklog.testing.clock import ManualClock

NOW_MS = 1_700_000_000_000


class Word:
    """A mechanism of two steps: ``NAME`` and, after ``and?``, the word."""

    def __init__(self, ends_ms=None, token_id=None):
        self.token_id = token_id
        self.name = None
        self.authenticated = None
        self.ends_ms = ends_ms

    def respond(self, token):
        if self.name is None:
            self.name = token.decode()
            return b"and?"
        if token != b"sesame":
            raise AuthenticationFailed("not the word")
        self.authenticated = Authenticated(Principal("User", self.name), self.ends_ms, self.token_id)
        return b"welcome"


class Peer:
    """A caller at a gate, and what its connection was told."""

    def __init__(self, **terms):
        self.clock = ManualClock(NOW_MS)
        self.told = []
        self.refused = 0
        self.warned = []
        self.caller = Caller("10.0.0.1", "CLIENTS", connection=self)
        self.ends_ms = self.token_id = None
        begin = {"WORD": lambda: Word(self.ends_ms, self.token_id), "OTHER": Word}
        self.gate = SaslGate(
            SaslTerms(begin, self.clock, self.warned.append, **{"failure_delay_s": 0, **terms}), self.caller
        )
        self._client = ClientConnection("c")

    def admit(self):
        self.told.append("admit")

    def refuse(self):
        self.refused += 1

    def drain(self):
        self.told.append("drain")

    async def send(self, frame):
        assert self.gate.takes(memoryview(frame))
        served = self.gate.serve(memoryview(frame))
        if asyncio.isfuture(served) or asyncio.iscoroutine(served):
            served = await served
            await asyncio.sleep(0)
        return None if served is None else b"".join(map(bytes, served))[4:]

    def frame(self, api, version, message):
        chunks = self._client.request(api, version, [encode(message, version)])
        return b"".join(map(bytes, chunks))[4:]

    async def ask(self, api, version, message):
        answer = await self.send(self.frame(api, version, message))
        _, _, body = self._client.response(memoryview(answer))
        return decode_response(api, version, body)

    async def agree(self, mechanism="WORD", version=1):
        return await self.ask(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism=mechanism))

    async def show(self, token, version=2):
        return await self.ask(ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=token))

    async def pass_gate(self, name=b"alice"):
        assert (await self.agree()).error_code == 0
        assert (await self.show(name)).auth_bytes == b"and?"
        return await self.show(b"sesame")


OTHERS = [each for each in ApiKey if each not in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)]


def opening(api):
    return memoryview(api.value.to_bytes(2, "big") + b"\0\0\0\0\0\x01\0\x02me")


def run(test, **terms):
    async def limited():
        async with asyncio.timeout(60):
            await test(Peer(**terms))

    asyncio.run(limited())


@pytest.mark.parametrize("api", OTHERS, ids=str)
def test_before_the_end_of_it_nothing_is_served_but_the_versions(api):
    peer = Peer()
    if api is ApiKey.API_VERSIONS:
        assert not peer.gate.takes(opening(api))
        return
    assert peer.gate.takes(opening(api))
    with pytest.raises(RemoteProtocolError, match="before it has authenticated"):
        peer.gate.serve(opening(api))
    assert peer.caller.principal == ANONYMOUS


def test_who_proves_it_is_who_it_says():
    async def test(peer):
        answer = await peer.pass_gate()
        assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"welcome", 0)
        assert (peer.caller.principal, peer.told) == (Principal("User", "alice"), ["admit"])
        assert not any(peer.gate.takes(opening(api)) for api in ApiKey)

    run(test)


def test_old_clients_send_bare_tokens():
    async def test(peer):
        assert (await peer.agree(version=0)).mechanisms == ["OTHER", "WORD"]
        assert await peer.send(b"alice") == b"and?"
        assert peer.caller.principal == ANONYMOUS
        assert await peer.send(b"sesame") == b"welcome"
        assert peer.caller.principal == Principal("User", "alice")
        assert not peer.gate.takes(opening(ApiKey.METADATA))

    run(test)


def test_a_wrong_word_is_told_once_and_the_connection_drained():
    async def test(peer):
        await peer.agree()
        await peer.show(b"alice")
        answer = await peer.show(b"guess")
        assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, "not the word")
        assert (peer.told, peer.caller.principal) == (["drain"], ANONYMOUS)
        assert peer.warned == ["authentication of 10.0.0.1 on CLIENTS failed: not the word"]
        for late in (peer.frame(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"sesame")), b"", b"x"):
            assert await peer.send(late) is None, "a reset would tell before the time that it has failed"
        assert peer.caller.principal == ANONYMOUS

    run(test)


def test_a_peer_that_has_failed_is_read_no_further_from_then_on():
    async def test(peer):
        await peer.agree()
        await peer.show(b"alice")
        frame = peer.frame(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"guess"))
        answering = asyncio.ensure_future(peer.gate.serve(memoryview(frame)))
        async with asyncio.timeout(60):
            while not peer.told:
                await asyncio.sleep(0)
        assert (peer.told, answering.done()) == (["drain"], False)
        answering.cancel()

    run(test, failure_delay_s=3600)


def test_a_wrong_bare_word_is_answered_by_nothing():
    async def test(peer):
        await peer.agree(version=0)
        await peer.send(b"alice")
        assert await peer.send(b"guess") is None
        assert peer.told == ["drain"]

    run(test)


def test_a_mechanism_that_is_not_offered_is_refused_with_those_that_are():
    async def test(peer):
        answer = await peer.agree("GSSAPI")
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["OTHER", "WORD"])
        assert peer.told == ["drain"]

    run(test)


def test_tokens_come_after_the_handshake():
    async def test(peer):
        assert (await peer.show(b"alice")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert peer.told == ["drain"]

    run(test)


def test_versions_come_before_it():
    async def test(peer):
        await peer.agree()
        with pytest.raises(RemoteProtocolError):
            await peer.send(opening(ApiKey.API_VERSIONS))

    run(test)


def test_a_session_ends_with_its_lifetime_unless_it_is_renewed():
    async def test(peer):
        assert (await peer.pass_gate()).session_lifetime_ms == 5000
        peer.clock.advance(4.9)
        assert not peer.gate.takes(opening(ApiKey.METADATA))
        assert (await peer.pass_gate()).session_lifetime_ms == 5000
        peer.clock.advance(4.9)
        assert not peer.gate.takes(opening(ApiKey.METADATA))
        peer.clock.advance(0.2)
        with pytest.raises(RemoteProtocolError, match="has expired"):
            peer.gate.takes(opening(ApiKey.METADATA))
        assert (await peer.pass_gate()).error_code == 0  # Kafka lets it authenticate again even then
        assert peer.told == ["admit"]

    run(test, max_reauth_ms={"WORD": 5000})


def test_credentials_that_end_earlier_end_the_session():
    async def test(peer):
        peer.ends_ms = NOW_MS + 3000
        assert (await peer.pass_gate()).session_lifetime_ms == 3000
        peer.clock.advance(3.001)
        with pytest.raises(RemoteProtocolError, match="has expired"):
            peer.gate.takes(opening(ApiKey.METADATA))

    run(test, max_reauth_ms={"WORD": 5000})


def test_credentials_that_have_expired_are_none():
    async def test(peer):
        peer.ends_ms = NOW_MS
        assert (await peer.pass_gate()).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED

    run(test)


def test_a_token_that_is_ended_ends_the_sessions_that_came_by_it():
    standing = {"t"}

    async def test(peer):
        peer.token_id = "t"
        await peer.pass_gate()
        assert peer.caller.token_id == "t"
        assert not peer.gate.takes(opening(ApiKey.METADATA))
        standing.clear()
        with pytest.raises(RemoteProtocolError, match="token has ended"):
            peer.gate.takes(opening(ApiKey.METADATA))

    run(test, token_stands=standing.__contains__)


def test_sessions_that_came_otherwise_ask_for_no_token():
    async def test(peer):
        await peer.pass_gate()
        assert not peer.gate.takes(opening(ApiKey.METADATA))

    run(test, token_stands=lambda _: False)


@pytest.mark.parametrize(("mechanism", "name"), [("OTHER", b"alice"), ("WORD", b"bob")])
def test_another_principal_or_mechanism_is_not_taken_later(mechanism, name):
    async def test(peer):
        await peer.pass_gate()
        answer = await peer.agree(mechanism)
        if mechanism == "WORD":
            await peer.show(name)
            answer = await peer.show(b"sesame")
        assert answer.error_code != 0
        assert (peer.caller.principal, peer.told) == (Principal("User", "alice"), ["admit", "drain"])

    run(test, max_reauth_ms={"WORD": 5000})


def test_nothing_else_comes_in_the_middle_of_authenticating_again():
    async def test(peer):
        await peer.pass_gate()
        await peer.agree()
        with pytest.raises(RemoteProtocolError, match="in the middle"):
            peer.gate.takes(opening(ApiKey.METADATA))

    run(test, max_reauth_ms={"WORD": 5000})


@pytest.mark.parametrize("frame", [b"", b"\0", b"\0\x11", b"\0\x24\0\x02", b"\0\x11\0\x01\0\0\0\0\xff\xff\x7f\xff"])
def test_what_is_no_request_is_hung_up_on(frame):
    peer = Peer()
    if peer.gate.takes(memoryview(frame)):
        with pytest.raises(RemoteProtocolError):
            peer.gate.serve(memoryview(frame))


def test_a_builder_has_the_last_word_on_who_it_is():
    async def test(peer):
        await peer.pass_gate()
        assert peer.caller.principal == Principal("Team", "alice@CLIENTS")

    run(test, builder=lambda peer: Principal("Team", f"{peer.principal.name}@{peer.listener}"))


def test_no_token_is_in_the_log(caplog):
    async def test(peer):
        await peer.agree()
        await peer.show(b"alice")
        await peer.show(b"a-secret")
        assert "a-secret" not in caplog.text + "".join(peer.warned)

    caplog.set_level(logging.DEBUG)
    run(test)
