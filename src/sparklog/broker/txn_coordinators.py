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
from sparklog.broker.topics import TRANSACTIONS_TOPIC
from sparklog.errors import ErrorCode, SparklogError
from sparklog.net.async_connection import AsyncConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AddPartitionsToTxnRequest, Message
from sparklog.structs import Endpoint, TopicPartition, by_topic
from sparklog.txn.runtime import TransactionCoordinator
from sparklog.txn.state import ClientVersion, Producer

_logger = logging.getLogger(__name__)

Codes = dict[TopicPartition, ErrorCode]


class Entry(NamedTuple):
    """Partitions that a transaction is about to reach. ``adds``: they become part of it; else it must name them."""

    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicPartition]
    adds: bool


class TransactionCoordinators:
    """All methods belong to the loop's thread."""

    def __init__(self, here: TransactionCoordinator, metadata: MetadataCache) -> None:
        self._here = here
        self._metadata = metadata
        self._elsewhere: dict[Endpoint, _Peer] = {}

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
            peer = self._elsewhere.setdefault(leader.endpoint, _Peer(leader.endpoint))
            return await peer.ask(entry)
        if not adds:
            return {tp: self._here.verify(transactional_id, producer, tp) for tp in partitions}
        version = ClientVersion.EPOCH_A_TRANSACTION
        code = await self._here.add_partitions(transactional_id, producer, partitions, version)
        return dict.fromkeys(partitions, code)

    async def close(self) -> None:
        """Whoever waits for an answer is told that there is none."""
        for peer in self._elsewhere.values():
            await peer.close()


class _Peer:
    """One other broker; its connection is kept until it fails."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._connection: AsyncConnection | None = None
        self._waiting: list[tuple[Entry, asyncio.Future[Codes]]] = []
        self._task: asyncio.Task[None] | None = None

    async def ask(self, entry: Entry) -> Codes:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Codes] = loop.create_future()
        self._waiting.append((entry, answer))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        while self._waiting:
            together = self._take()
            try:
                codes = await self._exchange([entry for entry, _ in together])
            except SparklogError as error:
                _logger.warning("the coordinator at %s did not answer: %s", self._endpoint, error)
                codes = {}
            for entry, answer in together:
                if not answer.done():
                    found = codes.get(entry.transactional_id, {})
                    answer.set_result({tp: found.get(tp, ErrorCode.NETWORK_EXCEPTION) for tp in entry.partitions})

    def _take(self) -> list[tuple[Entry, asyncio.Future[Codes]]]:
        """What goes into the next request: the first of each id."""
        first: dict[str, tuple[Entry, asyncio.Future[Codes]]] = {}
        rest = []
        for each in self._waiting:
            if first.setdefault(each[0].transactional_id, each) is not each:
                rest.append(each)
        self._waiting = rest
        return [*first.values()]

    async def _exchange(self, entries: Sequence[Entry]) -> dict[str, Codes]:
        if self._connection is None or self._connection.closed:
            self._connection = await AsyncConnection.open(self._endpoint)
        answer = await self._connection.request(ApiKey.ADD_PARTITIONS_TO_TXN, _request_of(entries))
        return {
            each.transactional_id: {
                TopicPartition(topic.name, result.partition_index): ErrorCode(result.partition_error_code)
                for topic in each.topic_results
                for result in topic.results_by_partition
            }
            for each in answer.results_by_transaction
        }

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for _, answer in self._waiting:
            answer.cancel()
        if self._connection is not None:
            self._connection.close()


def _request_of(entries: Sequence[Entry]) -> Callable[[int], Message]:
    transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic

    def topics(entry: Entry) -> list[Message]:
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
