"""The access control lists of this broker: read from ZooKeeper at the start, followed and changed from then on.

The authorizer answers from a snapshot in memory. Every broker takes over the lists that notifications name, or reads
all lists again (``broker.following``); a lost watch costs seconds. Until that has succeeded, what was known last is in
force.

A list that cannot be read allows nothing new: what it said before stays in force, and where nothing was known of it,
it denies everything to everybody but super users. It is named in the log.

What changes is taken over by one at a time, for a request and a notification may tell of two changes at once: what is
read last is in force last. A change that was made here is in force here before its request is answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from sparklog.broker.following import Following, NamedChanges, RunZk
from sparklog.clock import Clock
from sparklog.config.broker import BrokerConfig
from sparklog.errors import MalformedZnode
from sparklog.security.acl.authorizer import AclAuthorizer
from sparklog.security.acl.entry import DENY_EVERYBODY, AclEntry
from sparklog.security.acl.pattern import ResourcePattern
from sparklog.security.acl.snapshot import AclSnapshot
from sparklog.security.audit import AuditLog
from sparklog.security.principal import parse_super_users
from sparklog.zk.acls import AclStore, Found
from sparklog.zk.client import ZkClient

_logger = logging.getLogger(__name__)
_SEALED = frozenset({DENY_EVERYBODY})


def configured(config: BrokerConfig, zk: ZkClient, run_zk: RunZk, clock: Clock) -> Acls | None:
    """The lists by which a broker decides; None where it has no authorizer, and everybody may do everything."""
    if not config.authorizer_class_name:
        return None
    audit = AuditLog(clock.monotonic)
    authorizer = AclAuthorizer(
        parse_super_users(config.super_users), audit, allow_without_acl=config.allow_everyone_if_no_acl_found
    )
    return Acls(authorizer, audit, AclStore(zk), run_zk)


class Acls:
    """``authorizer`` always decides by the lists in force here."""

    def __init__(self, authorizer: AclAuthorizer, audit: AuditLog, store: AclStore, run_zk: RunZk) -> None:
        self.authorizer = authorizer
        self.audit = audit
        self._store = store
        self._run_zk = run_zk
        self._following = Following(self._catch_up, "access control lists", _logger)
        self._changes = NamedChanges(store.changes, self._take_over, run_zk, self._following)
        self._one_at_a_time = asyncio.Lock()

    @property
    def snapshot(self) -> AclSnapshot:
        """The lists in force."""
        return self.authorizer.snapshot

    async def load(self) -> None:
        """Read all lists; what changes after this call began will be followed. Raises CoordinationError."""
        await self._run_zk(self._store.ensure_tree)
        await self._changes.read_all(self._read_all)

    def follow(self) -> None:
        """Take over what changes, from now on."""
        self._following.start()

    async def close(self) -> None:
        await self._following.close()

    async def change(
        self, pattern: ResourcePattern, change: Callable[[frozenset[AclEntry]], frozenset[AclEntry]]
    ) -> frozenset[AclEntry]:
        """Make another list of the pattern's, in ZooKeeper and here; the list as it was before.

        ``change`` may be called again. Raises MalformedZnode, which changes nothing, and CoordinationError: then it is
        not known whether it was changed.
        """
        before: frozenset[AclEntry] = await self._run_zk(self._store.change, pattern, change)
        await self._take_over(pattern)
        return before

    async def _catch_up(self) -> None:
        await self._changes.catch_up(self._read_all)

    async def _read_all(self) -> None:
        async with self._one_at_a_time:
            found, snapshot = await self._run_zk(self._read)
            for pattern, entries in self._kept(found.malformed).items():
                snapshot = snapshot.with_list(pattern, entries)
            self.authorizer.snapshot = snapshot

    def _read(self) -> tuple[Found, AclSnapshot]:
        """On the thread that waits for ZooKeeper: of many lists a snapshot takes a while to make."""
        found = self._store.read_all()
        return found, AclSnapshot(found.lists)

    async def _take_over(self, pattern: ResourcePattern) -> None:
        async with self._one_at_a_time:
            try:
                entries = await self._run_zk(self._store.read, pattern)
            except MalformedZnode as error:
                entries = self._kept({pattern: str(error)})[pattern]
            self.authorizer.snapshot = self.snapshot.with_list(pattern, entries)

    def _kept(self, malformed: Mapping[ResourcePattern, str]) -> dict[ResourcePattern, frozenset[AclEntry]]:
        """What is in force of lists that cannot be read."""
        for pattern, why in malformed.items():
            known = "what it said before stays in force" if self.snapshot.entries(pattern) else "it denies everything"
            _logger.error("%s; until it is mended or deleted, %s", why, known)
        return {pattern: self.snapshot.entries(pattern) or _SEALED for pattern in malformed}
