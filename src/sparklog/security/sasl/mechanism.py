"""The two ends of a SASL mechanism (RFC 4422): tokens in, tokens out, and in the end who it is.

A conversation is made anew for each authentication and used once.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from sparklog.errors import AuthenticationFailed
from sparklog.security.principal import Principal


class Authenticated(NamedTuple):
    """What a broker knows when a conversation has succeeded."""

    principal: Principal
    expires_ms: int | None = None
    """When the credentials end, in milliseconds since the epoch; None for those that do not."""
    token_id: str | None = None
    """The delegation token that was the credential."""


class ServerConversation(Protocol):
    """The broker's end."""

    def respond(self, token: bytes) -> bytes:
        """The answer to the client's next token. Raises AuthenticationFailed; what it says may be told the client."""

    @property
    def authenticated(self) -> Authenticated | None:
        """The peer, when the conversation has come to its end."""


class ClientConversation(Protocol):
    """The client's end."""

    def first(self) -> bytes:
        """The first token to send."""

    def respond(self, challenge: bytes) -> bytes | None:
        """The next token; None where the conversation has come to its end. Raises AuthenticationFailed."""


class Mechanism(Protocol):
    """What a client does to prove who it is, ready to be done once a connection."""

    name: str
    """As in SaslHandshake: ``SCRAM-SHA-512``."""
    token_id: str | None
    """Of the delegation token that it shows; None where it shows something else."""
    may_wait: bool
    """Whether ``begin`` and the steps of its conversation may ask others over the network: not on an event loop."""

    def begin(self, host: str) -> ClientConversation:
        """A new conversation, with the credentials of now; ``host`` is the broker's name, as we connected by it.

        Raises AuthenticationFailed where there are none, and ConnectionFailed where who gives them cannot be reached.
        """


def invalid_credentials(mechanism: str) -> AuthenticationFailed:
    """The one answer to a wrong name, a wrong password and a message that is malformed."""
    return AuthenticationFailed(f"authentication failed: invalid credentials with SASL mechanism {mechanism}")
