"""What DescribeClientQuotas and AlterClientQuotas ask for (KIP-546, ``ZkAdminManager.scala``).

An entity is named by parts, each of a kind, ``user``, ``client-id`` or ``ip``, with a name or the default. A filter has
a component for some kinds: a name, the default, or any of the kind. An entity is found if each component has a part
that it fits; where the filter is strict, it may have no other parts. Addresses are not asked for together with users
or client ids, and a strict filter without components finds nothing.

A change of an entity sets some quotas and takes others away. It is made whole, or refused with INVALID_REQUEST: for a
key that the entity does not have, a value that is none, or an entity that can have no quotas.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from sparklog.errors import ApiError, ConfigError, ErrorCode
from sparklog.quota.entity import DEFAULT, Entity, IpEntity, Name
from sparklog.quota.keys import keys_of

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
_KINDS: Final = (USER, CLIENT_ID, IP)


class Match(IntEnum):
    """How a component of a filter fits, as on the wire."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class Component(NamedTuple):
    """A part of a filter."""

    kind: str
    match: int
    name: str | None
    """Of an exact match."""


class Filter:
    """Which entities are asked for."""

    def __init__(self, components: Sequence[Component], *, is_strict: bool) -> None:
        """Raises ApiError for components that cannot be together, or are none."""
        self._strict = is_strict
        self._wanted: dict[str, Name | None] = {}
        for each in components:
            self._add(each)
        if IP in self._wanted and len(self._wanted) > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, "an ip has no user and no client-id: ask for them one by one")

    def _add(self, component: Component) -> None:
        kind = component.kind
        if kind not in _KINDS:
            code = ErrorCode.UNSUPPORTED_VERSION if kind else ErrorCode.INVALID_REQUEST
            raise ApiError(code, f"there are no quotas by {kind!r}: ask for {', '.join(_KINDS)}")
        if kind in self._wanted:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the filter has two components of {kind}")
        self._wanted[kind] = _wanted(component)

    def asks_for(self, kind: str) -> bool:
        """Whether any entity with a part of this kind can be found."""
        return not self._wanted or kind in self._wanted or (kind != IP and IP not in self._wanted)

    def fits(self, entity: Entity | IpEntity) -> bool:
        """Whether it is one of them."""
        found = dict(parts_of(entity))
        return all(kind in found and want in (None, found[kind]) for kind, want in self._wanted.items()) and not (
            self._strict and found.keys() - self._wanted.keys()
        )


def _wanted(component: Component) -> Name | None:
    """The name; None for any."""
    if component.match == Match.ANY:
        return None
    if component.match == Match.DEFAULT:
        return DEFAULT
    if component.match != Match.EXACT or component.name is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{component.kind}: match type {component.match} without a name")
    return component.name


def parts_of(entity: Entity | IpEntity) -> list[tuple[str, Name]]:
    """The kinds and names that it is named by."""
    if isinstance(entity, IpEntity):
        return [(IP, entity.ip)]
    named = ((USER, entity.user), (CLIENT_ID, entity.client_id))
    return [(kind, name) for kind, name in named if name is not None]


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity | IpEntity:
    """What is named so; None for the default. Raises ApiError(INVALID_REQUEST) for what has no quotas."""
    found: dict[str, Name] = {}
    for kind, name in parts:
        if kind not in _KINDS:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"there are no quotas by {kind!r}, but by {', '.join(_KINDS)}")
        if name == "":
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{kind} is empty")
        found[kind] = DEFAULT if name is None else name
    if not found:
        raise ApiError(ErrorCode.INVALID_REQUEST, "there is no entity: name a user, a client-id or an ip")
    if IP not in found:
        return Entity(found.get(USER), found.get(CLIENT_ID))
    if len(found) > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "an ip has no user and no client-id: change them one by one")
    return IpEntity(found[IP])


def changes_of(entity: Entity | IpEntity, asked: Iterable[tuple[str, float | None]]) -> dict[str, str | None]:
    """The settings to store, None for those to take away; of two for one key the later.

    Raises ApiError(INVALID_REQUEST).
    """
    keys = keys_of(entity)
    changes: dict[str, str | None] = {}
    for name, value in asked:
        if name not in keys:
            if value is None:  # there is none to take away
                continue
            raise ApiError(ErrorCode.INVALID_REQUEST, f"there is no quota {name!r} here, but {', '.join(keys)}")
        try:
            changes[name] = None if value is None else keys[name].text(value)
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name}: {error}") from error
    return changes
