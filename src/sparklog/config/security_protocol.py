"""How the connections of a listener are secured (``SecurityProtocol.java``). Numbers go into UpdateMetadata."""

from __future__ import annotations

from enum import IntEnum


class SecurityProtocol(IntEnum):
    """With TLS or without, with SASL or without."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def has_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)
