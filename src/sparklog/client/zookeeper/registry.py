"""``GroupRegistry``: a member's session, and what it reads and writes in the folders of its group.

Blocking; for one thread at a time, but for ``close``. Every failure of ZooKeeper raises CoordinationError.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from sparklog.client.zookeeper import group
from sparklog.client.zookeeper.group import Layout, Member
from sparklog.config.zookeeper_security import ZooKeeperSecurity
from sparklog.errors import MalformedZnode
from sparklog.structs import TopicPartition
from sparklog.zk import znodes
from sparklog.zk.holding import HoldingClient, Seen, Write
from sparklog.zk.znode_client import OnChange
from sparklog.zk.znodes import BrokerInfo

_logger = logging.getLogger(__name__)
NO_VERSION = -1
"""Of an offset that nobody has written yet."""


class Claim(NamedTuple):
    """A partition that an owner wants; ``name`` is that of its znode."""

    tp: TopicPartition
    owner: str
    name: str


class StoredOffset(NamedTuple):
    """Where a group reads on, None for nowhere yet; ``version`` is that of the znode under the claim's own name."""

    offset: int | None
    version: int
    older: tuple[str, ...] = ()
    """Paths under which the offset of the partition stands too."""


class GroupRegistry:
    """The folders of one group, by one session."""

    def __init__(
        self,
        connect: str,
        group_id: str,
        layout: Layout,
        *,
        session_timeout: float,
        connect_timeout: float,
        on_session: Callable[[str], None],
        security: ZooKeeperSecurity,
    ) -> None:
        group.group_path(group_id)  # refuses a name that cannot be, before there is a session
        self._group, self.layout = group_id, layout
        self._is_closed = False
        self._zk = HoldingClient(
            connect,
            session_timeout=session_timeout,
            connect_timeout=connect_timeout,
            on_session=on_session,
            makes_chroot=False,
            security=security,
        )

    def close(self) -> None:
        """End the session: the registration and all claims go at once."""
        if not self._is_closed:
            self._is_closed = True
            self._zk.close()

    # what there is

    def members(self, on_change: OnChange) -> list[Member]:
        """The registered members. One whose znode cannot be read takes part in nothing, to everybody."""
        folder = group.ids_path(self._group)
        paths = [f"{folder}/{name}" for name in self._zk.guarded(self._zk.children, folder, on_change)]
        found = []
        for path, seen in zip(paths, self._zk.guarded(self._zk.seen_each, paths), strict=True):
            try:
                if seen is not None:
                    found.append(group.decode_member(path, seen.data))
            except MalformedZnode as error:
                _logger.error("a member is left out of the group: %s", error)
        return found

    def brokers(self, on_change: OnChange) -> dict[int, BrokerInfo]:
        """The live brokers."""
        return self._zk.guarded(self._zk.brokers.live, on_change)

    def topics(self, on_change: OnChange) -> list[str]:
        """The names of all topics."""
        return self._zk.guarded(self._zk.children, znodes.BROKER_TOPICS, on_change)

    def homes(self, topic: str, on_change: OnChange) -> dict[int, int]:
        """The home of each partition of a topic; none where there is no such topic, or it cannot be read."""
        data = self._zk.guarded(self._zk.watched, znodes.topic_path(topic), on_change)
        try:
            assignment = None if data is None else znodes.decode_topic(topic, data)
        except MalformedZnode as error:
            _logger.error("nothing of topic %s is read: %s", topic, error)
            return {}
        table = {} if assignment is None else assignment.partitions
        return {partition: replicas[0] if replicas else 0 for partition, replicas in table.items()}

    def member_ids(self) -> list[str]:
        """The names of all that are registered, whatever they wrote."""
        return self._zk.guarded(self._zk.names, group.ids_path(self._group))

    def topics_with_offsets(self) -> list[str]:
        """The topics of which the group has offsets."""
        return self._zk.guarded(self._zk.names, f"{group.group_path(self._group)}/offsets")

    def stored_partitions(self, topic: str) -> list[int]:
        """The partitions of a topic of which the group has offsets."""
        return sorted(self._names(group.offsets_path(self._group, topic)))

    # this member

    def holder(self, consumer: str) -> int | None:
        """The session that has registered the id; None for none."""
        (seen,) = self._zk.guarded(self._zk.seen_each, [group.id_path(self._group, consumer)])
        return None if seen is None else seen.session

    def register(self, member: Member, now_ms: int) -> bool:
        """Whether the id is this session's now. May be called again."""
        path = group.id_path(self._group, member.id)
        if self.holder(member.id) == self._zk.session_id:
            return True
        return path in self._zk.guarded(self._zk.hold_each, {path: group.encode_member(member, now_ms)})

    def leave(self, consumer: str) -> None:
        """Take the registration back."""
        self._zk.guarded(self._zk.let_go, [group.id_path(self._group, consumer)])

    # claims

    def claim(self, claims: Iterable[Claim]) -> set[Claim]:
        """Those of the claims that hold; nothing is left of the others."""
        by_path = {self._claim_path(each): each for each in claims}
        wanted = {path: claim.owner.encode() for path, claim in by_path.items()}
        held: dict[str, Seen] = self._zk.guarded(self._zk.hold_each, wanted)
        beaten = self._beaten({by_path[path]: seen.created for path, seen in held.items()})
        if beaten:
            self.release(beaten)
        return {by_path[path] for path in held}.difference(beaten)

    def _beaten(self, held: Mapping[Claim, int]) -> list[Claim]:
        """Those before which the partition was claimed under another name: it holds the consumer that came first."""
        topics = {claim.tp.topic for claim in held}
        names = {topic: self._names(group.owners_path(self._group, topic)) for topic in topics}
        found = []
        for claim, created in held.items():
            paths = names[claim.tp.topic].get(claim.tp.partition, [])
            others = [each for each in paths if each != self._claim_path(claim)]
            if others and self._is_older(others, created):
                found.append(claim)
        return found

    def _is_older(self, paths: list[str], created: int) -> bool:
        seen = self._zk.guarded(self._zk.seen_each, paths)
        return any(each is not None and each.created < created for each in seen)

    def release(self, claims: Iterable[Claim]) -> None:
        """Give claims up."""
        self._zk.guarded(self._zk.let_go, [self._claim_path(each) for each in claims])

    def is_free(self, claim: Claim, on_change: OnChange) -> bool:
        """Whether nobody has the claim; ``on_change`` is told when that changes."""
        return self._zk.guarded(self._zk.watched, self._claim_path(claim), on_change) is None

    def _claim_path(self, claim: Claim) -> str:
        return f"{group.owners_path(self._group, claim.tp.topic)}/{claim.name}"

    def _holds(self, claim: Claim) -> bool:
        return self._zk.guarded(self._zk.holds, self._claim_path(claim), claim.owner.encode())

    # offsets

    def offsets(self, claims: Iterable[Claim]) -> dict[Claim, StoredOffset]:
        """Where the group reads on. To be asked for once the claims are held."""
        asked = list(claims)
        folders = {topic: group.offsets_path(self._group, topic) for topic in {each.tp.topic for each in asked}}
        names = {topic: self._names(folder) for topic, folder in folders.items()}
        return {
            claim: self._offset(
                f"{folders[claim.tp.topic]}/{claim.name}", names[claim.tp.topic].get(claim.tp.partition, [])
            )
            for claim in asked
        }

    def _offset(self, own: str, paths: list[str]) -> StoredOffset:
        """The one that was written last of those that can be read."""
        seen = {
            path: each
            for path, each in zip(paths, self._zk.guarded(self._zk.seen_each, paths), strict=True)
            if each is not None
        }
        version = seen[own].version if own in seen else NO_VERSION
        others = tuple(path for path in seen if path != own)
        for path, each in sorted(seen.items(), key=lambda item: item[1].written, reverse=True):
            try:
                return StoredOffset(group.decode_offset(path, each.data), version, others)
            except MalformedZnode as error:
                _logger.error("a stored offset is passed over: %s", error)
        return StoredOffset(None, version, others)

    def store(self, offsets: Mapping[Claim, tuple[int, StoredOffset]]) -> dict[Claim, StoredOffset]:
        """Write each offset over what is known to be stored; those left out are no longer this member's to write."""
        claims = list(offsets)
        known = {claim: stored.version for claim, (_, stored) in offsets.items()}
        stored = self._write(claims, offsets, known)
        if again := [claim for claim in claims if claim not in stored and self._holds(claim)]:
            now = self.offsets(again)
            stored |= self._write(again, offsets, {claim: now[claim].version for claim in again})
        self._zk.guarded(self._zk.remove_each, [path for claim in stored for path in offsets[claim][1].older])
        return stored

    def _write(
        self,
        claims: list[Claim],
        offsets: Mapping[Claim, tuple[int, StoredOffset]],
        versions: Mapping[Claim, int],
    ) -> dict[Claim, StoredOffset]:
        writes = [
            Write(
                f"{group.offsets_path(self._group, claim.tp.topic)}/{claim.name}",
                group.encode_offset(offsets[claim][0]),
                versions[claim],
            )
            for claim in claims
        ]
        now = self._zk.guarded(self._zk.write_each, writes)
        return {
            claim: StoredOffset(offsets[claim][0], version)
            for claim, version in zip(claims, now, strict=True)
            if version is not None
        }

    def _names(self, folder: str) -> dict[int, list[str]]:
        """The paths in a folder of claims or offsets, by their partitions."""
        found: dict[int, list[str]] = {}
        for name in self._zk.guarded(self._zk.names, folder):
            partition = group.partition_of(name)
            if partition is not None:
                found.setdefault(partition, []).append(f"{folder}/{name}")
        return found
