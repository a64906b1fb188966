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
from sparklog.security.acl.pattern import SPECIFIC, PatternType, ResourcePattern
from sparklog.zk.altering import altered
from sparklog.zk.notifications import NotificationFolder
from sparklog.zk.znode_client import Stored, Told, ZnodeClient

AclList = frozenset[AclEntry]


class Found(NamedTuple):
    """All lists that there are; ``malformed`` are those that cannot be read, and why."""

    lists: dict[ResourcePattern, AclList]
    malformed: dict[ResourcePattern, str]


class AclStore:
    """Failures raise what those of ``ZnodeClient`` do: call the methods by ``guarded`` or ``lasting``."""

    def __init__(self, zk: ZnodeClient) -> None:
        self._zk = zk
        self.changes = tuple(_changes(zk, type_) for type_ in SPECIFIC)
        """Which lists changed; each type of patterns has a folder of its own."""

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


def _changes(zk: ZnodeClient, type_: PatternType) -> NotificationFolder[ResourcePattern]:
    return NotificationFolder(zk, znode.CHANGES[type_], znode.CHANGE_PREFIX, partial(znode.decode_change, type_))


def _decoded(path: str, found: Stored | None) -> AclList:
    return frozenset() if found is None else znode.decode_list(path, found.data)


def _encoded(entries: AclList) -> bytes | None:
    return znode.encode_list(entries) if entries else None
