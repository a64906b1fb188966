"""Which principal a peer is taken for, if somebody wants to decide that (``principal.builder.class``; KIP-189).

A builder is an entry point of the group ``sparklog.principal_builders``. It is called with what is known of a peer when
it has authenticated, or has come by a listener that asks for nothing, and returns the principal. It is called on the
broker's loop, so it must not wait for anything. One that raises, or returns something else, lets nobody in: the
connection is closed and the log says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any, NamedTuple, Protocol

from sparklog.config.security import PRINCIPAL_BUILDER
from sparklog.config.security_protocol import SecurityProtocol
from sparklog.errors import AuthenticationFailed, ConfigError
from sparklog.security.principal import Principal

GROUP = "sparklog.principal_builders"
"""The entry points' group."""
_KAFKAS_OWN = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"


class Peer(NamedTuple):
    """What is known of a peer."""

    listener: str
    protocol: SecurityProtocol
    host: str
    """Its address, without a port."""
    principal: Principal
    """What it is without a builder."""
    certificate: bytes | None
    """In DER, where it has shown one on a listener without SASL."""


PrincipalBuilder = Callable[[Peer], Principal]


class Installed(Protocol):
    """What an entry point is here."""

    name: str

    def load(self) -> Any:
        """Whatever importing it raises."""


def as_it_is(peer: Peer) -> Principal:
    """The builder where none is configured."""
    return peer.principal


def find_installed() -> Iterable[Installed]:
    """The builders that packages bring."""
    return entry_points(group=GROUP)


def principal_builder(name: str, find: Callable[[], Iterable[Installed]] = find_installed) -> PrincipalBuilder:
    """The builder of this name. Raises ConfigError for one that is not here, or is a class of Java."""
    if name in ("", _KAFKAS_OWN):
        return as_it_is
    installed = {each.name: each for each in find()}
    if name not in installed:
        known = ", ".join(sorted(installed)) or "none"
        raise ConfigError(
            f"principal.builder.class={name}: there is no such builder here; this broker has {known}. Classes of Java"
            f" cannot be run: a builder is a Python function, an entry point of the group {GROUP!r}"
        )
    try:
        build = installed[name].load()
    except Exception as error:  # whatever importing a stranger's module raises
        raise ConfigError(f"principal.builder.class={name} cannot be loaded: {error!r}") from error
    return _checked(name, build)


def builder_of_listener(listener: str, settings: Mapping[str, str], general: PrincipalBuilder) -> PrincipalBuilder:
    """The builder that a listener's settings name, else the ``general`` one. Raises ConfigError."""
    if PRINCIPAL_BUILDER not in settings:
        return general
    try:
        return principal_builder(settings[PRINCIPAL_BUILDER].strip())
    except ConfigError as error:
        raise ConfigError(f"listener {listener}: {error}") from error


def _checked(name: str, build: Callable[[Peer], object]) -> PrincipalBuilder:
    def checked(peer: Peer) -> Principal:
        try:
            built = build(peer)
        except Exception as error:
            raise AuthenticationFailed(f"the principal builder {name} failed: {error!r}") from error
        if not isinstance(built, Principal):
            raise AuthenticationFailed(f"the principal builder {name} returned no Principal")
        return built

    return checked
