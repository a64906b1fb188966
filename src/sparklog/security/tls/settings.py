"""Kafka's ``ssl.*`` settings (``SslConfigs.java``, ``BrokerSecurityConfigs.java``), of a client or of a listener.

Differences from Kafka: a store whose type is not said is what its first bytes say (Kafka takes it for JKS), and a
misspelt name is refused. Settings that only mean something to Java's providers are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sparklog.config.definition import ConfigType, any_of, one_of, parse, setting
from sparklog.config.security import refuse_librdkafkas
from sparklog.errors import ConfigError

_OF_JAVA = frozenset(
    {
        "ssl.allow.dn.changes",
        "ssl.allow.san.changes",
        "ssl.keymanager.algorithm",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    }
)
_STORE_TYPES = ("", "PEM", "PKCS12", "JKS")
_PROTOCOLS = ("TLSv1.2", "TLSv1.3")


def _text(name: str, doc: str) -> str:
    return setting(name, ConfigType.STRING, "", doc)  # type: ignore[no-any-return]


def _secret(name: str, doc: str) -> str:
    return setting(name, ConfigType.PASSWORD, "", doc)  # type: ignore[no-any-return]


def _store_type(name: str, doc: str) -> str:
    return setting(name, ConfigType.STRING, "", doc, one_of(*_STORE_TYPES))  # type: ignore[no-any-return]


def _algorithm(value: str) -> str | None:
    return None if value.lower() in ("", "https") else "must be https, or empty for no check of the name"


@dataclass(frozen=True)
class TlsSettings:
    """One end's. ``repr`` shows no password and no key."""

    keystore_type: str = _store_type("ssl.keystore.type", "Kind of the key store: PEM or PKCS12.")
    keystore_location: str = _text("ssl.keystore.location", "File of our key and its certificates.")
    keystore_password: str = _secret("ssl.keystore.password", "Password of a PKCS12 key store.")
    keystore_key: str = _secret("ssl.keystore.key", "Our private key itself, in PEM (PKCS #8).")
    keystore_chain: str = _text("ssl.keystore.certificate.chain", "Our certificates themselves, in PEM, ours first.")
    key_password: str = _secret("ssl.key.password", "Password of the private key in a PEM file.")
    truststore_type: str = _store_type("ssl.truststore.type", "Kind of the trust store: PEM or PKCS12.")
    truststore_location: str = _text("ssl.truststore.location", "File of the certificates that are trusted.")
    truststore_password: str = _secret("ssl.truststore.password", "Password of a PKCS12 trust store.")
    truststore_certificates: str = _text("ssl.truststore.certificates", "The trusted certificates themselves, in PEM.")
    client_auth: str = setting(
        "ssl.client.auth",
        ConfigType.STRING,
        "none",
        "Whether clients must show a certificate.",
        one_of("none", "requested", "required"),
    )
    protocol: str = setting(
        "ssl.protocol",
        ConfigType.STRING,
        "TLSv1.3",
        "Kafka's name for the kind of context; ssl.enabled.protocols decides what is spoken.",
        one_of("TLS", *_PROTOCOLS),
    )
    enabled_protocols: tuple[str, ...] = setting(
        "ssl.enabled.protocols", ConfigType.LIST, _PROTOCOLS, "What is spoken.", any_of(*_PROTOCOLS)
    )
    cipher_suites: tuple[str, ...] = setting(
        "ssl.cipher.suites", ConfigType.LIST, (), "Cipher suites by their IANA names; empty: all that are good."
    )
    identification: str = setting(
        "ssl.endpoint.identification.algorithm",
        ConfigType.STRING,
        "https",
        "Whether a broker's certificate must have the name that it is reached by; empty: it need not.",
        _algorithm,
    )
    principal_rules: str = setting(
        "ssl.principal.mapping.rules", ConfigType.STRING, "DEFAULT", "Which principal a certificate's name stands for."
    )

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """From the names in ``properties`` that begin with ``ssl.``; the others are passed over.

        Raises ConfigError for a name that is not known, and for a value that cannot be.
        """
        said = {name: text for name, text in properties.items() if name.startswith("ssl.") and name not in _OF_JAVA}
        for name in said:
            if name == "ssl.engine.factory.class":
                raise ConfigError(f"{name}: classes of Java cannot be run here; say it by the other ssl settings")
            refuse_librdkafkas(name)
        settings = parse(cls, said)
        settings._check_stores()
        return settings

    def _check_stores(self) -> None:
        if self.keystore_key or self.keystore_chain:
            _check_inline("ssl.keystore.key", self.keystore_type, self.keystore_location, self.keystore_password)
            if not (self.keystore_key and self.keystore_chain):
                raise ConfigError("ssl.keystore.key and ssl.keystore.certificate.chain go together: set both")
        elif self.keystore_password and not self.keystore_location:
            raise ConfigError("ssl.keystore.password is set, and ssl.keystore.location is not")
        if self.truststore_certificates:
            name = "ssl.truststore.certificates"
            _check_inline(name, self.truststore_type, self.truststore_location, self.truststore_password)
        elif self.truststore_password and not self.truststore_location:
            raise ConfigError("ssl.truststore.password is set, and ssl.truststore.location is not")

    @property
    def files(self) -> tuple[Path, ...]:
        """Which files a context is made of; when one of them changes, another context is to be made."""
        return tuple(Path(each) for each in (self.keystore_location, self.truststore_location) if each)


def _check_inline(name: str, kind: str, location: str, password: str) -> None:
    where = name.rpartition(".")[0].removesuffix(".certificate")
    if kind not in ("", "PEM"):
        raise ConfigError(f"{name} is PEM, and {where}.type says {kind}: set {where}.type=PEM")
    if location:
        raise ConfigError(f"{name} and {where}.location are both set: leave one of them out")
    if password:
        raise ConfigError(f"{where}.password is for PKCS12, and {name} is PEM: leave it out")
