"""The write of one task attempt: its rows go into a transaction of its own, which it leaves open for the driver."""

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
from sparklog.client.producer.idempotent_batch_producer import best_producer
from sparklog.client.producer.transactional_batch_producer import TransactionalBatchProducer
from sparklog.errors import SparklogError
from sparklog.spark.throttling import cluster_of_task
from sparklog.spark.write.attempt_names import AttemptName
from sparklog.spark.write.decisions import DecisionLog, Scope
from sparklog.spark.write.options import WriteOptions
from sparklog.spark.write.rows import TopicWriter
from sparklog.spark.write.task_attempt import TaskAttempt
from sparklog.structs import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa


class AttemptResult(NamedTuple):
    """The rows that an attempt has read, and the transaction that it leaves open."""

    rows: int
    transaction: PreparedTransaction | None = None
    topics: frozenset[tuple[str, UUID]] = frozenset()
    """Names and ids of the topics that it wrote to."""


def write_at_least_once(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> int:
    """Write all rows without a transaction, each once and in order with ``acks=all`` and idempotence. Returns their
    number."""
    rows = 0
    producer_of = BatchProducer if options.idempotence is False else best_producer
    with cluster_of_task(options.client) as cluster, producer_of(cluster) as producer:
        writer = TopicWriter(cluster, producer, options.topic, _any_partition())
        for batch in batches:
            writer.write(batch)
            rows += batch.num_rows
    return rows


def write_prepared(options: WriteOptions, task: TaskAttempt, batches: Iterator[pa.RecordBatch]) -> AttemptResult:
    """Write all rows in a transaction and leave it open. All rows are acknowledged on return.

    The result has no transaction if nothing is written: there are no rows, or this batch or a later one is decided
    already (the driver reports that). If the write fails, its transaction is aborted at once.
    """
    with cluster_of_task(options.client) as cluster, Admin(options.client) as admin:
        attempt = _Attempt(options, task, cluster, admin)
        try:
            return attempt.write(batches)
        except BaseException:
            with suppress(SparklogError):  # the first error matters more; a driver aborts the transaction later
                attempt.abort()
            raise
        finally:
            attempt.close()


class _Attempt:
    def __init__(self, options: WriteOptions, task: TaskAttempt, cluster: ClusterMetadata, admin: Admin) -> None:
        self._options = options
        self._task = task
        self._cluster = cluster
        self._admin = admin
        self._log = DecisionLog(cluster, admin)
        self._transaction: PreparedTransaction | None = None
        self._producer: TransactionalBatchProducer | None = None

    def write(self, batches: Iterator[pa.RecordBatch]) -> AttemptResult:
        if self._is_decided():
            return AttemptResult(sum(batch.num_rows for batch in batches))  # Spark wants the iterator exhausted
        rows, writer = 0, None
        for batch in batches:
            if not batch.num_rows:
                continue
            if writer is None:
                writer = self._begin()
            writer.write(batch)
            rows += batch.num_rows
        if self._producer is None or writer is None:
            return AttemptResult(rows)
        self._producer.flush()
        if self._is_decided():  # by another attempt of this task; the driver has looked for orphans before
            self.abort()
            return AttemptResult(rows)
        return AttemptResult(rows, self._transaction, frozenset(writer.topics))

    def _is_decided(self) -> bool:
        scope = Scope(self._task.scope, self._task.is_resumable)
        return self._log.last_batch(scope) >= self._task.batch if scope.is_resumable else self._log.is_over(scope)

    def _begin(self) -> TopicWriter:
        self._transaction = self._free_transaction()
        self._producer = TransactionalBatchProducer(self._cluster, self._transaction, self._add)
        return TopicWriter(self._cluster, self._producer, self._options.topic, _any_partition(), is_transactional=True)

    def _free_transaction(self) -> PreparedTransaction:
        task = self._task
        name = AttemptName(task.scope, task.run, task.partition, task.attempt, task.batch % 2)
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
    """A random first partition for rows without a key, so that many small tasks do not all begin at the same one."""
    return random.randrange(1 << 16)
