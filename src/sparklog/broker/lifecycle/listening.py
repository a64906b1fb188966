"""The listeners of a broker: what each asks of its peers, by the settings that are in force for it.

Certificates are read again when they change on disk, and are for the next handshake, of others with this broker and of
this broker with others; connections that are there keep theirs. A file that cannot be read, or does not fit, leaves the
last good one in force, and the log says so.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from sparklog.clock import Clock
from sparklog.config.broker import BrokerConfig
from sparklog.config.listeners import Listener
from sparklog.errors import ConfigError
from sparklog.net.listen_failure import remedy
from sparklog.net.server import Entrance, SocketServer
from sparklog.security.caller import Caller, Gate
from sparklog.security.connecting import PLAIN, ConnectionSecurity
from sparklog.security.connection_settings import connection_security
from sparklog.security.mechanisms import settings_of
from sparklog.security.principal import ANONYMOUS, Principal
from sparklog.security.principal_builder import Peer, PrincipalBuilder, as_it_is, builder_of_listener
from sparklog.security.tls.contexts import client_context, server_context
from sparklog.security.tls.distinguished_name import subject_name
from sparklog.security.tls.principal_mapping import PrincipalMapping
from sparklog.security.tls.settings import TlsSettings
from sparklog.structs import Endpoint

_logger = logging.getLogger(__name__)
_MECHANISM = "sasl.mechanism.inter.broker.protocol"
GateMaker = Callable[[Listener, Mapping[str, str]], Callable[[Caller], Gate]]
"""From a listener and its settings to what makes the gate of a connection."""


def security_between_brokers(config: BrokerConfig, clock: Clock) -> ConnectionSecurity:
    """How this broker's connections to others are secured. Raises ConfigError."""
    name = config.ends.between_brokers
    listener = next(each for each in config.ends.bound if each.name == name)
    settings = config.security.of_listener(name)
    mechanism = settings.get(_MECHANISM, "")
    if listener.protocol.has_sasl and not mechanism:
        raise ConfigError(f"brokers speak to each other by listener {name}, which has SASL: set {_MECHANISM}")
    try:
        return connection_security(listener.protocol, mechanism, settings_of(settings, mechanism), clock)
    except ConfigError as error:
        raise ConfigError(f"listener {name}, by which brokers speak to each other: {error}") from error


class ListeningEnds:
    """All of a broker's listeners on one server: taken together, or none of them."""

    def __init__(
        self,
        config: BrokerConfig,
        server: SocketServer,
        gates: GateMaker,
        builder: PrincipalBuilder = as_it_is,
        to_brokers: ConnectionSecurity = PLAIN,
    ) -> None:
        """Takes the ports, without listening yet; ``to_brokers`` is what ``security_between_brokers`` has made.

        Raises ConfigError with what to do where that cannot be.
        """
        ends = config.ends
        self._builder = builder
        self._server = server
        self._kept: list[_Certificates] = []
        bound: dict[str, Endpoint] = {}
        try:
            for listener in ends.bound:
                entrance = self._entrance(listener, config.security.of_listener(listener.name), gates)
                bound[listener.name] = _bind(server, listener, entrance)
        except ConfigError:
            server.close()
            raise
        if to_brokers.tls is not None:
            settings = config.security.of_listener(ends.between_brokers)
            self._kept.append(
                _Certificates(f"{ends.between_brokers} of other brokers", settings, to_brokers, client_context)
            )
        self.bound = tuple(each._replace(endpoint=bound[each.name]) for each in ends.bound)
        """Where it listens."""
        self.advertised = tuple(_with_real_port(each, bound[each.name]) for each in ends.advertised)
        """Where clients, and other brokers, are told to find it."""
        self.for_brokers = next(each.endpoint for each in self.advertised if each.name == ends.between_brokers)
        """Where other brokers are told to find it."""

    def _entrance(self, listener: Listener, settings: Mapping[str, str], gates: GateMaker) -> Entrance:
        entrance = Entrance(listener.name, listener.protocol)
        mapping: PrincipalMapping | None = None
        if listener.protocol.has_tls:
            certificates = _Certificates(listener.name, settings, entrance, server_context)
            self._kept.append(certificates)
            if not listener.protocol.has_sasl:
                mapping = PrincipalMapping(certificates.settings.principal_rules)
        if listener.protocol.has_sasl:
            entrance.gate = gates(listener, settings)
        else:
            builder = builder_of_listener(listener.name, settings, self._builder)
            entrance.principal_of = partial(_principal_of, listener, mapping, builder)
        return entrance

    def look_at_certificates(self) -> None:
        """Take over those that have changed on disk."""
        for each in self._kept:
            each.look()


class _Certificates:
    """The files that a context was made of, and what they looked like then. ``holder`` has the context."""

    def __init__(
        self,
        listener: str,
        settings: Mapping[str, str],
        holder: Entrance | ConnectionSecurity,
        make: Callable[[TlsSettings], ssl.SSLContext],
    ) -> None:
        self._listener = listener
        self._holder = holder
        self._make = make
        self._said = ""
        """Why the files could not be taken over, as was said last."""
        try:
            self.settings = TlsSettings.from_properties(settings)
            self._seen = _looks(self.settings.files)
            holder.tls = make(self.settings)
        except ConfigError as error:
            raise ConfigError(f"listener {listener}: {error}") from error

    def look(self) -> None:
        """Files that cannot be taken over are tried again: it may be mended where it does not show in what they are."""
        looks = _looks(self.settings.files)
        if looks == self._seen:
            return
        try:
            self._holder.tls = self._make(self.settings)
        except ConfigError as error:
            self._say_once(str(error))
        else:
            self._seen, self._said = looks, ""
            _logger.info("listener %s has a new certificate", self._listener)

    def _say_once(self, why: str) -> None:
        if why != self._said:
            self._said = why
            _logger.error("listener %s goes on with the certificate that it has: %s", self._listener, why)


def _principal_of(
    listener: Listener,
    mapping: PrincipalMapping | None,
    builder: PrincipalBuilder,
    host: str,
    certificate: bytes | None,
) -> Principal:
    principal = ANONYMOUS
    if mapping is not None and certificate is not None:
        principal = mapping.principal(subject_name(certificate))
    return builder(Peer(listener.name, listener.protocol, host, principal, certificate))


def _looks(files: Iterable[str | Path]) -> list[tuple[int, int, int] | None]:
    """What tells one state of the files from another; None for one that is not there."""
    looks: list[tuple[int, int, int] | None] = []
    for each in files:
        try:
            found = Path(each).stat()
        except OSError:
            looks.append(None)
        else:
            looks.append((found.st_mtime_ns, found.st_ino, found.st_size))
    return looks


def _bind(server: SocketServer, listener: Listener, entrance: Entrance) -> Endpoint:
    host, port = listener.endpoint
    try:
        return server.bind(host, port, entrance)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {remedy(host, error)}") from error


def _with_real_port(told: Listener, bound: Endpoint) -> Listener:
    """What is told of a listener, with what is not said of it taken from where it listens."""
    return told._replace(endpoint=Endpoint(told.endpoint.host or bound.host, told.endpoint.port or bound.port))
