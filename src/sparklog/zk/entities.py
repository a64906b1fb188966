"""What has settings in ZooKeeper besides topics and brokers: users, client ids, client ids of users, addresses.

An entity is named by its path below ``/config``, as in a notification: ``users/alice``, ``clients/app``,
``users/alice/clients/app``, ``ips/10.0.0.1``. Names are percent-encoded as Kafka does it (``Sanitizer.java``), but for
addresses; the entity that holds the defaults is ``<default>``, which no encoded name can be. A user's znode has both
credentials and quotas, so a change replaces single settings and leaves the others.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import quote, unquote_plus

from sparklog.errors import ConfigError

USERS: Final = "users"
CLIENTS: Final = "clients"
IPS: Final = "ips"
ENTITY_KINDS: Final = (USERS, CLIENTS, IPS)
DEFAULT_ENTITY: Final = "<default>"


class Part(NamedTuple):
    """One kind and name of an entity's path."""

    kind: str
    name: str | None
    """As it was before encoding; None for the default of the kind."""


def sanitize(name: str) -> str:
    """A name as it stands in a path. Raises ConfigError for one that no znode can have."""
    if name in ("", ".", ".."):
        raise ConfigError(f"{name!r} cannot be the name of a user or a client id in ZooKeeper")
    return quote(name, safe="").replace("~", "%7E")


def desanitize(name: str) -> str:
    """What ``sanitize`` was given."""
    return unquote_plus(name)


def user_entity(user: str | None) -> str:
    """The settings of a user; of users without settings of their own where it is None. Raises ConfigError."""
    return f"{USERS}/{_name(user)}"


def client_entity(client_id: str | None) -> str:
    """The settings of a client id; of those without settings of their own where it is None. Raises ConfigError."""
    return f"{CLIENTS}/{_name(client_id)}"


def user_client_entity(user: str | None, client_id: str | None) -> str:
    """The settings of a user's client id; None as above, for either. Raises ConfigError."""
    return f"{user_entity(user)}/{client_entity(client_id)}"


def ip_entity(address: str | None) -> str:
    """The settings of an address; of those without settings of their own where it is None. Raises ConfigError."""
    if address is not None and (address in ("", ".", "..") or "/" in address):
        raise ConfigError(f"{address!r} is no address")
    return f"{IPS}/{DEFAULT_ENTITY if address is None else address}"


def _name(name: str | None) -> str:
    return DEFAULT_ENTITY if name is None else sanitize(name)


def parts(entity: str) -> tuple[Part, ...]:
    """The kinds and names of an entity's path, outermost first.

    Raises ConfigError for what is no entity of these kinds.
    """
    words = entity.split("/")
    kinds, names = words[::2], words[1::2]
    if kinds not in ([USERS], [CLIENTS], [IPS], [USERS, CLIENTS]) or len(names) != len(kinds) or "" in names:
        raise ConfigError(f"{entity!r} names no user, client id or address")
    return tuple(_part(kind, name) for kind, name in zip(kinds, names, strict=True))


def _part(kind: str, name: str) -> Part:
    if name == DEFAULT_ENTITY:
        return Part(kind, None)
    return Part(kind, name if kind == IPS else desanitize(name))
