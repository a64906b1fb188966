"""Encoded batches sent in a transaction: numbered, so that each is written once and in order however often sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from sparklog.client.admin.prepared import PreparedTransaction
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.producer.batch_producer import Batch, BatchProducer
from sparklog.errors import ApiError, ConfigError, ErrorCode
from sparklog.record.batch import RecordBatch, increment_sequence, patch_producer
from sparklog.structs import TopicPartition

_LAST_OF_FIRST_PROTOCOL = 11
_WRITTEN = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
MOST_IN_FLIGHT = 5
"""So many batches of a producer does a broker remember in each partition, and know again."""

AddPartitions = Callable[[list[TopicPartition]], None]


class TransactionalBatchProducer(BatchProducer):
    """A BatchProducer whose batches are those of one transaction. They must be encoded as transactional, in bytearrays.

    ``add_partitions`` is called before the first batch of a partition is sent, once for all that ``will_send`` names. A
    second batch waits until the first of
    its partition is acknowledged: a broker that has none yet would take any number for the first. Batches that are sent
    again go in the order of their numbers, and one whose number is refused once is sent again behind those before it.
    A failed producer is of no further use: abort its transaction.
    """

    _ceiling = _LAST_OF_FIRST_PROTOCOL

    def __init__(
        self, cluster: ClusterMetadata, transaction: PreparedTransaction, add_partitions: AddPartitions
    ) -> None:
        if cluster.config.required_acks != -1 or cluster.config.max_in_flight > MOST_IN_FLIGHT:
            raise ConfigError(
                f"a transaction needs acks=all, and max.in.flight.requests.per.connection of at most {MOST_IN_FLIGHT}"
            )
        super().__init__(cluster)
        self._transaction = transaction
        self._transactional_id = transaction.transactional_id
        self._add_partitions = add_partitions
        self._added: set[TopicPartition] = set()
        self._next: dict[TopicPartition, int] = {}
        self._acknowledged: dict[TopicPartition, int] = {}
        self._refused_once: set[tuple[TopicPartition, int]] = set()

    def will_send(self, partitions: Iterable[TopicPartition]) -> None:
        """Batches of these follow: they are added to the transaction together."""
        new = [tp for tp in partitions if tp not in self._added]
        if new:
            self._add_partitions(new)
            self._added.update(new)

    def send(self, tp: TopicPartition, batch: Batch) -> None:
        assert isinstance(batch, bytearray)
        sequence = self._next.get(tp, 0)
        if tp not in self._next:
            self.will_send([tp])
        elif tp not in self._acknowledged:
            self.flush()
        _, producer_id, epoch = self._transaction
        patch_producer(batch, 0, producer_id, epoch, sequence)
        self._next[tp] = increment_sequence(sequence, RecordBatch(batch).record_count)
        super().send(tp, batch)

    def _answered(self, tp: TopicPartition, batch: Batch, code: ErrorCode, message: str | None) -> None:
        sent = RecordBatch(batch)
        if code in _WRITTEN:
            self._acknowledged[tp] = increment_sequence(sent.base_sequence, sent.record_count)
            self._acknowledge([batch])
            return
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._is_behind(tp, sent.base_sequence):
            again = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"partition {tp} waits for an earlier batch")
            self._retry_later({tp: batch}, again)
            return
        super()._answered(tp, batch, code, message)

    def _is_behind(self, tp: TopicPartition, sequence: int) -> bool:
        """Whether those before it were not all written when it was sent; believed of each batch once, at its turn."""
        if self._acknowledged.get(tp, 0) != sequence:
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
