"""Writing a DataFrame to topics: Arrow batches are split by topic and partition, encoded, and sent, at least once.

A task returns when its last batch is acknowledged by all in-sync replicas (``kafka.acks`` can ask for less). A task
that Spark runs again writes its rows again, as with Spark's own Kafka sink.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from sparklog.errors import DataSourceError
from sparklog.spark.schema import check_write_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from sparklog.spark.options import WriteOptions


@dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]
    """What one task wrote."""

    rows: int


class SparklogWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """The batch sink; only appending makes sense to a log."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise DataSourceError(
                "SPARKLOG_UNSUPPORTED_SAVE_MODE", "a topic can only be appended to: use mode('append')"
            )
        check_write_schema(schema, options.topic)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return _write(self._options, iterator)


class SparklogStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """The streaming sink; rows are appended in the complete output mode too. Python sinks have no update mode."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_write_schema(schema, options.topic)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return _write(self._options, iterator)


def _write(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    from sparklog.client.batch_producer import BatchProducer
    from sparklog.client.metadata import ClusterMetadata
    from sparklog.spark.failures import translated
    from sparklog.spark.rows import TopicWriter

    rows = 0
    with translated(), ClusterMetadata(options.client) as cluster, BatchProducer(cluster) as producer:
        writer = TopicWriter(cluster, producer, options.topic, first_partition=random.randrange(1 << 16))
        for batch in batches:
            writer.write(batch)
            rows += batch.num_rows
    return Written(rows)
