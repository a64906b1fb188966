"""What one task attempt writes: its rows in a transaction of its own, all acknowledged, left open for the driver."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.prepared import PreparedTransaction
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.client.producer.transactional_batch_producer import TransactionalBatchProducer
from sparklog.errors import SparklogError
from sparklog.spark.write.attempt_names import AttemptName
from sparklog.spark.write.decisions import DecisionLog, Scope
from sparklog.spark.write.options import WriteOptions
from sparklog.spark.write.rows import TopicWriter
from sparklog.spark.write.task_place import Place
from sparklog.structs import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa


class Attempted(NamedTuple):
    """What an attempt has read, and what it leaves open."""

    rows: int
    transaction: PreparedTransaction | None = None
    topics: frozenset[tuple[str, UUID]] = frozenset()
    """Names and ids of the topics that it wrote to."""


def write_at_least_once(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> int:
    """Write all rows without a transaction; how many they were."""
    rows = 0
    with ClusterMetadata(options.client) as cluster, BatchProducer(cluster) as producer:
        writer = TopicWriter(cluster, producer, options.topic, _any_partition())
        for batch in batches:
            writer.write(batch)
            rows += batch.num_rows
    return rows


def write_prepared(options: WriteOptions, place: Place, batches: Iterator[pa.RecordBatch]) -> Attempted:
    """Write all rows in a transaction that is left open.

    No transaction where nothing is written: there are no rows, or the batch is decided already, or a later one, of
    which the driver tells. What fails is aborted at once.
    """
    with ClusterMetadata(options.client) as cluster, Admin(options.client) as admin:
        attempt = _Attempt(options, place, cluster, admin)
        try:
            return attempt.write(batches)
        except BaseException:
            with suppress(SparklogError):  # what failed matters more; a driver aborts what is left open
                attempt.abort()
            raise
        finally:
            attempt.close()


class _Attempt:
    def __init__(self, options: WriteOptions, place: Place, cluster: ClusterMetadata, admin: Admin) -> None:
        self._options = options
        self._place = place
        self._cluster = cluster
        self._admin = admin
        self._log = DecisionLog(cluster, admin)
        self._transaction: PreparedTransaction | None = None
        self._producer: TransactionalBatchProducer | None = None

    def write(self, batches: Iterator[pa.RecordBatch]) -> Attempted:
        if self._is_decided():
            return Attempted(sum(batch.num_rows for batch in batches))  # read to their end, as Spark wants
        rows, writer = 0, None
        for batch in batches:
            if not batch.num_rows:
                continue
            if writer is None:
                writer = self._begin()
            writer.write(batch)
            rows += batch.num_rows
        if self._producer is None or writer is None:
            return Attempted(rows)
        self._producer.flush()
        if self._is_decided():  # with this task's other attempt; the driver has looked for leftovers before
            self.abort()
            return Attempted(rows)
        return Attempted(rows, self._transaction, frozenset(writer.topics))

    def _is_decided(self) -> bool:
        scope = Scope(self._place.scope, self._place.lasts)
        return self._log.last_batch(scope) >= self._place.batch if scope.lasts else self._log.is_over(scope)

    def _begin(self) -> TopicWriter:
        self._transaction = self._free_transaction()
        self._producer = TransactionalBatchProducer(self._cluster, self._transaction, self._add)
        return TopicWriter(self._cluster, self._producer, self._options.topic, _any_partition(), is_transactional=True)

    def _free_transaction(self) -> PreparedTransaction:
        place = self._place
        name = AttemptName(place.scope, place.run, place.partition, place.attempt, place.batch % 2)
        timeout = self._options.transaction_timeout_ms
        while (found := self._admin.init_prepared(name.transactional_id, timeout)) is None:
            name = name._replace(turn=name.turn + 1)
        return found

    def _add(self, partitions: list[TopicPartition]) -> None:
        assert self._transaction is not None
        self._admin.add_to_prepared(self._transaction, partitions)

    def abort(self) -> None:
        if self._transaction is not None:
            self._admin.end_prepared([self._transaction], commit=False)

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()


def _any_partition() -> int:
    """Where the rows without a key begin, so that many small tasks do not all begin at the same."""
    return random.randrange(1 << 16)
