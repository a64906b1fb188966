"""The settings of TLS and SASL of a broker: ``ssl.*`` and ``sasl.*``, for all listeners or for one of them.

``listener.name.NAME.ssl.…`` stands before ``ssl.…`` for the listener NAME, and ``listener.name.NAME.MECHANISM.sasl.…``
for one mechanism there (Kafka 3.9, ``AbstractConfig.valuesWithPrefixOverride``, ``ChannelBuilders``). What they mean is
read where they are used (``sparklog.security``): many are known to one protocol, mechanism or file type alone.

Which names there are is known here: all of Kafka 3.9's (``SslConfigs``, ``SaslConfigs``, ``BrokerSecurityConfigs``),
though some of them ask for nothing here. Any other is refused, since a misspelt one would leave open what it was to
close.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Self

from sparklog.config.definition import unknown
from sparklog.errors import ConfigError

_OF_A_LISTENER = "listener.name."
OF_TLS = frozenset(
    """
    ssl.allow.dn.changes ssl.allow.san.changes ssl.cipher.suites ssl.client.auth ssl.enabled.protocols
    ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
    ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type
    ssl.principal.mapping.rules ssl.protocol ssl.provider ssl.secure.random.implementation
    ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
    ssl.truststore.type
    """.split()  # noqa: SIM905 (a list of this length is not read one a line)
)
_OF_LIBRDKAFKA = {
    "ssl.ca.location": "ssl.truststore.location (with ssl.truststore.type=PEM)",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.location (one PEM file with the key and the certificates)",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.location (one PEM file with the key and the certificates)",
    "ssl.key.pem": "ssl.keystore.key",
}
"""librdkafka's names of TLS, and what to set instead."""
_OF_MECHANISMS = frozenset(
    """
    connections.max.reauth.ms sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class
    sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.oauthbearer.clock.skew.seconds
    sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode
    sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
    sasl.server.callback.handler.class
    """.split()  # noqa: SIM905
)
"""What may be said of one mechanism."""
OF_SASL = _OF_MECHANISMS | {
    "connection.failed.authentication.delay.ms",
    "sasl.enabled.mechanisms",
    "sasl.mechanism",
    "sasl.mechanism.controller.protocol",
    "sasl.mechanism.inter.broker.protocol",
    "sasl.server.max.receive.size",
}
_OTHERS = frozenset(each for each in OF_SASL if not each.startswith("sasl."))
_PREFIXES = ("ssl.", "sasl.", _OF_A_LISTENER)
MECHANISMS = ("gssapi", "oauthbearer", "plain", "scram-sha-256", "scram-sha-512")
"""As they stand in names of settings."""
PRINCIPAL_BUILDER = "principal.builder.class"
_FOR_ALL = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})
"""What Kafka has for one listener too, and what is for all of them here, or means nothing."""


@dataclass(frozen=True)
class SecuritySettings:
    """Texts by Kafka's names. They hold passwords, so they are never shown."""

    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def divide(cls, properties: Mapping[str, str]) -> tuple[Self, dict[str, str]]:
        """Those among a broker's settings, and the others."""
        own = {name: text for name, text in properties.items() if name.startswith(_PREFIXES) or name in _OTHERS}
        return cls(own), {name: text for name, text in properties.items() if name not in own}

    def of_listener(self, name: str) -> dict[str, str]:
        """Those in force for a listener; what is said of a mechanism there is ``MECHANISM.sasl.…`` in small letters."""
        prefix = f"{_OF_A_LISTENER}{name.lower()}."
        general = {key: text for key, text in self.properties.items() if not key.startswith(_OF_A_LISTENER)}
        return general | {
            key.removeprefix(prefix): text for key, text in self.properties.items() if key.startswith(prefix)
        }

    def check(self, listeners: Collection[str]) -> list[str]:
        """Those of one listener that are for all of them here, or mean nothing.

        Raises ConfigError for a name that there is not, and for a listener that is none of these.
        """
        prefixes = tuple(f"{_OF_A_LISTENER}{each.lower()}." for each in listeners)
        of_mechanisms = {f"{mechanism}.{each}" for mechanism in MECHANISMS for each in _OF_MECHANISMS}
        of_one = OF_TLS | OF_SASL | of_mechanisms | {PRINCIPAL_BUILDER}
        left_out = {f"{prefix}{each}" for prefix in prefixes for each in _FOR_ALL}
        known = OF_TLS | OF_SASL | left_out | {f"{prefix}{each}" for prefix in prefixes for each in of_one}
        for name in sorted(self.properties.keys() - known):
            refuse_librdkafkas(name)
            error = unknown(name, known, most=1)
            if name.startswith(_OF_A_LISTENER) and not name.startswith(prefixes):
                there = ", ".join(each.lower() for each in listeners)
                raise ConfigError(f"no listener has this name; in small letters there are {there}: {error}")
            raise error
        return sorted(self.properties.keys() & left_out)


def refuse_librdkafkas(name: str) -> None:
    """Raises ConfigError for a name of librdkafka's, with what to set instead."""
    if name in _OF_LIBRDKAFKA:
        raise ConfigError(f"{name} is librdkafka's name; set {_OF_LIBRDKAFKA[name]}")
