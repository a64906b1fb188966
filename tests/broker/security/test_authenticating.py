"""The gates of listeners with SASL, by their settings."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.broker.security.authenticating import Gates
from sparklog.config.listeners import Listener
from sparklog.config.security_protocol import SecurityProtocol
from sparklog.errors import ConfigError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.connection import ClientConnection
from sparklog.protocol.messages import SaslAuthenticateRequest, SaslHandshakeRequest, decode_response, encode
from sparklog.security import principal_builder
from sparklog.security.caller import Caller
from sparklog.security.principal import Principal
from sparklog.security.principal_builder import as_it_is
from sparklog.structs import Endpoint
from sparklog.testing.clock import ManualClock

CLIENTS = Listener("CLIENTS", SecurityProtocol.SASL_SSL, Endpoint("", 0))
SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "plain.sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";',
}


def pass_gate(settings):
    """``alice`` comes by PLAIN to a listener of these settings: the caller that she is, and the answer to her."""

    async def main():
        gate = Gates(as_it_is, ManualClock(), print).of_listener(CLIENTS, SETTINGS | settings)(caller)
        protocol = ClientConnection("c")
        for api, message in (
            (ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism="PLAIN")),
            (ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")),
        ):
            asked = b"".join(map(bytes, protocol.request(api, 1, [encode(message, 1)])))[4:]
            assert gate.takes(memoryview(asked))
            served = gate.serve(memoryview(asked))
            _, _, body = protocol.response(memoryview(b"".join(map(bytes, served))[4:]))
            answer: Any = decode_response(api, 1, body)
            assert answer.error_code == 0
        return answer

    caller = Caller("10.0.0.1", "CLIENTS")
    return caller, asyncio.run(main())


@pytest.mark.parametrize(
    ("settings", "lasts_ms"),
    [
        ({}, 0),
        ({"connections.max.reauth.ms": "7000"}, 7000),
        ({"connections.max.reauth.ms": "7000", "plain.connections.max.reauth.ms": "5000"}, 5000),
        ({"connections.max.reauth.ms": "7000", "plain.connections.max.reauth.ms": "0"}, 0),
        ({"connections.max.reauth.ms": "7000", "scram-sha-256.connections.max.reauth.ms": "5000"}, 7000),
    ],
)
def test_a_mechanism_may_have_a_session_of_its_own(settings, lasts_ms):
    _, answer = pass_gate(settings)
    assert answer.session_lifetime_ms == lasts_ms


def test_a_listener_may_have_a_principal_builder_of_its_own(monkeypatch):
    mine = SimpleNamespace(name="mine", load=lambda: lambda peer: Principal("Team", f"{peer.listener} {peer.host}"))
    monkeypatch.setattr(principal_builder, "entry_points", lambda group: [mine])
    caller, _ = pass_gate({"principal.builder.class": "mine"})
    assert caller.principal == Principal("Team", "CLIENTS 10.0.0.1")
    assert pass_gate({})[0].principal == Principal("User", "alice")
    with pytest.raises(
        ConfigError, match=r"^listener CLIENTS: principal\.builder\.class=other: there is no such builder"
    ):
        pass_gate({"principal.builder.class": "other"})
