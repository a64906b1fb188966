"""A changelog into a table of the last value of each key: the upsert, and Spark's own way on Kafka.

The other side is a stream of Spark's connector with ``foreachBatch``, which keeps the last record of each key in a
batch and merges it by ``MERGE``. Two rounds of changes: all, and a tenth as many again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from benchmarks.comparison import Comparison
from benchmarks.lake.topic import KeyedTopic
from benchmarks.spark_cases import Stage
from benchmarks.spark_ways import CONNECTOR, DIRECT, Way
from sparklog.spark.batch.offload import OffloadOptions, run
from sparklog.spark.lake.delta.upsert_table import UpsertTable

_SIZE = 100
_RECORDS = 2_000_000
_KEYS = 200_000
_PEER = "foreachBatch and MERGE on Kafka"
_numbers = count()


def measure(stage: Stage, share: float, rounds: int) -> Iterator[Comparison]:
    """Records a second of both sides; a round is a table of its own, and the first round is thrown away."""
    records = int(_RECORDS * share)
    first = Comparison(f"upsert {_SIZE} B, {_KEYS:,} keys, a new table", "records/s", _PEER)
    again = Comparison(f"upsert {_SIZE} B, a tenth as much again", "records/s", _PEER)
    for number in range(rounds + 1):
        for way in (DIRECT, CONNECTOR) if number % 2 else (CONNECTOR, DIRECT):
            side = _Side(stage, way, max(int(_KEYS * share), 1))
            for compared, size in ((first, records), (again, records // 10)):
                seconds = side.take_in(size)
                if number:
                    (compared.ours if way is DIRECT else compared.theirs).append(size / seconds)
    yield first
    yield again


class _Side:
    """One topic and one table."""

    def __init__(self, stage: Stage, way: Way, keys: int) -> None:
        self._stage = stage
        self._way = way
        self._servers = stage.bootstraps[way.broker]
        self._topic = KeyedTopic(f"changes-{next(_numbers)}", _SIZE, keys)
        self._directory = Path(stage.new_directory())
        self._table = str(self._directory / "table")
        self._topic.create(self._servers, stage.clock)

    def take_in(self, records: int) -> float:
        """Seconds for so many changes more, which are written before."""
        self._topic.write(self._servers, records, self._stage.clock)
        start = self._stage.clock.monotonic()
        if self._way is DIRECT:
            run(self._stage.spark, OffloadOptions(self._servers, (self._topic.name,), UpsertTable(self._table)))
        else:
            self._merge()
        return self._stage.clock.monotonic() - start

    def _merge(self) -> None:
        given = {**self._stage.bootstrap(self._way), "subscribe": self._topic.name, "startingOffsets": "earliest"}
        frame = self._stage.spark.readStream.format("kafka").options(**given, includeHeaders="true").load()
        query = (
            frame.writeStream.foreachBatch(self._merge_batch)
            .option("checkpointLocation", str(self._directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def _merge_batch(self, batch: DataFrame, _: int) -> None:
        order = Window.partitionBy("topic", "partition", "key").orderBy(f.col("offset").desc())
        last = batch.withColumn("place", f.row_number().over(order)).where("place = 1").drop("place")
        if not DeltaTable.isDeltaTable(batch.sparkSession, self._table):
            last.where("value IS NOT NULL").write.format("delta").partitionBy("topic", "partition").save(self._table)
            return
        same = "t.topic = s.topic AND t.partition = s.partition AND t.key = s.key"
        (
            DeltaTable.forPath(batch.sparkSession, self._table)
            .alias("t")
            .merge(last.alias("s"), same)
            .whenMatchedDelete("s.value IS NULL")
            .whenMatchedUpdateAll()
            .whenNotMatchedInsertAll("s.value IS NOT NULL")
            .execute()
        )
