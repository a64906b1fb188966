"""How the connections that we open are secured: made once from the settings, used for each connection."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from sparklog.security.sasl.mechanism import Mechanism


@dataclass(eq=False)
class ConnectionSecurity:
    """Neither TLS nor SASL where nothing is said."""

    tls: ssl.SSLContext | None = None
    """Its ``check_hostname`` says whether the peer's certificate must have the name that it is reached by. It may be
    replaced: it is for the next connection.
    """
    mechanism: Mechanism | None = None
    """What is done first on each connection to prove who we are."""


PLAIN = ConnectionSecurity()
"""What everybody may read, to a peer that asks for nothing."""
