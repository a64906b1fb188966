"""Spark batch reading to nowhere (``noop``): ``format("sparklog")`` beside Spark's own Kafka connector.

The same records in sparklog and in Kafka 3.9.1, the same session, one after another in each round; the first round
warms up and is thrown away, and the order turns from round to round. ``ratio`` is the median over the rounds of how
many times faster than the connector on Kafka a reader was in that round.

``python -m benchmarks.spark_read [--json PATH]``
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks import machine
from benchmarks.loads.records import batch_of
from benchmarks.peers import Peer, both_brokers
from sparklog.client.admin import AdminClient, NewTopic
from sparklog.client.batch_producer import BatchProducer
from sparklog.client.config import ClientConfig
from sparklog.client.metadata import ClusterMetadata
from sparklog.client.offsets import earliest_offsets, latest_offsets
from sparklog.clock import Clock, SystemClock
from sparklog.local.jars import jar_set
from sparklog.spark import session
from sparklog.structs import TopicPartition

ROUNDS = 3
PARTITIONS = 2
BATCH_BYTES = 64 * 1024
RECORDS = {1000: 1_500_000, 100: 6_000_000}
QUIET_WAIT_S = 4
_KEPT = {"retention.ms": "-1"}
"""The records are years old."""


@dataclass(frozen=True)
class Reader:
    """A way to read: a format, on a broker, all columns or the value alone."""

    name: str
    format: str
    broker: str
    value_only: bool = False

    def load(self, spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
        """The whole topic; the value alone is asked for in the way of each format that reads least."""
        reader = spark.read.format(self.format).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
        if not self.value_only:
            return reader.load()
        return reader.schema("value binary").load() if self.format == "sparklog" else reader.load().select("value")


CONNECTOR = Reader("connector on kafka", "kafka", "kafka")
CONNECTOR_VALUE = Reader("connector on kafka, value only", "kafka", "kafka", value_only=True)
READERS = (
    CONNECTOR,
    Reader("sparklog on kafka", "sparklog", "kafka"),
    Reader("sparklog on sparklog", "sparklog", "sparklog"),
    CONNECTOR_VALUE,
    Reader("sparklog on kafka, value only", "sparklog", "kafka", value_only=True),
    Reader("sparklog on sparklog, value only", "sparklog", "sparklog", value_only=True),
)


def run(rounds: int = ROUNDS, scale: float = 1.0) -> list[dict[str, Any]]:
    """Every reader at every record size: (reader, record_size, records_per_second, mb_per_second, ratio, rounds)."""
    clock = SystemClock()
    with TemporaryDirectory(prefix="spark-read-") as directory, both_brokers(Path(directory)) as peers:
        bootstraps = {peer.name: peer.bootstrap for peer in peers}
        with _spark() as spark:
            results = []
            for size, records in RECORDS.items():
                count = int(records * scale)
                for peer in peers:
                    _fill(peer, f"records-{size}", size, count)
                results += _measure(spark, clock, bootstraps, size, rounds)
                for peer in peers:
                    peer.delete_topics([f"records-{size}"])
            return results


@contextmanager
def _spark() -> Iterator[SparkSession]:
    # Spark's workers import sparklog from where this process did.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    spark = session("spark_read", jars=jar_set("spark-kafka"), spark_driver_memory="2g", spark_log_level="ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def _fill(peer: Peer, topic: str, size: int, records: int) -> None:
    batch, count = batch_of(size, BATCH_BYTES)
    with ClusterMetadata(ClientConfig(bootstrap_servers=peer.bootstrap)) as cluster:
        AdminClient(cluster).create_topics([NewTopic(topic, PARTITIONS, 1, _KEPT)])
        with BatchProducer(cluster) as producer:
            for number in range(records // count):
                producer.send(TopicPartition(topic, number % PARTITIONS), batch)


def _measure(
    spark: SparkSession, clock: Clock, bootstraps: dict[str, str], size: int, rounds: int
) -> list[dict[str, Any]]:
    rates: dict[str, list[float]] = {reader.name: [] for reader in READERS}
    for number in range(rounds + 1):
        for reader in READERS if number % 2 else READERS[::-1]:
            machine.await_quiet(clock, QUIET_WAIT_S)
            rate = _read(spark, clock, reader, bootstraps[reader.broker], f"records-{size}")
            if number:
                rates[reader.name].append(rate)
    return [_result(reader, size, rates) for reader in READERS]


def _read(spark: SparkSession, clock: Clock, reader: Reader, bootstrap: str, topic: str) -> float:
    """Records a second, from planning to the last row."""
    start = clock.monotonic()
    frame = reader.load(spark, bootstrap, topic)
    frame.write.format("noop").mode("overwrite").save()
    seconds = clock.monotonic() - start
    return float(_count(bootstrap, topic) / seconds)


def _count(bootstrap: str, topic: str) -> int:
    with ClusterMetadata(ClientConfig(bootstrap_servers=bootstrap)) as cluster:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        return sum(latest_offsets(cluster, partitions).values()) - sum(earliest_offsets(cluster, partitions).values())


def _result(reader: Reader, size: int, rates: dict[str, list[float]]) -> dict[str, Any]:
    base = CONNECTOR_VALUE if reader.value_only else CONNECTOR
    mine = rates[reader.name]
    ratios = [ours / theirs for ours, theirs in zip(mine, rates[base.name], strict=True)]
    median = statistics.median(mine)
    return {
        "reader": reader.name,
        "record_size": size,
        "records_per_second": round(median),
        "mb_per_second": round(median * size / 1e6),
        "ratio": round(statistics.median(ratios), 2),
        "rounds": [round(rate) for rate in mine],
    }


def main(argv: list[str]) -> int:
    """Print a line a measurement, and write them all as JSON where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--scale", type=float, default=1.0)
    arguments = parser.parse_args(argv)
    results = run(arguments.rounds, arguments.scale)
    for each in results:
        sys.stdout.write(
            f"{each['record_size']:>5} B  {each['reader']:<34} {each['records_per_second']:>10,} records/s"
            f" {each['mb_per_second']:>6,} MB/s  {each['ratio']:>5.2f} x the connector\n"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
