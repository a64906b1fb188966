"""SASL for scripted brokers: ``PasswordMechanism`` at the client, ``ask_for_password`` at the broker.

The mechanism is the simplest there is: its one token is the password. It stands for all of them where what is tested is
the connection.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.errors import AuthenticationFailed, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import SaslAuthenticateResponse, SaslHandshakeResponse
from sparklog.security.sasl.mechanism import ClientConversation
from sparklog.testing.scripted import Asked, ScriptedCluster

NAME = "PASSWORD"


@dataclass
class PasswordMechanism:
    """Changing ``password`` counts from the next authentication."""

    password: str = "right"
    proof: bytes = b""
    """What the broker must answer."""
    name: str = NAME
    token_id: str | None = None
    may_wait: bool = False

    def begin(self, host: str) -> ClientConversation:  # noqa: ARG002
        return _PasswordConversation(self.password.encode(), self.proof)


class _PasswordConversation:
    def __init__(self, token: bytes, proof: bytes) -> None:
        self._token = token
        self._proof = proof

    def first(self) -> bytes:
        return self._token

    def respond(self, challenge: bytes) -> bytes | None:
        if challenge != self._proof:
            raise AuthenticationFailed("its proof is wrong")
        return None


class PasswordServer:
    """The handlers of a cluster that asks for the password; ``sessions`` counts who has given it."""

    def __init__(self, cluster: ScriptedCluster, lifetime_ms: int = 0) -> None:
        self.password = b"right"
        self.lifetime_ms = lifetime_ms
        self.sessions = 0
        cluster.on[ApiKey.SASL_HANDSHAKE] = self._shake_hands
        cluster.on[ApiKey.SASL_AUTHENTICATE] = self._authenticate

    def _shake_hands(self, asked: Asked) -> SaslHandshakeResponse:
        is_known = asked.message.mechanism == NAME
        code = ErrorCode.NONE if is_known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return SaslHandshakeResponse(error_code=int(code), mechanisms=[NAME])

    def _authenticate(self, asked: Asked) -> SaslAuthenticateResponse:
        is_right = asked.message.auth_bytes == self.password
        self.sessions += is_right
        code = ErrorCode.NONE if is_right else ErrorCode.SASL_AUTHENTICATION_FAILED
        return SaslAuthenticateResponse(
            error_code=int(code),
            error_message=None if is_right else "Authentication failed: Invalid username or password",
            auth_bytes=b"",
            session_lifetime_ms=self.lifetime_ms,
        )
