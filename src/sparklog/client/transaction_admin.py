"""Transactions of a cluster: which there are, who writes to a partition, and ending one that hangs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from sparklog.client.admin_base import AdminBase, Answers, by_topic, error_of
from sparklog.client.session import CoordinatorKind
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    Message,
    WriteTxnMarkersRequest,
)
from sparklog.structs import BrokerId, TopicPartition

_Marker = WriteTxnMarkersRequest.WritableTxnMarker


class TransactionListing(NamedTuple):
    """A transactional id as lists show it; ``state`` by Kafka's name."""

    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """A transactional id as its coordinator has it; ``start_ms`` is -1 where no transaction is open."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]


class ActiveProducer(NamedTuple):
    """A producer that a partition's leader remembers; ``open_since`` is its transaction's first offset, or -1."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    open_since: int


class TransactionAdmin(AdminBase):
    """Asks coordinators for transactions, leaders for producers."""

    async def list_transactions(
        self, *, states: Collection[str] = (), producer_ids: Collection[int] = ()
    ) -> list[TransactionListing]:
        """Every transactional id of the cluster, by name; of certain states or producers, if any are given."""
        answers = await self._ask_every_broker(
            ApiKey.LIST_TRANSACTIONS,
            lambda version: ListTransactionsRequest(
                version=version,
                state_filters=list(states),
                producer_id_filters=list(producer_ids),
                duration_filter=-1,
                transactional_id_pattern=None,
            ),
        )
        return sorted(
            TransactionListing(each.transactional_id, each.producer_id, each.transaction_state)
            for answer in answers.values()
            for each in answer.transaction_states
        )

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """These ids as their coordinators have them; the first unknown one raises."""
        return {each: await self._describe_transaction(each) for each in transactional_ids}

    async def _describe_transaction(self, transactional_id: str) -> TransactionDescription:
        def check(answer: Message) -> None:
            error = error_of(answer.transaction_states[0], f"transactional id {transactional_id!r}")
            if error is not None:
                raise error

        answer = await self._session.coordinator_request(
            CoordinatorKind.TRANSACTION,
            transactional_id,
            ApiKey.DESCRIBE_TRANSACTIONS,
            lambda version: DescribeTransactionsRequest(version=version, transactional_ids=[transactional_id]),
            check=check,
        )
        found = answer.transaction_states[0]
        return TransactionDescription(
            transactional_id,
            found.transaction_state,
            found.producer_id,
            found.producer_epoch,
            found.transaction_timeout_ms,
            found.transaction_start_time_ms,
            tuple(sorted(TopicPartition(each.topic, number) for each in found.topics for number in each.partitions)),
        )

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ActiveProducer]]:
        """The producers that each partition's leader remembers."""
        form = DescribeProducersRequest.TopicRequest

        async def ask(broker: BrokerId, tps: list[TopicPartition]) -> Answers[list[ActiveProducer]]:
            topics = [form(name=name, partition_indexes=numbers) for name, numbers in by_topic(tps).items()]
            answer = await self._session.request(
                broker,
                ApiKey.DESCRIBE_PRODUCERS,
                lambda version: DescribeProducersRequest(version=version, topics=topics),
            )
            return {
                TopicPartition(topic.name, each.partition_index): error_of(each, f"{topic.name}-{each.partition_index}")
                or [_active_producer(producer) for producer in each.active_producers]
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._ask_leaders(partitions, ask)

    async def abort_transaction(self, tp: TopicPartition, start_offset: int) -> None:
        """End the transaction that is open in ``tp`` since ``start_offset``: for one that its coordinator has lost.

        Writes the marker straight into the partition. Raises ApiError(INVALID_TXN_STATE) if none is open since there.
        """
        producers = (await self.describe_producers([tp]))[tp]
        hanging = next((each for each in producers if each.open_since == start_offset), None)
        if hanging is None:
            raise ApiError(ErrorCode.INVALID_TXN_STATE, f"no transaction is open in {tp} since offset {start_offset}")
        topic = _Marker.WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])
        marker = _Marker(
            producer_id=hanging.producer_id,
            producer_epoch=hanging.producer_epoch,
            transaction_result=False,
            topics=[topic],
            coordinator_epoch=max(hanging.coordinator_epoch, 0),
        )

        async def ask(broker: BrokerId, _: list[TopicPartition]) -> Answers[bool]:
            answer = await self._session.request(
                broker,
                ApiKey.WRITE_TXN_MARKERS,
                lambda version: WriteTxnMarkersRequest(version=version, markers=[marker]),
            )
            result = answer.markers[0].topics[0].partitions[0]
            return {tp: error_of(result, f"cannot abort in {tp}") or True}

        await self._ask_leaders([tp], ask)


def _active_producer(each: Message) -> ActiveProducer:
    return ActiveProducer(
        each.producer_id,
        each.producer_epoch,
        each.last_sequence,
        each.last_timestamp,
        each.coordinator_epoch,
        each.current_txn_start_offset,
    )
