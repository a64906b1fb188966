"""Which bound holds for a client, and who shares it (``ClientQuotaManager.scala``, ``DefaultQuotaCallback``).

The first of these that is set: (user, client id), (user, default client id), user, (default user, client id), (default
user, default client id), default user, client id, default client id.

Clients that share a bound share a sensor, which is named by ``Tags``: by the user and the client id at the levels of
both, by the user alone at those of users, by the client id alone at those of client ids. So a user's quota is for all
his clients together, and the default user's for each user by himself. While bounds are set at one kind of level alone,
everybody's sensor is named by that kind. Else a client without any bound goes by his client id.

What is found for tags is what their names say: a user without a client id is looked for at the levels of users. So a
client that gives no client id has, where (user, default client id) is set, the bound of his user.
"""

from __future__ import annotations

from hashlib import sha256
from itertools import product
from typing import Final, NamedTuple

from sparklog.quota.entity import DEFAULT, Entity

_LONGEST: Final = 256
"""Characters of names that are kept."""


class Tags(NamedTuple):
    """What a sensor goes by; empty where all of a kind share it."""

    user: str
    client_id: str

    @property
    def is_short(self) -> bool:
        """Whether they may be kept. A name has up to 32 KiB, and a stranger may bring as many as it likes."""
        return len(self.user) + len(self.client_id) <= _LONGEST

    @property
    def key(self) -> Tags | bytes:
        """As a sensor is kept under: themselves, or a digest of them."""
        if self.is_short:
            return self
        return sha256(repr((self.user, self.client_id)).encode("utf-8", "surrogatepass")).digest()


_CLIENT_IDS, _USERS, _BOTH = 1, 2, 4
_KINDS: Final = {(False, True): _CLIENT_IDS, (True, False): _USERS, (True, True): _BOTH}


class Limits:
    """The bounds of one type of quota, by whom they are for. ``version`` changes with each of them."""

    def __init__(self) -> None:
        self.version = 0
        self._bounds: dict[Entity, float] = {}
        self._of_kind = dict.fromkeys(_KINDS.values(), 0)
        self._kinds = 0

    @property
    def is_set(self) -> bool:
        """Whether there is any."""
        return bool(self._bounds)

    def set(self, entity: Entity, bound: float | None) -> None:
        """From now on, for this entity; None for none of its own."""
        if self._bounds.get(entity) == bound:
            return
        self.version += 1
        self._of_kind[_kind(entity)] += (bound is not None) - (entity in self._bounds)
        self._kinds = sum(kind for kind, number in self._of_kind.items() if number)
        if bound is None:
            del self._bounds[entity]
        else:
            self._bounds[entity] = bound

    def tags(self, user: str, client_id: str) -> Tags:
        """By what this client's sensor goes."""
        if self._kinds in (0, _CLIENT_IDS):
            return Tags("", client_id)
        if self._kinds == _USERS:
            return Tags(user, "")
        if self._kinds == _BOTH:
            return Tags(user, client_id)
        for whose in (user, DEFAULT):
            if Entity(whose, client_id) in self._bounds or Entity(whose, DEFAULT) in self._bounds:
                return Tags(user, client_id)
            if Entity(whose) in self._bounds:
                return Tags(user, "")
        return Tags("", client_id)

    def bound(self, tags: Tags) -> float | None:
        """What holds for a client with these names; None for no bound."""
        users = (tags.user, DEFAULT) if tags.user else (None,)
        client_ids = (tags.client_id, DEFAULT) if tags.client_id else (None,)
        for user, client_id in product(users, client_ids):
            bound = self._bounds.get(Entity(user, client_id))
            if bound is not None:
                return bound
        return None


def _kind(entity: Entity) -> int:
    return _KINDS[entity.user is not None, entity.client_id is not None]
