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
from benchmarks.loads.keyed import keyed_batches
from benchmarks.spark_cases import Stage
from benchmarks.spark_ways import CONNECTOR, DIRECT, Way
from sparklog.client.admin.admin import AdminClient, NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.record.compression import CompressionType
from sparklog.spark.batch.offload import OffloadOptions, run
from sparklog.spark.lake.upsert_table import UpsertTable
from sparklog.structs import TopicPartition

_SIZE = 100
_RECORDS = 2_000_000
_KEYS = 200_000
_PARTITIONS = 2
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
        self._keys = keys
        self._way = way
        self._servers = stage.bootstraps[way.broker]
        self._topic = f"changes-{next(_numbers)}"
        self._directory = Path(stage.new_directory())
        self._table = str(self._directory / "table")
        with ClusterMetadata(ClientConfig(bootstrap_servers=self._servers), stage.clock) as cluster:
            AdminClient(cluster).create_topics([NewTopic(self._topic, _PARTITIONS, 1, {"retention.ms": "-1"})])

    def take_in(self, records: int) -> float:
        """Seconds for so many changes more, which are written before."""
        self._write(records)
        start = self._stage.clock.monotonic()
        if self._way is DIRECT:
            run(self._stage.spark, OffloadOptions(self._servers, (self._topic,), UpsertTable(self._table)))
        else:
            self._merge()
        return self._stage.clock.monotonic() - start

    def _write(self, records: int) -> None:
        batches = keyed_batches(_SIZE, records, self._keys, CompressionType.NONE, self._stage.clock.now_ms())
        with (
            ClusterMetadata(ClientConfig(bootstrap_servers=self._servers), self._stage.clock) as cluster,
            BatchProducer(cluster) as producer,
        ):
            for number, batch in enumerate(batches):
                producer.send(TopicPartition(self._topic, number % _PARTITIONS), bytes(batch.data))

    def _merge(self) -> None:
        given = {**self._stage.bootstrap(self._way), "subscribe": self._topic, "startingOffsets": "earliest"}
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
