"""How the connections that we open are secured, by Kafka's settings: a client's, and those of a broker to others."""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.clock import Clock
from sparklog.config.security_protocol import SecurityProtocol
from sparklog.errors import ConfigError
from sparklog.security.connecting import PLAIN, ConnectionSecurity
from sparklog.security.mechanisms import JAAS, MECHANISMS, client_mechanism
from sparklog.security.sasl.mechanism import Mechanism
from sparklog.security.tls.contexts import client_context
from sparklog.security.tls.settings import TlsSettings


def connection_security(
    protocol: SecurityProtocol, mechanism: str, settings: Mapping[str, str], clock: Clock
) -> ConnectionSecurity:
    """``mechanism`` is the name of the SASL mechanism. Raises ConfigError for settings or files that cannot be used."""
    if protocol is SecurityProtocol.PLAINTEXT:
        return PLAIN
    tls = client_context(TlsSettings.from_properties(settings)) if protocol.has_tls else None
    return ConnectionSecurity(tls, _mechanism(mechanism, settings, clock) if protocol.has_sasl else None)


def _mechanism(name: str, settings: Mapping[str, str], clock: Clock) -> Mechanism:
    if not name:
        raise ConfigError(f"SASL needs sasl.mechanism: one of {', '.join(MECHANISMS)}; and {JAAS}")
    return client_mechanism(name, settings, clock)
