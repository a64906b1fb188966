"""Encoded batches sent in a transaction: numbered, so that each is written once and in order however often sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sparklog.client.admin.prepared import PreparedTransaction
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.producer.idempotent_batch_producer import IdempotentBatchProducer
from sparklog.client.producer.sequences import ProducerId
from sparklog.client.producer.transaction import LAST_PRODUCE_OF_FIRST_PROTOCOL
from sparklog.structs import TopicPartition

AddPartitions = Callable[[list[TopicPartition]], None]


class TransactionalBatchProducer(IdempotentBatchProducer):
    """A producer whose batches are those of one transaction. They must be encoded as transactional, in bytearrays.

    ``add_partitions`` is called before the first batch of a partition is sent, once for all that ``will_send`` names.
    A failed producer is of no further use: abort its transaction.
    """

    _purpose = "a transaction"
    _ceiling = LAST_PRODUCE_OF_FIRST_PROTOCOL

    def __init__(
        self, cluster: ClusterMetadata, transaction: PreparedTransaction, add_partitions: AddPartitions
    ) -> None:
        super().__init__(cluster)
        self._producer = ProducerId(transaction.producer_id, transaction.epoch)
        self._transactional_id = transaction.transactional_id
        self._add_partitions = add_partitions
        self._added: set[TopicPartition] = set()

    def will_send(self, partitions: Iterable[TopicPartition]) -> None:
        """Batches of these follow: they are added to the transaction together."""
        new = [tp for tp in partitions if tp not in self._added]
        if new:
            self._add_partitions(new)
            self._added.update(new)
