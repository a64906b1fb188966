"""How a transaction begins in a partition led here: its coordinator must count the partition in, and go on doing so.

A batch of a transaction that the partition has open already enters by itself. Any other asks: a client of the first
version has named the partition before, which is checked; for one of the second version the partition is added now.

Invariant: when a batch enters, no marker of its producer has been written since the coordinator was asked. In this
broker, and for a check, that holds because both happen in one turn of the loop. Otherwise the offset of the producer's
last marker is looked at before and after. So no batch is left open that no marker will ever reach.

Order: while one request of a transactional id waits for an answer, the later ones of that id wait behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from sparklog.broker.txn_coordinators import Entry, TransactionCoordinators
from sparklog.errors import ErrorCode
from sparklog.replica.manager import ReplicaManager
from sparklog.structs import TopicPartition
from sparklog.txn.state import ClientVersion, Producer


class Permit(NamedTuple):
    """What the coordinator answered for one partition, and the producer's last marker there when it was asked."""

    answer: ErrorCode
    last_marker: int


Permits = dict[TopicPartition, Permit]


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
        return not self._replicas.leads(tp) or self._replicas.partition(tp).log.has_open_transaction(*producer)

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
        """A permit for each of ``partitions``, which must be led here."""
        markers = {tp: self._replicas.partition(tp).log.last_marker(producer.producer_id) for tp in partitions}
        adds = version is ClientVersion.EPOCH_A_TRANSACTION
        codes = await self._coordinators.ask(Entry(transactional_id, producer, frozenset(partitions), adds))
        return {tp: Permit(codes[tp], markers[tp]) for tp in partitions}

    def check(self, tp: TopicPartition, producer: Producer, permit: Permit) -> ErrorCode:
        """NONE if the permit lets a batch of the producer enter in this turn of the loop."""
        if permit.answer is not ErrorCode.NONE or not self._replicas.leads(tp):
            return permit.answer
        unchanged = self._replicas.partition(tp).log.last_marker(producer.producer_id) == permit.last_marker
        return ErrorCode.NONE if unchanged else ErrorCode.INVALID_TXN_STATE

    def check_here(self, transactional_id: str, producer: Producer, tp: TopicPartition) -> ErrorCode:
        """The same without a permit, of an id that this broker coordinates."""
        return self._coordinators.verify_here(transactional_id, producer, tp)
