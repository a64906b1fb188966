"""How a schema registry is reached, by the names that Kafka's serializers give to it."""

from __future__ import annotations

import dataclasses
import ssl
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import SplitResult, unquote, urlsplit

from sparklog.config.definition import ConfigType, at_least, definitions, one_of, parse, setting
from sparklog.errors import ConfigError
from sparklog.registry.setting_names import PREFIX, full_name, is_of_registry
from sparklog.security.tls.contexts import client_context
from sparklog.security.tls.settings import TlsSettings
from sparklog.structs import bracketed

_TLS = f"{PREFIX}ssl."
_SOURCES = ("URL", "USER_INFO")
_TOKEN_SOURCES = ("STATIC_TOKEN",)
_PORTS = {"http": 80, "https": 443}


@dataclasses.dataclass(frozen=True)
class Address:
    """Where one server of the registry is. ``path`` ends without a slash."""

    is_tls: bool
    host: str
    port: int
    path: str
    authorization: str | None = dataclasses.field(default=None, repr=False)
    """The header, where the URL has a user."""

    def __str__(self) -> str:
        return f"{'https' if self.is_tls else 'http'}://{bracketed(self.host)}:{self.port}{self.path}"


@dataclasses.dataclass(frozen=True)
class RegistrySettings:
    """Times are in milliseconds. ``repr`` shows no password and no token."""

    url: tuple[str, ...] = setting(
        f"{PREFIX}url", ConfigType.LIST, (), "Addresses of the registry's servers, http:// or https://, in this order."
    )
    credentials_source: str = setting(
        f"{PREFIX}basic.auth.credentials.source",
        ConfigType.STRING,
        "URL",
        "Where user and password are: in basic.auth.user.info (USER_INFO), or before an @ in the address (URL).",
        one_of(*_SOURCES),
    )
    user_info: str = setting(f"{PREFIX}basic.auth.user.info", ConfigType.PASSWORD, "", "user:password.")
    token_source: str = setting(
        f"{PREFIX}bearer.auth.credentials.source",
        ConfigType.STRING,
        "STATIC_TOKEN",
        "Where the token is: in bearer.auth.token.",
        one_of(*_TOKEN_SOURCES),
    )
    token: str = setting(f"{PREFIX}bearer.auth.token", ConfigType.PASSWORD, "", "A token that is sent as it is.")
    timeout_ms: int = setting(
        f"{PREFIX}request.timeout.ms",
        ConfigType.INT,
        10_000,
        "For how long a server may keep silent, and by when its answer must be whole.",
        at_least(1),
    )
    max_retries: int = setting(
        f"{PREFIX}max.retries", ConfigType.INT, 3, "How often all servers are tried once more.", at_least(0)
    )
    retries_wait_ms: int = setting(
        f"{PREFIX}retries.wait.ms", ConfigType.INT, 1000, "The first wait before that; it doubles.", at_least(0)
    )
    retries_max_wait_ms: int = setting(
        f"{PREFIX}retries.max.wait.ms", ConfigType.INT, 20_000, "The longest wait before that.", at_least(0)
    )
    tls: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    """The settings ``ssl.…`` of the registry, which Kafka's serializers call ``schema.registry.ssl.…``."""

    @classmethod
    def of(cls, given: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """From a mapping, or keywords with underscores for the dots.

        A mapping may be a whole program's: names that are none of the registry's are passed over. Raises ConfigError
        for one that begins as the registry's and is none, for a value that cannot be, and where there is no URL.
        """
        said = {full_name(name): _text(value) for name, value in (given or {}).items()}
        said |= {full_name(name.replace("_", ".")): _text(value) for name, value in more.items()}
        mine = {name: text for name, text in said.items() if is_of_registry(name)}
        tls = {name.removeprefix(PREFIX): text for name, text in mine.items() if name.startswith(_TLS)}
        found = parse(cls, {name: text for name, text in mine.items() if not name.startswith(_TLS)})
        found = dataclasses.replace(found, tls=tls)
        found.addresses()
        found._check_credentials()
        return found

    def __repr__(self) -> str:
        return f"RegistrySettings({', '.join(map(str, self.addresses()))})"

    def _check_credentials(self) -> None:
        if self.user_info and self.token:
            raise ConfigError("basic.auth.user.info and bearer.auth.token are both set: leave one of them out")
        if self.user_info and ":" not in self.user_info:
            raise ConfigError("basic.auth.user.info is not user:password: it has no colon")
        if self.credentials_source == "USER_INFO" and not self.user_info:
            raise ConfigError("basic.auth.credentials.source=USER_INFO, and basic.auth.user.info is not set")

    def addresses(self) -> tuple[Address, ...]:
        """Raises ConfigError for what is no URL of HTTP, without showing a password in it."""
        if not self.url:
            raise ConfigError(f"{PREFIX}url is not set: the address of the schema registry, http://host:8081")
        return tuple(map(_address, self.url))

    def authorization(self, address: Address) -> str | None:
        """The header with which ``address`` is asked."""
        if self.token:
            return f"Bearer {self.token}"
        return _basic(self.user_info) if self.user_info else address.authorization

    def tls_context(self) -> ssl.SSLContext:
        """Raises ConfigError for settings or files that cannot be used."""
        return client_context(TlsSettings.from_properties(self.tls))

    def properties(self) -> dict[str, str]:
        """The settings that make the same once more, passwords in clear: for a process of ours, never for people."""
        attributes = definitions(type(self))
        said = {name: getattr(self, attribute) for name, (attribute, _) in attributes.items()}
        texts = {name: ",".join(value) if isinstance(value, tuple) else str(value) for name, value in said.items()}
        return {**texts, **{f"{PREFIX}{name}": text for name, text in self.tls.items()}}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _address(url: str) -> Address:
    parts, port = _split(url)
    user = None
    if parts.username is not None:
        user = _basic(f"{unquote(parts.username)}:{unquote(parts.password or '')}")
    is_tls = parts.scheme == "https"
    return Address(is_tls, parts.hostname or "", port, parts.path.rstrip("/"), user)


def _split(url: str) -> tuple[SplitResult, int]:
    shown = url.rpartition("@")[2]
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        raise ConfigError(f"{PREFIX}url: {shown!r} is no address") from None
    if parts.scheme not in _PORTS or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(
            f"{PREFIX}url: {shown!r} is not http://host:port or https://host:port, with a path or without"
        )
    return parts, port


def _basic(user_info: str) -> str:
    return f"Basic {b64encode(user_info.encode()).decode()}"
