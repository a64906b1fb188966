"""How a transaction begins in a partition led here: its coordinator must count the partition in, and go on doing so.

A batch of a transaction that the partition has open already enters by itself. Any other asks: a client of the first
version has named the partition before, which is checked; for one of the second version the partition is added now.

Invariant: when a batch enters, no marker of its producer has been written since the coordinator was asked. In this
broker, and for a check, that holds because both happen in one turn of the loop. Otherwise the offset of the producer's
last marker is looked at before and after. So no batch is left open that no marker will ever reach. A newer marker tells
only that the answer is out of date: mostly the marker is that of the transaction before, which was still on its way
when the next one began. So the coordinator is asked again, and an honest producer hears nothing of it.

Order: while one request of a transactional id waits for an answer, the later ones of that id wait behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from sparklog.broker.txn.coordinators import Entry, TransactionCoordinators
from sparklog.errors import ErrorCode
from sparklog.replica.manager import ReplicaManager
from sparklog.structs import TopicPartition
from sparklog.txn.state import ClientVersion, Producer


class Permit(NamedTuple):
    """What the coordinator answered for one partition, and the producer's last marker there when it was asked."""

    answer: ErrorCode
    last_marker: int


Permits = dict[TopicPartition, Permit]
_PAUSE_S, _MORE_TIMES = 0.02, 5
"""How a transaction is begun while the one before it is being ended: as often as Kafka tries within the broker."""
_NO_MARKER = -1


@dataclass(slots=True)
class _Turns:
    """The requests of one transactional id that are being served, or wait."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    wanted: int = 0


class TransactionEntry:
    """All methods belong to the loop's thread."""

    def __init__(self, coordinators: TransactionCoordinators, replicas: ReplicaManager) -> None:
        self._coordinators = coordinators
        self._replicas = replicas
        self._turns: dict[str, _Turns] = {}

    def must_ask(self, transactional_id: str, version: ClientVersion) -> bool:
        """Whether entering takes more than this turn of the loop."""
        adds = version is ClientVersion.EPOCH_A_TRANSACTION
        return adds or transactional_id in self._turns or self._coordinators.is_elsewhere(transactional_id)

    def has_entered(self, tp: TopicPartition, producer: Producer) -> bool:
        """Whether the producer's transaction is open in ``tp``; also true where the append will be refused anyway."""
        return not self._replicas.leads(tp) or self._replicas.partition(tp).has_open_transaction(*producer)

    @asynccontextmanager
    async def turn(self, transactional_id: str) -> AsyncIterator[None]:
        """Alone among the requests of the id, in the order in which they came."""
        turns = self._turns.setdefault(transactional_id, _Turns())
        turns.wanted += 1
        try:
            async with turns.lock:
                yield
        finally:
            turns.wanted -= 1
            if not turns.wanted:
                del self._turns[transactional_id]

    async def ask(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition], version: ClientVersion
    ) -> Permits:
        """A permit for each of ``partitions``."""
        adds = version is ClientVersion.EPOCH_A_TRANSACTION
        entry = Entry(transactional_id, producer, frozenset(partitions), adds)
        permits = await self._ask_once(entry)
        for _ in range(_MORE_TIMES):
            is_ending = adds and ErrorCode.CONCURRENT_TRANSACTIONS in (each.answer for each in permits.values())
            is_outdated = any(self.check(tp, producer, each) is not each.answer for tp, each in permits.items())
            if not (is_ending or is_outdated):
                break
            if is_ending:
                await asyncio.sleep(_PAUSE_S)
            permits = await self._ask_once(entry)
        return permits

    async def _ask_once(self, entry: Entry) -> Permits:
        markers = {tp: self._last_marker(tp, entry.producer) for tp in entry.partitions}
        codes = await self._coordinators.ask(entry)
        return {tp: Permit(codes[tp], markers[tp]) for tp in entry.partitions}

    def _last_marker(self, tp: TopicPartition, producer: Producer) -> int:
        leads = self._replicas.leads(tp)
        return self._replicas.partition(tp).last_marker(producer.producer_id) if leads else _NO_MARKER

    def check(self, tp: TopicPartition, producer: Producer, permit: Permit) -> ErrorCode:
        """NONE if the permit lets a batch of the producer enter in this turn of the loop.

        CONCURRENT_TRANSACTIONS if it is out of date: a client that asks again is told how things are then.
        """
        if permit.answer is not ErrorCode.NONE or not self._replicas.leads(tp):
            return permit.answer
        unchanged = self._last_marker(tp, producer) == permit.last_marker
        return ErrorCode.NONE if unchanged else ErrorCode.CONCURRENT_TRANSACTIONS

    def check_here(self, transactional_id: str, producer: Producer, tp: TopicPartition) -> ErrorCode:
        """The same without a permit, of an id that this broker coordinates."""
        return self._coordinators.verify_here(transactional_id, producer, tp)
