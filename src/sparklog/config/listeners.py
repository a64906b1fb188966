"""The listeners of a broker: ``NAME://HOST:PORT`` with a protocol for each name (Kafka 3.9, ``KafkaConfig``).

A name is a listener's identity: clients are told the addresses of the listener of the name by which they came, and
brokers find each other by one name in the whole cluster. Names are case-insensitive, and written in capitals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sparklog.config.security_protocol import SecurityProtocol
from sparklog.errors import ConfigError
from sparklog.structs import Endpoint

PLAINTEXT = "PLAINTEXT"
"""The name of the listener that there is where none is named."""
DEFAULT_PROTOCOLS = "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
_LISTENER = re.compile(r"(?P<name>[\w.-]+)://(?:\[(?P<v6>[0-9A-Fa-f:.%]*)\]|(?P<host>[^\s:/\[\]]*)):(?P<port>\d+)")


class Listener(NamedTuple):
    """Where it listens, or where clients are told to find it."""

    name: str
    protocol: SecurityProtocol
    endpoint: Endpoint

    def __str__(self) -> str:
        return str(self.endpoint) if self.name == PLAINTEXT else f"{self.name}://{self.endpoint}"


def plain_listener(endpoint: Endpoint) -> Listener:
    """The listener that there is where nothing is said of any."""
    return Listener(PLAINTEXT, SecurityProtocol.PLAINTEXT, endpoint)


def unless_plain(listeners: tuple[Listener, ...]) -> tuple[Listener, ...]:
    """None of them where there is just the one of which nothing need be said."""
    (first, *others) = listeners
    return () if not others and first == plain_listener(first.endpoint) else listeners


@dataclass(frozen=True)
class Listeners:
    """All of a broker's. ``advertised`` has one of each name in ``bound``, in the same order, save those not told."""

    bound: tuple[Listener, ...]
    advertised: tuple[Listener, ...]
    between_brokers: str
    """The name of the one by which brokers speak to each other."""


def parse_protocols(text: str) -> dict[str, SecurityProtocol]:
    """Listener's name → protocol from ``NAME:PROTOCOL,NAME:PROTOCOL``. Raises ConfigError on what is not that."""
    protocols = {}
    for item in _items(text):
        name, _, protocol = item.partition(":")
        protocols[name.strip().upper()] = parse_protocol("listener.security.protocol.map", protocol)
    return protocols


def parse_protocol(setting: str, text: str) -> SecurityProtocol:
    """Raises ConfigError naming the setting."""
    try:
        return SecurityProtocol[text.strip().upper()]
    except KeyError:
        raise ConfigError(f"{setting}: {text.strip()!r} is none of {', '.join(SecurityProtocol.__members__)}") from None


def parse_listeners(setting: str, text: str, protocols: Mapping[str, SecurityProtocol]) -> tuple[Listener, ...]:
    """Raises ConfigError for what is no listener, for a name without a protocol, and for a name that comes twice."""
    found: dict[str, Listener] = {}
    for item in _items(text):
        match = _LISTENER.fullmatch(item)
        if match is None or int(match["port"]) > 65535:
            raise ConfigError(f"{setting}: {item!r} is not NAME://HOST:PORT")
        name = match["name"].upper()
        if name not in protocols:
            raise ConfigError(
                f"{setting}: listener {name} has no protocol; add {name}:SASL_SSL, or another one, to"
                " listener.security.protocol.map"
            )
        if name in found:
            raise ConfigError(f"{setting}: two listeners are called {name}")
        endpoint = Endpoint(match["v6"] or match["host"] or "", int(match["port"]))
        found[name] = Listener(name, protocols[name], endpoint)
    return tuple(found.values())


def between_brokers(name: str, protocol: str, listeners: tuple[Listener, ...]) -> str:
    """The name of the listener that brokers use, by ``inter.broker.listener.name`` or the protocol.

    Raises ConfigError where both are given, or the listener is none of these.
    """
    if name and protocol:
        raise ConfigError("give inter.broker.listener.name or security.inter.broker.protocol, not both")
    chosen = (name or protocol or PLAINTEXT).strip().upper()
    names = [each.name for each in listeners]
    if chosen in names:
        return chosen
    if not name and not protocol and len(names) == 1:
        return names[0]
    raise ConfigError(
        f"brokers would speak to each other by listener {chosen}, which is not among {', '.join(names)}: set"
        " inter.broker.listener.name to one of them"
    )


def _items(text: str) -> list[str]:
    return [each for each in map(str.strip, text.split(",")) if each]
