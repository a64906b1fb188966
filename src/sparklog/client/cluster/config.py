"""The settings of a client, by the names that Kafka's consumer and producer give them.

A frozen dataclass of text properties. Kafka's clients have settings that mean nothing here (buffers, interceptors,
JMX); they are ignored with one warning a process for each set of names, as Kafka's own clients do. So are names that
nobody knows, and the warning says which was likely meant. Settings of TLS and SASL are refused where nothing says which
of these is meant: a user that gives one does not want to be heard in the clear. They hold passwords, so neither
``repr`` nor an error shows them.
"""

from __future__ import annotations

import dataclasses
import difflib
import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any, Self

from sparklog.client.cluster.kafka_settings import asks_for_security, is_kafkas
from sparklog.clock import Clock, SystemClock
from sparklog.config.definition import (
    Check,
    ConfigType,
    at_least,
    between,
    definitions,
    one_of,
    parse,
    setting,
)
from sparklog.config.security_protocol import SecurityProtocol
from sparklog.errors import ConfigError
from sparklog.record.compression import CompressionType
from sparklog.security.connecting import ConnectionSecurity
from sparklog.security.connection_settings import connection_security
from sparklog.security.mechanisms import JAAS, token_id_of
from sparklog.security.sasl.jaas import login_of, login_of_token
from sparklog.security.sasl.scram_credential import SCRAM_MECHANISMS, ScramMechanism
from sparklog.structs import Endpoint, IsolationLevel

_log = logging.getLogger(__name__)
_MAX_INT = 2**31 - 1
_ADDRESS = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+._-]*://)?(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\s:/\[\]]+)):(?P<port>\d+)"
)
_warned: set[frozenset[str]] = set()
_ALIKE = 0.6
"""How alike an unknown name must be to a known one, of 1, to be taken for a misspelt one."""


def parse_bootstrap(text: str) -> tuple[Endpoint, ...]:
    """``host:port,host:port`` (an IPv6 host in brackets). Raises ConfigError naming the address that does not parse."""
    endpoints = []
    for address in filter(None, (part.strip() for part in text.split(","))):
        match = _ADDRESS.fullmatch(address)
        if match is None or not 0 < int(match["port"]) < 65536:
            raise ConfigError(f"bootstrap.servers: {address!r} is not host:port with a port from 1 to 65535")
        endpoints.append(Endpoint(match["v6"] or match["host"], int(match["port"])))
    if not endpoints:
        raise ConfigError("bootstrap.servers names no broker; write it as host:port,host:port")
    return tuple(dict.fromkeys(endpoints))


def _check_misspelt_bootstrap(properties: Mapping[str, str]) -> None:
    if "bootstrap.servers" not in properties:
        for name in properties:
            if hint := _likely(name, ["bootstrap.servers"], alike=0.9):
                raise ConfigError(f"bootstrap.servers is not set, but {name} is{hint}")


def _likely(name: str, known: Iterable[str], alike: float = _ALIKE) -> str:
    """What a misspelt name may have been meant for."""
    plain = {each.replace(".", ""): each for each in known}
    near = difflib.get_close_matches(name.replace(".", "").replace("_", "").lower(), plain, n=1, cutoff=alike)
    return f" (did you mean {plain[near[0]]}?)" if near else ""


def _acks(value: str) -> str | None:
    return one_of("all", "-1", "0", "1")(value)


def _warn_of_ignored(unknown: frozenset[str], known: Iterable[str]) -> None:
    """Log what is ignored, once a process: Kafka's settings that mean nothing here, and unknown ones."""
    if not unknown or unknown in _warned:
        return
    _warned.add(unknown)
    kafkas = sorted(filter(is_kafkas, unknown))
    if kafkas:
        _log.warning("ignored Kafka settings that mean nothing to sparklog: %s", ", ".join(kafkas))
    if others := sorted(unknown.difference(kafkas)):
        told = ", ".join(name + _likely(name, known) for name in others)
        _log.warning("ignored settings that neither sparklog nor Kafka knows: %s", told)


def _security_protocol(value: str) -> str | None:
    return one_of(*SecurityProtocol.__members__)(value.upper())


def _check_meant(properties: Mapping[str, str]) -> None:
    """Raises ConfigError for settings of TLS and SASL where it is not said which of them is spoken."""
    if "security.protocol" not in properties:
        for name in sorted(filter(asks_for_security, properties)):
            raise ConfigError(
                f"{name}: security.protocol is not set, and is PLAINTEXT without it: set it to SSL, SASL_SSL or"
                " SASL_PLAINTEXT; if plain connections are meant, to PLAINTEXT"
            )


_SASL_MECHANISM = "sasl.mechanism"
_USER, _PASSWORD = "sasl.username", "sasl.password"
_CREDENTIALS = ("sasl.", "ssl.key")
"""What proves who we are begins so."""
_TOKEN_MECHANISM = ScramMechanism.SHA_512.title
_OF_LIBRDKAFKA = {"sasl.mechanisms": _SASL_MECHANISM}


def _security_of(asked: Mapping[str, str]) -> dict[str, str]:
    """These settings of TLS and SASL by Kafka's names. librdkafka's user and password become a JAAS text."""
    found = {_OF_LIBRDKAFKA.get(name, name): text for name, text in asked.items()}
    user, password = found.pop(_USER, None), found.pop(_PASSWORD, None)
    if user is not None and password is not None and JAAS not in found:
        found[JAAS] = login_of(found.get(_SASL_MECHANISM, ""), user, password)
    return found


def _positive() -> Check:
    return between(1, _MAX_INT)


def _ms(name: str, default: int, doc: str) -> int:
    return setting(name, ConfigType.INT, default, doc, at_least(0))  # type: ignore[no-any-return]


def _is_plain(properties: Mapping[str, str]) -> bool:
    return properties.get("security.protocol", "PLAINTEXT").strip().upper() == SecurityProtocol.PLAINTEXT.name


@dataclasses.dataclass(frozen=True)
class ClientConfig:
    """What every part of the client is told. Sizes are bytes, times milliseconds."""

    bootstrap_servers: str = setting("bootstrap.servers", ConfigType.STRING, "", "Brokers to ask first, host:port,…")
    client_id: str = setting("client.id", ConfigType.STRING, "sparklog", "The name under which brokers know us.")
    security_protocol: str = setting(
        "security.protocol", ConfigType.STRING, "PLAINTEXT", "How connections are secured.", _security_protocol
    )
    security: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    """The settings ``ssl.*`` and ``sasl.*``, as texts."""
    request_timeout_ms: int = setting(
        "request.timeout.ms", ConfigType.INT, 30_000, "Longest wait for one answer.", _positive()
    )
    connect_timeout_ms: int = setting(
        "socket.connection.setup.timeout.ms", ConfigType.INT, 10_000, "Longest wait for a connection.", _positive()
    )
    api_timeout_ms: int = _ms("default.api.timeout.ms", 60_000, "How long a read or an administrative call is retried.")
    delivery_timeout_ms: int = _ms("delivery.timeout.ms", 120_000, "How long a batch is retried before it fails.")
    retry_backoff_ms: int = _ms("retry.backoff.ms", 100, "The pause before the first retry; it doubles from there.")
    retry_backoff_max_ms: int = _ms("retry.backoff.max.ms", 1_000, "The longest pause between retries.")
    metadata_max_age_ms: int = setting(
        "metadata.max.age.ms", ConfigType.INT, 300_000, "How old metadata may grow.", _positive()
    )
    client_rack: str = setting(
        "client.rack", ConfigType.STRING, "", "Where a reader stands: brokers may send it to a replica there."
    )
    isolation: str = setting(
        "isolation.level",
        ConfigType.STRING,
        "read_uncommitted",
        "Whether records of open and aborted transactions are seen.",
        one_of("read_uncommitted", "read_committed"),
    )
    fetch_max_bytes: int = setting("fetch.max.bytes", ConfigType.INT, 50 << 20, "Most bytes of a fetch.", _positive())
    max_partition_fetch_bytes: int = setting(
        "max.partition.fetch.bytes", ConfigType.INT, 4 << 20, "Most bytes of a partition in a fetch.", _positive()
    )
    fetch_max_wait_ms: int = _ms("fetch.max.wait.ms", 500, "How long a broker holds a fetch that finds nothing.")
    check_crcs: bool = setting("check.crcs", ConfigType.BOOLEAN, True, "Whether each batch's CRC is checked.")
    acks: str = setting("acks", ConfigType.STRING, "all", "Replicas that must have a batch: all, 1 or 0.", _acks)
    compression: str = setting(
        "compression.type",
        ConfigType.STRING,
        "none",
        "How batches are compressed.",
        one_of(*(kind.name.lower() for kind in CompressionType)),
    )
    batch_size: int = setting(
        "batch.size", ConfigType.INT, 512 << 10, "Bytes of records, uncompressed, that a batch aims at.", _positive()
    )
    max_request_size: int = setting(
        "max.request.size", ConfigType.INT, 8 << 20, "Most bytes of records in a produce request.", _positive()
    )
    max_in_flight: int = setting(
        "max.in.flight.requests.per.connection", ConfigType.INT, 5, "Produce requests not yet answered.", _positive()
    )

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """From text properties by Kafka's names; others are ignored, with a warning.

        Raises ConfigError for a value that cannot be, and for files of TLS that cannot be used.
        """
        known = definitions(cls)
        _check_meant(properties)
        asked = (
            {} if _is_plain(properties) else {name: properties[name] for name in filter(asks_for_security, properties)}
        )
        _warn_of_ignored(frozenset(properties) - frozenset(known) - frozenset(asked), known)
        _check_misspelt_bootstrap(properties)
        config = parse(cls, {name: text for name, text in properties.items() if name in known})
        parse_bootstrap(config.bootstrap_servers)
        config = dataclasses.replace(config, security=_security_of(asked))
        config.connection_security(SystemClock())
        return config

    def connection_security(self, clock: Clock) -> ConnectionSecurity:
        """How connections are secured, with the files as they are now. Raises ConfigError."""
        protocol = SecurityProtocol[self.security_protocol.upper()]
        return connection_security(protocol, self.security.get(_SASL_MECHANISM, ""), self.security, clock)

    @property
    def has_sasl(self) -> bool:
        """Whether connections authenticate by SASL."""
        return SecurityProtocol[self.security_protocol.upper()].has_sasl

    @property
    def token_id(self) -> str | None:
        """Of the delegation token by which connections authenticate; None where it is something else."""
        return token_id_of(self.security.get(_SASL_MECHANISM, ""), self.security) if self.has_sasl else None

    def without_credentials(self) -> Self:
        """The same settings, but for all that proves who we are."""
        kept = {name: text for name, text in self.security.items() if not name.startswith(_CREDENTIALS)}
        return dataclasses.replace(self, security=kept)

    def by_token(self, token_id: str, password: str) -> Self:
        """The same settings, but for the credentials: those of a delegation token. It is shown by SCRAM, by the
        mechanism that is set, if that is one of SCRAM's.
        """
        told = self.security.get(_SASL_MECHANISM, "")
        mechanism = told if told in SCRAM_MECHANISMS else _TOKEN_MECHANISM
        found = self.without_credentials()
        login = {_SASL_MECHANISM: mechanism, JAAS: login_of_token(mechanism, token_id, password)}
        return dataclasses.replace(found, security={**found.security, **login})

    def reaching(self) -> dict[str, str]:
        """The settings by which the cluster is reached, and of the others none; passwords are among them."""
        return {
            **self.security,
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": self.client_id,
            "security.protocol": self.security_protocol,
        }

    @property
    def bootstrap(self) -> tuple[Endpoint, ...]:
        """Where to ask first."""
        return parse_bootstrap(self.bootstrap_servers)

    @property
    def isolation_level(self) -> IsolationLevel:
        return IsolationLevel[self.isolation.upper()]

    @property
    def required_acks(self) -> int:
        """As the wire has it: -1 for all in-sync replicas."""
        return -1 if self.acks == "all" else int(self.acks)

    @property
    def compression_type(self) -> CompressionType:
        return CompressionType.from_name(self.compression)


def as_properties(settings: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> dict[str, str]:
    """Kafka's names and texts, from a mapping and from keywords, whose underscores stand for dots; None is left out.

    Raises ConfigError for what is neither.
    """
    if settings is not None and not isinstance(settings, Mapping):
        raise ConfigError(
            f"settings are a mapping, such as {{'bootstrap.servers': 'host:port'}}, or keywords, not {settings!r}"
        )
    named = dict(settings or {}) | {name.replace("_", "."): value for name, value in keywords.items()}
    return {name: _text(value) for name, value in named.items() if value is not None}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)
