"""The streaming job: delays by window, carrier and airport, from a topic of flights into a Delta table.

Windows are upserted (MERGE), so the table is right after every micro-batch, and a batch that Spark runs again after a
crash changes nothing. The watermark bounds the state: a flight that comes later than that is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

FLIGHT = "scheduled timestamp, carrier string, origin string, dep_delay int"

_SAME_WINDOW = "old.window_start = new.window_start AND old.carrier = new.carrier AND old.origin = new.origin"


@dataclass(frozen=True)
class DelayOptions:
    """What the job is told. ``flights_per_batch`` None takes all that there is in one micro-batch.

    (It counts offsets, of which aborted flights have some too.)
    """

    bootstrap: str
    topic: str
    table: str
    checkpoint: str
    window: str = "1 hour"
    watermark: str = "14 days"
    flights_per_batch: int | None = 200_000
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    """More settings of the client, such as ``security.protocol``."""


class Report(NamedTuple):
    """What a run did."""

    flights: int
    batches: int
    windows: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.flights:,} flights in {self.batches} micro-batches, {self.seconds:.1f} s;"
            f" the table has {self.windows:,} windows"
        )


def run(spark: SparkSession, options: DelayOptions) -> Report:
    """Process what the topic has and the checkpoint does not know yet, then return. Raises Spark's errors."""
    query = (
        _delays(_flights(spark, options), options)
        .writeStream.outputMode("update")
        .option("checkpointLocation", options.checkpoint)
        .trigger(availableNow=True)
        .foreachBatch(lambda batch, _: _upsert(batch, options.table))
        .start()
    )
    try:
        query.awaitTermination()
        progress = [each for each in query.recentProgress if each.numInputRows]
    finally:
        query.stop()
    return Report(
        sum(each.numInputRows for each in progress),
        len(progress),
        _count(spark, options.table),
        sum(each.batchDuration for each in progress) / 1000,
    )


def _count(spark: SparkSession, path: str) -> int:
    """The rows of the table, which only the first batch makes."""
    if not DeltaTable.isDeltaTable(spark, path):
        return 0
    return int(DeltaTable.forPath(spark, path).toDF().count())


def _flights(spark: SparkSession, options: DelayOptions) -> DataFrame:
    reader = (
        spark.readStream.format("sparklog")
        .schema("value binary")
        .options(**{f"kafka.{name}": text for name, text in options.client.items()})
        .option("kafka.bootstrap.servers", options.bootstrap)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
        # What a transaction wrote that was aborted is in the log as well, and is none of the flights.
        .option("kafka.isolation.level", "read_committed")
    )
    if options.flights_per_batch is not None:
        reader = reader.option("maxOffsetsPerTrigger", options.flights_per_batch)
    flight = F.from_json(F.col("value").cast("string"), FLIGHT)
    return reader.load().select(flight.alias("flight")).select("flight.*")


def _delays(flights: DataFrame, options: DelayOptions) -> DataFrame:
    return (
        flights.withWatermark("scheduled", options.watermark)
        .groupBy(F.window("scheduled", options.window), "carrier", "origin")
        .agg(
            F.count(F.lit(1)).alias("flights"),
            F.count("dep_delay").alias("departed"),
            F.avg("dep_delay").alias("mean_delay"),
            F.percentile_approx("dep_delay", 0.9).alias("p90_delay"),
        )
        .select(
            F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end"),
            "carrier", "origin", "flights", "departed", "mean_delay", "p90_delay",
        )
    )  # fmt: skip


def _upsert(batch: DataFrame, path: str) -> None:
    # MERGE reads its source twice; without the cache the stream's state would be computed twice too.
    batch = batch.persist()
    try:
        first = batch.agg(F.min("window_start")).first()[0]
        if first is None:
            return
        if not DeltaTable.isDeltaTable(batch.sparkSession, path):
            batch.write.format("delta").save(path)
            return
        # Files that end before the batch begins need not be looked at.
        recent = F.expr(_SAME_WINDOW) & (F.col("old.window_start") >= F.lit(first))
        table = DeltaTable.forPath(batch.sparkSession, path).alias("old")
        merge = table.merge(batch.alias("new"), recent)
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    finally:
        batch.unpersist()
