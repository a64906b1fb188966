"""Whose requests come by a connection: what the listener and the authentication have found out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparklog.security.principal import ANONYMOUS, Principal
from sparklog.security.security_protocol import SecurityProtocol

INTERNAL_LISTENER = "PLAINTEXT"


def _never_muted(seconds: float) -> None:
    """A caller without a connection, as in tests, waits for nothing."""


@dataclass
class Caller:
    """One connection's peer. ``principal`` is ``ANONYMOUS`` until it has authenticated, and where nobody has to."""

    host: str
    """Its address, without a port."""
    listener: str = INTERNAL_LISTENER
    """The name of the listener that it came by."""
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    principal: Principal = ANONYMOUS
    is_between_brokers: bool = True
    """Whether the listener is the one by which brokers speak to each other."""
    token_id: str | None = None
    """The delegation token by which it has authenticated."""
    mute: Callable[[float], None] = _never_muted
    """Reads nothing more from the connection for so many seconds; what is in hand is answered."""
