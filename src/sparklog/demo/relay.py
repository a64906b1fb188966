"""The copying job: the records of a topic into another one, partition by partition, each exactly once.

The sink writes a micro-batch in transactions that become visible together, once. Kill the job where you like and run
it again with its checkpoint: readers with ``kafka.isolation.level=read_committed`` see no record twice, and miss none.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Step = Callable[["Iterator[pa.RecordBatch]"], "Iterator[pa.RecordBatch]"]
"""A function for ``mapInArrow``."""

_COLUMNS = "key binary, value binary, partition int"


@dataclass(frozen=True)
class RelayOptions:
    """What the job is told. ``topic`` has as many partitions as ``source``."""

    bootstrap: str
    source: str
    topic: str
    checkpoint: str
    records_per_batch: int


def run(spark: SparkSession, options: RelayOptions, step: Step | None = None) -> int:
    """Copy what the source has and the checkpoint does not know yet; how many records this run copied.

    The rows go through ``step`` on their way. Raises Spark's errors; the next run goes on where this one ended.
    """
    records = _records(spark, options)
    if step is not None:
        records = records.mapInArrow(step, _COLUMNS)
    query = (
        records.writeStream.format("sparklog")
        .option("kafka.bootstrap.servers", options.bootstrap)
        .option("topic", options.topic)
        .option("delivery", "exactly-once")  # the default, here to be seen
        .option("checkpointLocation", options.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
        return sum(each.numInputRows for each in query.recentProgress)
    finally:
        query.stop()


def _records(spark: SparkSession, options: RelayOptions) -> DataFrame:
    """With their partition: in it they stay, and in their order."""
    return (
        spark.readStream.format("sparklog")
        .schema(_COLUMNS)
        .option("kafka.bootstrap.servers", options.bootstrap)
        .option("subscribe", options.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.records_per_batch)
        .option("kafka.isolation.level", "read_committed")
        .load()
    )


def dies_in_the_middle(note: Path) -> Step:
    """A step that passes its rows on, and then its process is killed with SIGKILL: once, in the second micro-batch.

    ``note`` is a file that is made then, so that the next attempt lives.
    """

    def step(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from rows
        if TaskContext.get().getLocalProperty("streaming.sql.batchId") == "1" and not note.exists():
            note.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    return step
