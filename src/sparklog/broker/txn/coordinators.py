"""The coordinators of transactions as a partition's leader reaches them: in this broker, or at others.

What is asked while another broker has not yet answered waits, and is asked together: one AddPartitionsToTxn is under
way to a broker, and names each transactional id once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sparklog.broker.metadata_cache import MetadataCache
from sparklog.clock import Clock
from sparklog.errors import ErrorCode, SparklogError
from sparklog.net.peers import MAX_WAITING, Peers
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AddPartitionsToTxnRequest
from sparklog.rate_limit import RateLimitedLogger
from sparklog.structs import TRANSACTIONS_TOPIC, Endpoint, TopicPartition, by_topic
from sparklog.txn.runtime import TransactionCoordinator
from sparklog.txn.state import ClientVersion, Producer

_logger = logging.getLogger(__name__)
_LANE = "transaction coordinators"

Codes = dict[TopicPartition, ErrorCode]


class Entry(NamedTuple):
    """Partitions that a transaction is about to reach. ``adds``: they become part of it; else it must name them."""

    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicPartition]
    adds: bool


_Waiting = list[tuple[Entry, asyncio.Future[Codes]]]


class TransactionCoordinators:
    """All methods belong to the loop's thread."""

    def __init__(self, here: TransactionCoordinator, metadata: MetadataCache, peers: Peers, clock: Clock) -> None:
        self._here = here
        self._metadata = metadata
        self._peers = peers
        self._warnings = RateLimitedLogger(_logger, clock.monotonic)
        self._waiting: dict[Endpoint, _Waiting] = {}
        """For the next request to each broker that has one under way."""
        self._work: dict[Endpoint, asyncio.Task[None]] = {}

    def is_elsewhere(self, transactional_id: str) -> bool:
        """Whether another broker is known to coordinate the id."""
        return self._here.is_elsewhere(transactional_id)

    def verify_here(self, transactional_id: str, producer: Producer, tp: TopicPartition) -> ErrorCode:
        """Whether the producer's open transaction names ``tp``, of an id that this broker coordinates."""
        return self._here.verify(transactional_id, producer, tp)

    async def ask(self, entry: Entry) -> Codes:
        """A code for each partition, never an exception; NONE where the transaction reaches it."""
        transactional_id, producer, partitions, adds = entry
        if self._here.is_elsewhere(transactional_id):
            home = TopicPartition(TRANSACTIONS_TOPIC, self._here.partition_for(transactional_id))
            leader = self._metadata.leader(home)
            if leader is None:
                return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return await self._ask_elsewhere(leader.endpoint, entry)
        if not adds:
            return {tp: self._here.verify(transactional_id, producer, tp) for tp in partitions}
        version = ClientVersion.EPOCH_A_TRANSACTION
        code = await self._here.add_partitions(transactional_id, producer, partitions, version)
        return dict.fromkeys(partitions, code)

    async def _ask_elsewhere(self, endpoint: Endpoint, entry: Entry) -> Codes:
        waiting = self._waiting.get(endpoint)
        if waiting is None:
            waiting = self._waiting[endpoint] = []
            self._work[endpoint] = asyncio.create_task(self._ask_all(endpoint))
        if len(waiting) >= MAX_WAITING:
            self._warnings.warn("full", f"{len(waiting)} requests wait for the coordinator at {endpoint} already")
            return dict.fromkeys(entry.partitions, ErrorCode.NETWORK_EXCEPTION)
        answer: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()
        waiting.append((entry, answer))
        return await answer

    async def _ask_all(self, endpoint: Endpoint) -> None:
        """One request after another, until nothing waits for the next."""
        together: _Waiting = []
        try:
            while self._waiting[endpoint]:
                together, self._waiting[endpoint] = _first_of_each_id(self._waiting[endpoint])
                _tell(together, await self._exchange(endpoint, [entry for entry, _ in together]))
        finally:  # after a mistake of ours too no request waits for ever
            del self._work[endpoint]
            _tell(together + self._waiting.pop(endpoint), {})

    async def _exchange(self, endpoint: Endpoint, entries: Sequence[Entry]) -> dict[str, Codes]:
        """By id; nothing if there is no answer."""
        try:
            answer = await self._peers.request(endpoint, _LANE, ApiKey.ADD_PARTITIONS_TO_TXN, _request_of(entries))
        except SparklogError as error:
            self._warnings.warn("silent", f"the coordinator at {endpoint} did not answer: {error}")
            return {}
        return {
            each.transactional_id: {
                TopicPartition(topic.name, result.partition_index): ErrorCode(result.partition_error_code)
                for topic in each.topic_results
                for result in topic.results_by_partition
            }
            for each in answer.results_by_transaction
        }

    async def close(self) -> None:
        """Wait until every request is answered. The peers are closed already, so every answer is NETWORK_EXCEPTION."""
        await asyncio.gather(*self._work.values(), return_exceptions=True)


def _first_of_each_id(waiting: _Waiting) -> tuple[_Waiting, _Waiting]:
    """What goes into the next request, and the rest."""
    first: dict[str, tuple[Entry, asyncio.Future[Codes]]] = {}
    rest = []
    for each in waiting:
        if first.setdefault(each[0].transactional_id, each) is not each:
            rest.append(each)
    return [*first.values()], rest


def _tell(asked: _Waiting, codes: dict[str, Codes]) -> None:
    for entry, answer in asked:
        if not answer.done():
            found = codes.get(entry.transactional_id, {})
            answer.set_result({tp: found.get(tp, ErrorCode.NETWORK_EXCEPTION) for tp in entry.partitions})


def _request_of(entries: Sequence[Entry]) -> Callable[[int], AddPartitionsToTxnRequest]:
    transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    topic = transaction.AddPartitionsToTxnTopic

    def topics(entry: Entry) -> list[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction.AddPartitionsToTxnTopic]:
        named = by_topic(sorted(entry.partitions))
        return [topic(name=name, partitions=numbers) for name, numbers in named.items()]

    asked = [
        transaction(
            transactional_id=entry.transactional_id,
            producer_id=entry.producer.producer_id,
            producer_epoch=entry.producer.epoch,
            verify_only=not entry.adds,
            topics=topics(entry),
        )
        for entry in entries
    ]
    return lambda _version: AddPartitionsToTxnRequest(transactions=asked)
