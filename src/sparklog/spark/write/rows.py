"""Sends the rows of Arrow batches to topics and partitions. It splits batches by column values, never row by row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.client.producer.partitioner import Partitioner, misplaced
from sparklog.errors import ApiError, DataSourceError, ErrorCode
from sparklog.record.columnar import ColumnarEncoder
from sparklog.spark.failures import row_named
from sparklog.structs import TopicPartition

_NO_TOPIC = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "SPARKLOG_UNKNOWN_TOPIC",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "SPARKLOG_INVALID_TOPIC",
}
_RECORD_COLUMNS = ("key", "value", "headers")


class TopicWriter:
    """Sends the rows of Arrow batches to the topic of the option, or else to the topic in each row's column."""

    def __init__(
        self,
        cluster: ClusterMetadata,
        producer: BatchProducer,
        topic: str | None,
        first_partition: int = 0,
        *,
        is_transactional: bool = False,
    ) -> None:
        self._cluster = cluster
        self._producer = producer
        self._topic = topic
        self._first_partition = first_partition
        config = cluster.config
        self._encoder = ColumnarEncoder(
            compression=config.compression_type, max_batch_bytes=config.batch_size, is_transactional=is_transactional
        )
        self._partitioners: dict[str, Partitioner] = {}
        self.topics: set[tuple[str, UUID]] = set()
        """Names and ids of the topics that rows are written to."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Encode and send the rows. Returns when the batches are queued, before they are acknowledged.

        Raises DataSourceError for a row without a topic, or of a topic or a partition that there is not; SparklogError
        for what a broker refuses.
        """
        if not rows.num_rows:
            return
        if self._topic is not None:
            self._write_topic(self._topic, rows)
            return
        for topic, part in _groups(rows, "topic"):
            if topic is None:
                raise DataSourceError(
                    "SPARKLOG_MISSING_TOPIC", "a row has null for its topic: set the option 'topic', or drop such rows"
                )
            self._write_topic(topic, part)

    def _write_topic(self, topic: str, rows: pa.RecordBatch) -> None:
        try:
            self._route(topic, rows)
        except ApiError as error:
            if error.code not in _NO_TOPIC:
                raise
            is_unknown = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            meant = self._cluster.suggestion(topic) if is_unknown else ""
            text = f"{error}; asked for by {_first_row(rows)}{meant}"
            raise DataSourceError(_NO_TOPIC[error.code], text) from error

    def _route(self, topic: str, rows: pa.RecordBatch) -> None:
        key, named = (rows.column(name) if name in rows.schema.names else None for name in ("key", "partition"))
        partitioner = self._partitioner(topic)
        if named is not None:
            self._check(topic, named, rows)
        shares = list(partitioner.shares(key, rows.num_rows, named=named))
        self._producer.will_send(TopicPartition(topic, share.partition) for share in shares)
        for share in shares:
            self._send(TopicPartition(topic, share.partition), rows.slice(share.offset, share.length), share.rows)

    def _send(self, tp: TopicPartition, rows: pa.RecordBatch, chosen: memoryview | None) -> None:
        key, value, headers = (rows.column(name) if name in rows.schema.names else None for name in _RECORD_COLUMNS)
        now = self._cluster.clock.now_ms()
        for batch in self._encoder.encode(key, value, headers, None, now_ms=now, rows=chosen):
            self._producer.send(tp, batch.data)

    def _partitioner(self, topic: str) -> Partitioner:
        known = self._partitioners.get(topic)
        if known is None:
            count = self._partition_count(topic)
            known = self._partitioners[topic] = Partitioner(count, self._first_partition)
        return known

    def _check(self, topic: str, named: pa.Array, rows: pa.RecordBatch) -> None:
        count = self._partition_count(topic)
        row = misplaced(named, count)
        if row is not None:
            raise DataSourceError(
                "SPARKLOG_INVALID_PARTITION",
                f"{_first_row(rows.slice(row))} names partition {named[row]} of topic {topic!r}, which has 0 to"
                f" {count - 1}; drop the column 'partition' if rows may go anywhere",
            )

    def _partition_count(self, topic: str) -> int:
        found = self._cluster.topic(topic, create=True)
        self.topics.add((topic, found.topic_id))
        return len(found.partitions)


def _first_row(rows: pa.RecordBatch) -> str:
    key, value = (rows.column(name)[0].as_py() if name in rows.schema.names else None for name in ("key", "value"))
    return row_named(key, sum(len(each.encode() if isinstance(each, str) else each or b"") for each in (key, value)))


def _groups(rows: pa.RecordBatch, column: str) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """Each value of ``column`` with its rows; the batch itself, uncopied, if there is only one value."""
    encoded = pc.dictionary_encode(rows.column(column), null_encoding="encode")
    values = encoded.dictionary.to_pylist()
    if len(values) == 1:
        yield values[0], rows
        return
    for index, value in enumerate(values):
        yield value, rows.take(pc.indices_nonzero(pc.equal(encoded.indices, index)))
