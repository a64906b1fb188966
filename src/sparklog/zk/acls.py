"""The lists in ZooKeeper: each in a znode, and a notification with each change (``AclAuthorizer.scala``).

A change is a compare-and-set: what it makes of a list it makes of the list as it is, again if that has become another
one meanwhile. So two administrators never lose each other's entries, whether they come by a broker or write here
themselves. The notification is written in the same transaction; Kafka's tools write it after the list. A list without
entries is no znode.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from sparklog.errors import MalformedZnode
from sparklog.security.acl import znode
from sparklog.security.acl.entry import AclEntry
from sparklog.security.acl.pattern import PatternType, ResourcePattern
from sparklog.zk.altering import altered
from sparklog.zk.client import OnChange, Stored, Told, ZkClient

AclList = frozenset[AclEntry]


class Found(NamedTuple):
    """All lists that there are; ``malformed`` are those that cannot be read, and why."""

    lists: dict[ResourcePattern, AclList]
    malformed: dict[ResourcePattern, str]


class AclStore:
    """Failures raise what those of ``ZkClient`` do: call the methods by ``guarded`` or ``lasting``."""

    def __init__(self, zk: ZkClient) -> None:
        self._zk = zk

    def ensure_tree(self) -> None:
        """Make the folders that Kafka's tools expect."""
        self._zk.ensure(znode.PERSISTENT_PATHS)

    def read(self, pattern: ResourcePattern) -> AclList:
        """The list of one pattern; empty where there is none. Raises MalformedZnode."""
        path = znode.list_path(pattern)
        return _decoded(path, self._zk.stored(path))

    def read_all(self) -> Found:
        """Every list, those that cannot be read apart."""
        found, patterns = Found({}, {}), self._patterns()
        paths = [znode.list_path(each) for each in patterns]
        for pattern, path, stored in zip(patterns, paths, self._zk.stored_each(paths), strict=True):
            try:
                found.lists[pattern] = _decoded(path, stored)
            except MalformedZnode as error:
                found.malformed[pattern] = str(error)
        return found

    def _patterns(self) -> list[ResourcePattern]:
        return [
            ResourcePattern(kind, name, type_)
            for type_, root in znode.ROOTS.items()
            for folder, kind in znode.kinds_of(self._zk.names(root)).items()
            for name in self._zk.names(f"{root}/{folder}")
        ]

    def change(self, pattern: ResourcePattern, change: Callable[[AclList], AclList]) -> AclList:
        """Store what ``change`` makes of the list, and tell of it; the list as it was before.

        ``change`` may be called again. Nothing is written where it changes nothing. Raises MalformedZnode where the
        list cannot be read: it must be mended or deleted in ZooKeeper, for nobody knows what it is to say.
        """
        path = znode.list_path(pattern)
        told = Told(f"{znode.CHANGES[pattern.type]}/{znode.CHANGE_PREFIX}", znode.encode_change(pattern))
        what = f"the access control list of {pattern}"
        before, _ = altered(self._zk, what, path, told, partial(_decoded, path), _encoded, change)
        return before

    def changes(self, type_: PatternType, on_change: OnChange | None = None) -> list[int]:
        """The numbers of the changes told of lately, in order; each type of patterns has numbers of its own."""
        return self._zk.numbers(znode.CHANGES[type_], znode.CHANGE_PREFIX, on_change)

    def changed(self, type_: PatternType, number: int) -> ResourcePattern | None:
        """Which list changed; None if it is forgotten already. Raises MalformedZnode."""
        path = znode.change_path(type_, number)
        found = self._zk.stored(path)
        return None if found is None else znode.decode_change(path, type_, found.data)

    def forget_changes(self, type_: PatternType, kept_ms: int) -> None:
        """Remove what was told more than ``kept_ms`` before the newest."""
        self._zk.forget_older(znode.CHANGES[type_], znode.CHANGE_PREFIX, kept_ms)

    @property
    def session_id(self) -> int:
        """The session that there is now; 0 when there is none."""
        return self._zk.session_id


def _decoded(path: str, found: Stored | None) -> AclList:
    return frozenset() if found is None else znode.decode_list(path, found.data)


def _encoded(entries: AclList) -> bytes | None:
    return znode.encode_list(entries) if entries else None
