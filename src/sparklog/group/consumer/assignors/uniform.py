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

from sparklog.group.consumer.assignment import RUN, Partitions, TopicIdPartition
from sparklog.group.consumer.assignors.spec import Readers, Spec
from sparklog.protocol.slices import Steps


class _Pool:
    """The partitions of all topics that the same members read: these are dealt with as one, and known by their number
    in the order of topics and partitions.
    """

    def __init__(self, readers: Readers) -> None:
        self.readers = readers
        self.first: dict[UUID, int] = {}
        """The number of each topic's first partition."""
        self.partitions: list[TopicIdPartition] = []
        self.taken: set[int] = set()


class _Move(NamedTuple):
    """``gain``: how many partitions the giver has more than the taker."""

    gain: int
    giver: str
    taker: str
    pool: _Pool


def assign_uniformly(spec: Spec) -> Steps[dict[str, Partitions]]:
    """No partition could move to a member that has two less than its own."""
    shares = _Shares(spec)
    yield from shares.keep()
    # Partitions that few members can have come first: a member without another choice must not find the others full.
    for pool in sorted(shares.pools, key=lambda each: (len(each.readers), each.readers)):
        yield from shares.hand_out(pool)
    yield from shares.order()
    while (move := (yield from shares.best_move())) is not None:
        shares.make(move)
        yield
    return (yield from shares.result())


class _Shares:
    """Each member's partitions. Every move lowers the sum of the squared loads, so the moves come to an end."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self.pools: list[_Pool] = []
        self._by_member: dict[str, dict[_Pool, list[int]]] = {each: {} for each in spec.members}
        """The numbers, negated: ``heapq`` gives the least."""
        self._load = dict.fromkeys(spec.members, 0)

    def keep(self) -> Steps[None]:
        """Give each member what it had and may still have."""
        pool_of = yield from self._pooled()
        for member_id, member in self._spec.members.items():
            for count, each in enumerate(member.had):
                if each.topic_id in member.topics and 0 <= each.partition < self._spec.topics.get(each.topic_id, 0):
                    pool = pool_of[each.topic_id]
                    self._give(member_id, pool.first[each.topic_id] + each.partition, pool)
                if count % RUN == RUN - 1:
                    yield
            yield

    def _pooled(self) -> Steps[dict[UUID, _Pool]]:
        pools: dict[Readers, _Pool] = {}
        pool_of: dict[UUID, _Pool] = {}
        for topic_id, readers in (yield from self._spec.readers()).items():
            pool = pool_of[topic_id] = pools.setdefault(readers, _Pool(readers))
            pool.first[topic_id] = len(pool.partitions)
            pool.partitions += self._spec.partitions(topic_id)
            yield
        self.pools = [*pools.values()]
        return pool_of

    def _give(self, member_id: str, number: int, pool: _Pool) -> None:
        if number not in pool.taken:
            pool.taken.add(number)
            self._by_member[member_id].setdefault(pool, []).append(-number)
            self._load[member_id] += 1

    def hand_out(self, pool: _Pool) -> Steps[None]:
        """Give each free partition to the member with the least."""
        heap = [(self._load[each], rank, each) for rank, each in enumerate(pool.readers)]
        heapq.heapify(heap)
        for number in range(len(pool.partitions)) if heap else ():
            if number not in pool.taken:
                load, rank, member_id = heap[0]
                self._give(member_id, number, pool)
                heapq.heapreplace(heap, (load + 1, rank, member_id))
            if number % RUN == RUN - 1:
                yield
        yield

    def order(self) -> Steps[None]:
        """To be done before the first move."""
        for share in self._by_member.values():
            for numbers in share.values():
                heapq.heapify(numbers)
            yield

    def best_move(self) -> Steps[_Move | None]:
        """From the fullest to the emptiest member; None where no two members differ by two or more."""
        best: _Move | None = None
        for pool in self.pools:
            move = self._move_within(pool)
            if move is not None and move.gain >= 2 and (best is None or move.gain > best.gain):
                best = move
            yield
        return best

    def _move_within(self, pool: _Pool) -> _Move | None:
        givers = [each for each in pool.readers if self._by_member[each].get(pool)]
        if not givers:
            return None
        giver = max(givers, key=self._load.__getitem__)
        taker = min(pool.readers, key=self._load.__getitem__)
        return _Move(self._load[giver] - self._load[taker], giver, taker, pool)

    def make(self, move: _Move) -> None:
        number = heapq.heappop(self._by_member[move.giver][move.pool])
        heapq.heappush(self._by_member[move.taker].setdefault(move.pool, []), number)
        self._load[move.giver] -= 1
        self._load[move.taker] += 1

    def result(self) -> Steps[dict[str, Partitions]]:
        assigned: dict[str, Partitions] = {}
        for member_id, share in self._by_member.items():
            assigned[member_id] = frozenset([pool.partitions[-each] for pool, some in share.items() for each in some])
            yield
        return assigned
