"""Encoded batches sent in a transaction: numbered, so that each is written once and in order however often sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from sparklog.client.admin.prepared import PreparedTransaction
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.producer.batch_producer import Batch, BatchProducer
from sparklog.client.producer.config import MOST_IN_FLIGHT
from sparklog.client.producer.refusal import Refusal
from sparklog.client.producer.sequences import Numbering, ProducerId
from sparklog.client.producer.transaction import LAST_PRODUCE_OF_FIRST_PROTOCOL
from sparklog.errors import ApiError, ConfigError, ErrorCode
from sparklog.protocol.hot.produce import ProduceResult
from sparklog.record.batch import RecordBatch, patch_producer
from sparklog.structs import TopicPartition

AddPartitions = Callable[[list[TopicPartition]], None]


class TransactionalBatchProducer(BatchProducer):
    """A BatchProducer whose batches are those of one transaction. They must be encoded as transactional, in bytearrays.

    ``add_partitions`` is called before the first batch of a partition is sent, once for all that ``will_send`` names. A
    second batch waits until the first of its partition is acknowledged, as ``sequences`` tells. Batches that are sent
    again go in the order of their numbers, and one whose number is refused once is sent again behind those before it.
    A failed producer is of no further use: abort its transaction.
    """

    _ceiling = LAST_PRODUCE_OF_FIRST_PROTOCOL

    def __init__(
        self, cluster: ClusterMetadata, transaction: PreparedTransaction, add_partitions: AddPartitions
    ) -> None:
        if cluster.config.required_acks != -1 or cluster.config.max_in_flight > MOST_IN_FLIGHT:
            raise ConfigError(
                f"a transaction needs acks=all, and max.in.flight.requests.per.connection of at most {MOST_IN_FLIGHT}"
            )
        super().__init__(cluster)
        self._producer = ProducerId(transaction.producer_id, transaction.epoch)
        self._transactional_id = transaction.transactional_id
        self._add_partitions = add_partitions
        self._added: set[TopicPartition] = set()
        self._numberings: dict[TopicPartition, Numbering] = {}
        self._refused_once: set[tuple[TopicPartition, int]] = set()

    def will_send(self, partitions: Iterable[TopicPartition]) -> None:
        """Batches of these follow: they are added to the transaction together."""
        new = [tp for tp in partitions if tp not in self._added]
        if new:
            self._add_partitions(new)
            self._added.update(new)

    def send(self, tp: TopicPartition, batch: Batch) -> None:
        assert isinstance(batch, bytearray)
        numbering = self._numberings.get(tp)
        if numbering is None:
            self.will_send([tp])
            numbering = self._numberings[tp] = Numbering(self._producer)
        elif not numbering.is_proven:
            self.flush()
        patch_producer(batch, 0, *numbering.stamp(RecordBatch(batch).record_count))
        super().send(tp, batch)

    def _answered(self, tp: TopicPartition, batch: Batch, result: ProduceResult, refusal: Refusal | None) -> None:
        sent = RecordBatch(batch)
        if refusal is None:
            self._numberings[tp].acknowledge(sent.base_sequence, sent.record_count)
        elif refusal is Refusal.OUT_OF_SEQUENCE and self._is_behind(tp, sent.base_sequence):
            again = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"partition {tp} waits for an earlier batch")
            self._retry_later({tp: batch}, again)
            return
        super()._answered(tp, batch, result, refusal)

    def _is_behind(self, tp: TopicPartition, sequence: int) -> bool:
        """Whether those before it were not all written when it was sent; believed of each batch once, at its turn."""
        if not self._numberings[tp].is_next(sequence):
            return True
        first_time = (tp, sequence) not in self._refused_once
        self._refused_once.add((tp, sequence))
        return first_time

    def _take_retries(self) -> Iterable[tuple[TopicPartition, Batch]]:
        """All that is unsettled, in order: what is in flight to other brokers is waited for first."""
        for endpoint in list(self._pipelines):
            self._drain(endpoint, 0)
        for pipeline in self._pipelines.values():
            self._retries.extend(pipeline.filling.items())
            pipeline.filling, pipeline.filled_bytes = {}, 0
        again, self._retries = self._retries, deque()
        return sorted(again, key=lambda each: RecordBatch(each[1]).base_sequence)
