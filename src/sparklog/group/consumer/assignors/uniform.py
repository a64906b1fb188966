"""``uniform``: every member gets as many partitions as any other, and keeps what it had as far as that allows.

A member that subscribes to a partition's topic may have it. A member keeps what it had at first; a free partition goes
to the member with the least; then partitions move one by one from the fullest member to the emptiest, while that has
two less. Where all subscribe to the same topics, the shares differ by one at most, and no partition moves that need
not.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple
from uuid import UUID

from sparklog.group.consumer.assignment import Partitions, TopicIdPartition
from sparklog.group.consumer.assignors.spec import Spec

Readers = tuple[str, ...]
"""All that subscribe to some topics: these are dealt with as one."""


class _Move(NamedTuple):
    """``gain``: how many partitions the giver has more than the taker."""

    gain: int
    giver: str
    taker: str
    readers: Readers


def assign_uniformly(spec: Spec) -> dict[str, Partitions]:
    """No partition could move to a member that has two less than its own."""
    shares = _Shares(spec)
    # Partitions that few members can have come first: a member without another choice must not find the others full.
    for readers in sorted(shares.topics, key=lambda each: (len(each), each)):
        shares.hand_out(readers)
    while (move := shares.best_move()) is not None:
        shares.make(move)
    return {member_id: frozenset().union(*share.values()) for member_id, share in shares.by_member.items()}


class _Shares:
    """Each member's partitions. Every move lowers the sum of the squared loads, so the moves come to an end."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self.topics: dict[Readers, list[UUID]] = {}
        self.by_member: dict[str, dict[Readers, set[TopicIdPartition]]] = {each: {} for each in spec.members}
        self._load = dict.fromkeys(spec.members, 0)
        self._taken: set[TopicIdPartition] = set()
        readers_of: dict[UUID, Readers] = {}
        for topic_id in sorted(spec.topics):
            readers_of[topic_id] = tuple(spec.subscribers(topic_id))
            self.topics.setdefault(readers_of[topic_id], []).append(topic_id)
        for member_id, member in spec.members.items():
            for each in member.had:
                if each.topic_id in member.topics and 0 <= each.partition < spec.topics.get(each.topic_id, 0):
                    self._give(member_id, each, readers_of[each.topic_id])

    def _give(self, member_id: str, partition: TopicIdPartition, readers: Readers) -> None:
        if partition not in self._taken:
            self._taken.add(partition)
            self.by_member[member_id].setdefault(readers, set()).add(partition)
            self._load[member_id] += 1

    def hand_out(self, readers: Readers) -> None:
        """Give each free partition to the member with the least."""
        heap = [(self._load[each], rank, each) for rank, each in enumerate(readers)]
        heapq.heapify(heap)
        partitions = [each for topic_id in self.topics[readers] for each in self._spec.partitions(topic_id)]
        for partition in partitions if heap else ():
            if partition not in self._taken:
                load, rank, member_id = heap[0]
                self._give(member_id, partition, readers)
                heapq.heapreplace(heap, (load + 1, rank, member_id))

    def best_move(self) -> _Move | None:
        """From the fullest to the emptiest member; None where no two members differ by two or more."""
        moves = [move for readers in self.topics if (move := self._move_within(readers)) is not None]
        best = max(moves, key=lambda each: each.gain, default=None)
        return best if best is not None and best.gain >= 2 else None

    def _move_within(self, readers: Readers) -> _Move | None:
        givers = [each for each in readers if self.by_member[each].get(readers)]
        if not givers:
            return None
        giver = max(givers, key=self._load.__getitem__)
        taker = min(readers, key=self._load.__getitem__)
        return _Move(self._load[giver] - self._load[taker], giver, taker, readers)

    def make(self, move: _Move) -> None:
        partition = max(self.by_member[move.giver][move.readers])
        self.by_member[move.giver][move.readers].remove(partition)
        self.by_member[move.taker].setdefault(move.readers, set()).add(partition)
        self._load[move.giver] -= 1
        self._load[move.taker] += 1
