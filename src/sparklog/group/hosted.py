"""Where a coordinator keeps its groups: by partition of ``__consumer_offsets``, each group with what drives it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from sparklog.group.classic.group import CommittedOffset, Group, GroupState
from sparklog.group.consumer.group import ConsumerGroup
from sparklog.group.consumer.records import read_consumer_key, tombstones
from sparklog.group.consumer.timers import Timers
from sparklog.group.offsets import GroupKey, OffsetKey, group_key, offset_key, read_key
from sparklog.group.pending import PendingOffsets
from sparklog.structs import TopicPartition


@dataclass(slots=True, eq=False)
class LedPartition:
    """A partition that this broker coordinates; a new object each time that leadership arrives.

    ``deleted`` are the partitions, deletion by deletion, that went while the groups were being loaded. An offset in
    ``pending`` counts in its group's ``pending_commits`` too. ``last_place`` is that of the log's last offsets.
    """

    number: int
    is_loading: bool = True
    hosted: dict[str, Hosted] = field(default_factory=dict)
    deleted: list[frozenset[TopicPartition]] = field(default_factory=list)
    pending: PendingOffsets = field(default_factory=PendingOffsets)
    last_place: int = 0
    unburied: dict[bytes, None] = field(default_factory=dict)
    """Keys whose tombstones the log has refused."""
    burial: asyncio.TimerHandle | None = None
    """When these are written again."""
    size: int = 0
    """What the members' groups have, as ``Group.size``."""

    def knows(self, key: bytes) -> bool | None:
        """Whether what the log has under ``key`` is part of a group now; None while that is being decided.

        A commit that is under way, maybe in a transaction, may yet come to nothing. So may the change that a request
        makes in the group's turn.
        """
        parsed = read_key(key) or read_consumer_key(key)
        hosted = self.hosted.get(parsed.group_id) if parsed is not None else None
        if hosted is None:
            return False
        if isinstance(parsed, OffsetKey):
            if parsed.tp in hosted.group.offsets:
                return True
            return None if parsed.tp in hosted.group.pending_commits else False
        if hosted.turn.locked():
            return None
        return bool(hosted.group.generation) if isinstance(parsed, GroupKey) else hosted.consumer is not None

    def host(self, group_id: str) -> Hosted:
        """The group, made if need be; ``Hosted.keep`` keeps it if something came of it."""
        return self.hosted.get(group_id) or Hosted(Group(group_id), self)

    def place(self) -> int:
        """That of offsets, to be asked for in the turn in which the log gets them."""
        self.last_place += 1
        return self.last_place


@dataclass(slots=True, eq=False)
class Hosted:
    """A group, the timer that wakes it next, and in ``places`` that of each offset since the partition was loaded.

    A partition whose offset was taken out while a commit of it was under way has a place too: that commit is too late.
    The members of a group of the consumer protocol are in ``consumer``, and ``group`` has none but keeps the offsets.
    A task that must keep the members as they are over an await holds ``turn``.
    """

    group: Group
    partition: LedPartition
    consumer: ConsumerGroup | None = None
    timers: Timers = field(default_factory=Timers)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    timer: asyncio.TimerHandle | None = None
    wake_ms: int = 0
    places: dict[TopicPartition, int] = field(default_factory=dict)
    _counted: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing yet to tell of the group."""
        return self.group.is_unused and self.consumer is None

    def keep(self) -> None:
        """Remember the group exactly while there is something to remember, and how much that is."""
        kept = self.partition.hosted
        in_use = not self.is_empty or self.turn.locked()
        if in_use and self.group.state is not GroupState.DEAD:
            kept.setdefault(self.group.group_id, self)
        elif kept.get(self.group.group_id) is self:
            del kept[self.group.group_id]
        size = self.group.size if kept.get(self.group.group_id) is self else 0
        self.partition.size += size - self._counted
        self._counted = size

    def put(self, offsets: Iterable[tuple[TopicPartition, int, CommittedOffset]]) -> None:
        """These, each with its place, count from now on, save where what stands later in the log does already."""
        places, known = self.places, self.group.offsets
        for tp, place, committed in offsets:
            if places.get(tp, 0) < place:
                places[tp] = place
                known[tp] = committed

    def take_out(self, partitions: Iterable[TopicPartition]) -> list[bytes]:
        """Forget these offsets, those that are being committed, and those in open transactions.

        Returns the keys that must go from the log, in this turn.
        """
        group = self.group
        known = [tp for tp in partitions if tp in group.offsets or tp in group.pending_commits]
        for tp in known:
            group.offsets.pop(tp, None)
            self.places.pop(tp, None)
        pending = group.pending_commits.keys() & known
        group.settle(self.partition.pending.forget(group.group_id, pending))
        for tp in pending & group.pending_commits.keys():
            self.places[tp] = self.partition.last_place
        return [offset_key(group.group_id, tp) for tp in known]

    def end(self) -> list[bytes]:
        """Forget the group with its offsets, on their way or in open transactions too; returns the keys under which the
        log knows it, but for those of its offsets.
        """
        self.partition.pending.forget_group(self.group.group_id)
        keys = [group_key(self.group.group_id)] if self.group.generation else []
        keys += [key for key, _ in tombstones(self.consumer)] if self.consumer is not None else []
        self.group.transition_to(GroupState.DEAD)
        self.consumer = None
        if self.timer is not None:
            self.timer.cancel()
        self.keep()
        return keys

    def end_if_vacant(self) -> list[bytes]:
        has_members = self.consumer is not None and bool(self.consumer.members)
        return self.end() if self.group.is_vacant and not has_members and not self.turn.locked() else []
