"""How connections to ZooKeeper are secured, by the settings of Kafka 3.9's broker (``ZkConfigs.java``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from sparklog.config.definition import ConfigType as T
from sparklog.config.definition import any_of, one_of, parse, setting
from sparklog.errors import ConfigError

PREFIX = "zookeeper.ssl."
_JAAS = "sparklog.zookeeper.sasl.jaas.config"
_NAMES = frozenset({_JAAS, "zookeeper.set.acl", "zookeeper.clientCnxnSocket"})
_STORE_TYPES = ("", "PEM", "PKCS12", "JKS")
_PROTOCOLS = ("TLSv1.2", "TLSv1.3")
"""Kafka speaks TLS 1.2 alone unless it is told more, which a ZooKeeper 3.9 as it is refuses."""
_NOT_HERE = {
    "zookeeper.ssl.crl.enable": "lists of revoked certificates",
    "zookeeper.ssl.ocsp.enable": "questions whether a certificate is revoked",
}


@dataclass(frozen=True)
class ZooKeeperSecurity:
    """Immutable; its ``repr`` has no passwords."""

    set_acl: bool = setting(
        "zookeeper.set.acl", T.BOOLEAN, False, "Whether only the brokers may change the znodes that they make."
    )
    tls: bool = setting("zookeeper.ssl.client.enable", T.BOOLEAN, False, "Whether to connect by TLS.")
    client_socket: str = setting(
        "zookeeper.clientCnxnSocket", T.STRING, "", "A class of Java's client; accepted, and of no use here."
    )
    key_store: str = setting("zookeeper.ssl.keystore.location", T.STRING, "", "Our own key and certificate.")
    key_store_type: str = setting(
        "zookeeper.ssl.keystore.type", T.STRING, "", "PEM or PKCS12; the file says it itself.", one_of(*_STORE_TYPES)
    )
    key_store_password: str = setting("zookeeper.ssl.keystore.password", T.PASSWORD, "", "Password of the key.")
    trust_store: str = setting(
        "zookeeper.ssl.truststore.location", T.STRING, "", "The authorities to trust; empty for the system's."
    )
    trust_store_type: str = setting(
        "zookeeper.ssl.truststore.type", T.STRING, "", "PEM or PKCS12; the file says it itself.", one_of(*_STORE_TYPES)
    )
    trust_store_password: str = setting("zookeeper.ssl.truststore.password", T.PASSWORD, "", "Password of that file.")
    protocol: str = setting(
        "zookeeper.ssl.protocol",
        T.STRING,
        "",
        "The one protocol to speak, where enabled.protocols says nothing; empty for TLSv1.2 and TLSv1.3.",
        one_of("", *_PROTOCOLS),
    )
    enabled_protocols: tuple[str, ...] = setting(
        "zookeeper.ssl.enabled.protocols",
        T.LIST,
        (),
        "The protocols: TLSv1.2, TLSv1.3.",
        lambda value: any_of(*_PROTOCOLS)(value) if value else None,
    )
    cipher_suites: tuple[str, ...] = setting(
        "zookeeper.ssl.cipher.suites", T.LIST, (), "The cipher suites, by Java's names; empty for OpenSSL's choice."
    )
    endpoint_identification: str = setting(
        "zookeeper.ssl.endpoint.identification.algorithm",
        T.STRING,
        "HTTPS",
        "HTTPS: ZooKeeper's certificate must have the name in zookeeper.connect; empty: it need not.",
    )

    jaas: str = setting(
        _JAAS,
        T.PASSWORD,
        "",
        "The login at ZooKeeper, by SASL: org.apache.zookeeper.server.auth.DigestLoginModule required"
        ' username="..." password="..."; (Kafka has it in a file of Java\'s, as Client.)',
    )

    @classmethod
    def divide(cls, properties: Mapping[str, str]) -> tuple[Self, dict[str, str]]:
        """Those among a broker's settings, and the others. Raises ConfigError on any that does not fit."""
        own = {name: text for name, text in properties.items() if name.startswith(PREFIX) or name in _NAMES}
        for name, what in _NOT_HERE.items():
            if own.pop(name, "false").strip().lower() != "false":
                raise ConfigError(
                    f"{name}: {what} are not asked for here; remove it, and replace the authority instead"
                )
        settings = parse(cls, own)
        settings._check()
        return settings, {name: text for name, text in properties.items() if name not in own and name not in _NOT_HERE}

    def _check(self) -> None:
        if self.endpoint_identification.lower() not in ("", "https"):
            raise ConfigError(
                f"zookeeper.ssl.endpoint.identification.algorithm={self.endpoint_identification!r} is neither HTTPS"
                " nor empty"
            )
        if not self.tls and (self.key_store or self.trust_store):
            raise ConfigError("zookeeper.ssl.… says how to speak TLS, and zookeeper.ssl.client.enable=true does not")
        if self.set_acl and not (self.tls and self.key_store) and not self.jaas:
            raise ConfigError(
                "zookeeper.set.acl=true needs brokers that ZooKeeper knows: give each a certificate of the same subject"
                f" (zookeeper.ssl.client.enable, zookeeper.ssl.keystore.location), or the same user ({_JAAS})"
            )

    @property
    def protocols(self) -> tuple[str, ...]:
        """Those that may be spoken."""
        return self.enabled_protocols or ((self.protocol,) if self.protocol else _PROTOCOLS)


OPEN = ZooKeeperSecurity()
"""No TLS, and everybody may change what is there."""
