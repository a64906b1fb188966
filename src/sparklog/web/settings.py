"""What the server of the page is told, and what of it does not go together."""

from __future__ import annotations

import ipaddress
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparklog.client.cluster.config import ClientConfig
from sparklog.errors import ConfigError
from sparklog.security.mechanisms import JAAS
from sparklog.security.sasl.plain import PLAIN_NAME
from sparklog.security.sasl.scram_credential import SCRAM_MECHANISMS
from sparklog.structs import bracketed

CLIENT_ID: Final = "sparklog-web"
_MECHANISM: Final = "sasl.mechanism"
_LOGINS: Final = (JAAS, "sasl.username", "sasl.password")
_LOCALHOST: Final = "localhost"
_ORIGIN: Final = re.compile(r"https?://[^/?#@\s]+/?")
_PATIENCE_MS: Final = "10000"
_SETUP_MS: Final = "3000"


@dataclass(frozen=True)
class WebSettings:
    """Of one server. ``client`` has no credentials; ``mechanism`` is that of the visitors, empty where none log in."""

    client: ClientConfig
    mechanism: str = ""
    host: str = "127.0.0.1"
    port: int = 0
    origin: str = ""
    """Where browsers reach a proxy before it, as ``https://NAME``; empty for no proxy."""
    certificate: Path | None = None
    """A PEM file with the certificate and its key; None for plain HTTP."""
    allow_changes: bool = False
    fresh_s: float = 2.0
    """How old an answer of the brokers may be that is given to a visitor once more."""

    @classmethod
    def of(cls, properties: Mapping[str, str], **more: object) -> WebSettings:
        """With a client's settings by Kafka's names.

        Raises ConfigError where the page would show more to visitors than they may see, or where passwords would be
        sent in the clear.
        """
        mechanism = _mechanism_of(properties)
        told = {name: text for name, text in properties.items() if name not in _LOGINS}
        if mechanism:
            told[JAAS] = _nobody(mechanism)
        told = {"default.api.timeout.ms": _PATIENCE_MS, "socket.connection.setup.timeout.ms": _SETUP_MS, **told}
        client = ClientConfig.from_properties({**told, "client.id": CLIENT_ID})
        found = cls(client, mechanism, **more)  # type: ignore[arg-type]
        found._check()
        return found

    @property
    def is_open(self) -> bool:
        """Whether the cluster asks nobody for a password."""
        return not self.mechanism

    @property
    def is_tls(self) -> bool:
        """Whether browsers speak TLS to it, or to the proxy before it."""
        return self.certificate is not None or self.origin.startswith("https:")

    def tls_context(self) -> ssl.SSLContext | None:
        """Raises ConfigError for a file without a certificate and its key."""
        if self.certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certificate)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"--certificate {self.certificate} has no certificate and key in PEM: {error}") from error
        return context

    def names(self, port: int) -> frozenset[str]:
        """What ``Host`` may say to a server on this port: its own names alone, in small letters."""
        return frozenset(origin.partition("://")[2] for origin in self.origins(port))

    def origins(self, port: int) -> frozenset[str]:
        """What ``Origin`` may say to a server on this port: its own pages alone, in small letters."""
        own = {self.host, _LOCALHOST, "127.0.0.1", "::1"} if _is_loopback(self.host) else {self.host}
        if _is_any(self.host):
            own = {_LOCALHOST, "127.0.0.1", "::1"}
        scheme, scheme_port = ("https", 443) if self.certificate is not None else ("http", 80)
        ports = (f":{port}", "") if port == scheme_port else (f":{port}",)
        found = {f"{scheme}://{each}{told}".lower() for each in map(bracketed, own) for told in ports}
        return frozenset(found | ({self.origin.rstrip("/").lower()} if self.origin else set()))

    def url(self, port: int) -> str:
        """Where a browser finds a server on this port."""
        if self.origin:
            return self.origin.rstrip("/") + "/"
        return f"http{'s' if self.certificate is not None else ''}://{bracketed(self.host)}:{port}/"

    def _check(self) -> None:
        if self.origin and _ORIGIN.fullmatch(self.origin) is None:
            raise ConfigError(f"--origin {self.origin!r} is not https://NAME or http://NAME, with :PORT where needed")
        if self.mechanism and self.certificate is None and not _is_loopback(self.host):
            raise ConfigError(
                f"visitors log in, and passwords must not be sent to {self.host} in the clear: give --certificate FILE,"
                " or listen on 127.0.0.1 with a proxy before it that speaks TLS, and name that by --origin https://NAME"
            )
        if _is_any(self.host) and not self.origin:
            raise ConfigError(
                f"--host {self.host} is every address: say by which name browsers reach it, --origin http://NAME:PORT"
            )


def _mechanism_of(properties: Mapping[str, str]) -> str:
    """That by which visitors log in. Raises ConfigError where there is one without passwords."""
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if not protocol.startswith("SASL_"):
        if any(name.startswith("ssl.key") for name in properties):
            raise ConfigError(
                "the settings have a certificate of a client (ssl.keystore...), and without SASL every visitor would"
                " see what it may see: use a listener with SASL, where visitors log in as themselves"
            )
        return ""
    told = properties.get(_MECHANISM, properties.get("sasl.mechanisms", "")).strip()
    if told not in (*SCRAM_MECHANISMS, PLAIN_NAME):
        known = ", ".join((*SCRAM_MECHANISMS, PLAIN_NAME))
        raise ConfigError(f"{_MECHANISM}={told or '(not set)'}: visitors log in with a password, which needs {known}")
    return told


def _nobody(mechanism: str) -> str:
    """In the place of a login, so that the settings can be checked before anybody logs in. It is never sent."""
    from sparklog.security.sasl.jaas import login_of

    return login_of(mechanism, "nobody", "nothing")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == _LOCALHOST


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
