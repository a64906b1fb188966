"""Transactions of a cluster, looked at and ended from outside: for when a producer does not come back.

A transaction is *hanging* in a partition when its producer has it open there and no coordinator will ever end it: no
transactional id has that producer with a transaction that reaches the partition. Source: Kafka 3.9,
``TransactionsCommand``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from sparklog.client.metadata import ClusterMetadata
from sparklog.client.retry import retrying
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    Message,
    WriteTxnMarkersRequest,
)
from sparklog.structs import BrokerId, Endpoint, TopicPartition

T = TypeVar("T")
_TRANSACTION_KEY = 1
_FIRST_BATCHED_FIND = 4
_FIRST_INIT_TO_KEEP = 6
_KEEPER_TIMEOUT_MS = 60_000
"""Of the transactions after the one that is ended: nobody will begin any under the epoch that is given."""
ONGOING = "Ongoing"


class TransactionListing(NamedTuple):
    """A transactional id, as its coordinator lists it."""

    transactional_id: str
    coordinator: BrokerId
    producer_id: int
    state: str


class TransactionInfo(NamedTuple):
    """A transactional id in full; times in milliseconds, ``start_ms`` -1 where nothing has begun."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]


class OpenProducer(NamedTuple):
    """A producer that has a transaction open in a partition, from ``start_offset`` on."""

    tp: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


class TransactionTools:
    """Asks coordinators and leaders. Raises ApiError."""

    def __init__(self, cluster: ClusterMetadata) -> None:
        self._cluster = cluster

    def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        open_longer_ms: int = -1,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """The ids of all coordinators that pass every filter; ``pattern`` is a regular expression for the whole id."""
        request = ListTransactionsRequest(
            state_filters=[*states],
            producer_id_filters=[*producer_ids],
            duration_filter=open_longer_ms,
            transactional_id_pattern=pattern,
        )
        found: list[TransactionListing] = []
        for broker, endpoint in sorted(self._cluster.fetch([]).brokers.items()):
            answer = self._asked(endpoint, ApiKey.LIST_TRANSACTIONS, request)
            if answer.unknown_state_filters:
                unknown = ", ".join(answer.unknown_state_filters)
                raise ApiError(ErrorCode.INVALID_REQUEST, f"no transaction is ever in a state {unknown}")
            found += [
                TransactionListing(each.transactional_id, broker, each.producer_id, each.transaction_state)
                for each in answer.transaction_states
            ]
        return sorted(found)

    def describe(self, transactional_id: str) -> TransactionInfo:
        """Raises ApiError(TRANSACTIONAL_ID_NOT_FOUND) for one that its coordinator does not know."""

        def ask() -> TransactionInfo:
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            coordinator = self._coordinator(transactional_id)
            (each,) = self._cluster.request(
                coordinator, ApiKey.DESCRIBE_TRANSACTIONS, lambda _: request
            ).transaction_states
            _raise_if(each.error_code, f"transactional id {transactional_id!r}")
            partitions = [TopicPartition(topic.topic, number) for topic in each.topics for number in topic.partitions]
            return TransactionInfo(
                transactional_id,
                each.transaction_state,
                each.producer_id,
                each.producer_epoch,
                each.transaction_timeout_ms,
                each.transaction_start_time_ms,
                tuple(sorted(partitions)),
            )

        return self._retrying(ask)

    def end(self, transactional_id: str, *, commit: bool) -> TransactionInfo:
        """Take the open transaction from whoever holds it, and end it; returns what it was.

        The former holder is fenced. Raises ApiError(INVALID_TXN_STATE) where no transaction is open.
        """
        found = self.describe(transactional_id)
        if found.state != ONGOING:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"{transactional_id!r} has no transaction open, it is in state {found.state}",
            )
        kept = self._retrying(lambda: self._keep(found))
        self._retrying(lambda: self._end(transactional_id, kept, commit))
        return found

    def _keep(self, found: TransactionInfo) -> Message:
        def build(version: int) -> Message:
            if version < _FIRST_INIT_TO_KEEP:
                raise ApiError(
                    ErrorCode.UNSUPPORTED_VERSION, "this cluster cannot hand a transaction on: it knows no KIP-939"
                )
            return InitProducerIdRequest(
                transactional_id=found.transactional_id,
                transaction_timeout_ms=_KEEPER_TIMEOUT_MS,
                producer_id=-1,
                producer_epoch=-1,
                enable2_pc=False,
                keep_prepared_txn=True,
            )

        coordinator = self._coordinator(found.transactional_id)
        answer = self._cluster.request(coordinator, ApiKey.INIT_PRODUCER_ID, build)
        _raise_if(answer.error_code, f"cannot take over the transaction of {found.transactional_id!r}")
        if answer.ongoing_txn_producer_id < 0:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE, f"{found.transactional_id!r} has ended its transaction meanwhile"
            )
        return answer

    def _end(self, transactional_id: str, kept: Message, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=kept.producer_id,
            producer_epoch=kept.producer_epoch,
            committed=commit,
        )
        answer = self._cluster.request(self._coordinator(transactional_id), ApiKey.END_TXN, lambda _: request)
        _raise_if(answer.error_code, f"cannot end the transaction of {transactional_id!r}")

    def open_producers(self, tp: TopicPartition) -> list[OpenProducer]:
        """Who has a transaction open in the partition, in the order in which they began."""
        topic = DescribeProducersRequest.TopicRequest
        request = DescribeProducersRequest(topics=[topic(name=tp.topic, partition_indexes=[tp.partition])])

        def ask() -> Message:
            leader, _ = self._cluster.leader(tp)
            answer = self._cluster.request(leader, ApiKey.DESCRIBE_PRODUCERS, lambda _: request)
            ((partition,),) = (each.partitions for each in answer.topics)
            if partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._cluster.invalidate(tp.topic)
            _raise_if(partition.error_code, f"producers of {tp}")
            return partition

        return sorted(
            (
                OpenProducer(
                    tp,
                    each.producer_id,
                    each.producer_epoch,
                    each.coordinator_epoch,
                    each.current_txn_start_offset,
                    each.last_timestamp,
                )
                for each in self._retrying(ask).active_producers
                if each.current_txn_start_offset >= 0
            ),
            key=lambda each: each.start_offset,
        )

    def hanging(self, partitions: Iterable[TopicPartition], silent_since_ms: int) -> list[OpenProducer]:
        """Transactions in these partitions that nobody will end, of producers that have not written since then."""
        suspects = [
            each for tp in partitions for each in self.open_producers(tp) if each.last_timestamp_ms <= silent_since_ms
        ]
        listed = self.list_transactions(producer_ids={each.producer_id for each in suspects}) if suspects else []
        ids = {each.producer_id: each.transactional_id for each in listed}
        return [each for each in suspects if not self._will_end(each, ids.get(each.producer_id))]

    def _will_end(self, producer: OpenProducer, transactional_id: str | None) -> bool:
        if transactional_id is None:
            return False
        try:
            return producer.tp in self.describe(transactional_id).partitions
        except ApiError as error:
            if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return False
            raise

    def abort_in(self, tp: TopicPartition, start_offset: int) -> OpenProducer:
        """Abort the transaction that begins at ``start_offset``, in this partition only and past its coordinator.

        Raises ApiError(INVALID_REQUEST) where none begins there.
        """
        found = next((each for each in self.open_producers(tp) if each.start_offset == start_offset), None)
        if found is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"no open transaction begins at offset {start_offset} of {tp}")
        marker = WriteTxnMarkersRequest.WritableTxnMarker
        topic = marker.WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])
        request = WriteTxnMarkersRequest(
            markers=[
                marker(
                    producer_id=found.producer_id,
                    producer_epoch=found.producer_epoch,
                    transaction_result=False,
                    topics=[topic],
                    coordinator_epoch=max(found.coordinator_epoch, 0),
                    transaction_version=0,
                )
            ]
        )

        def ask() -> None:
            leader, _ = self._cluster.leader(tp)
            answer = self._cluster.request(leader, ApiKey.WRITE_TXN_MARKERS, lambda _: request)
            (((partition,),),) = ((each.partitions for each in result.topics) for result in answer.markers)
            if partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._cluster.invalidate(tp.topic)
            _raise_if(partition.error_code, f"cannot abort at offset {start_offset} of {tp}")

        self._retrying(ask)
        return found

    def _coordinator(self, transactional_id: str) -> Endpoint:
        def build(version: int) -> Message:
            if version < _FIRST_BATCHED_FIND:
                return FindCoordinatorRequest(key=transactional_id, key_type=_TRANSACTION_KEY)
            return FindCoordinatorRequest(key_type=_TRANSACTION_KEY, coordinator_keys=[transactional_id])

        brokers = self._cluster.fetch([]).brokers
        answer = self._cluster.request(brokers[min(brokers)], ApiKey.FIND_COORDINATOR, build)
        found = answer.coordinators[0] if answer.coordinators else answer
        _raise_if(found.error_code, f"coordinator of {transactional_id!r}")
        return Endpoint(found.host, found.port)

    def _asked(self, endpoint: Endpoint, api: ApiKey, request: Message) -> Message:
        def ask() -> Message:
            answer = self._cluster.request(endpoint, api, lambda _: request)
            _raise_if(answer.error_code, f"broker {endpoint}")
            return answer

        return self._retrying(ask)

    def _retrying(self, attempt: Callable[[], T]) -> T:
        return retrying(self._cluster.backoff(), attempt)


def _raise_if(code: int, what: str) -> None:
    if code != ErrorCode.NONE:
        found = ErrorCode(code)
        raise ApiError(found, f"{what}: {found.name}")
