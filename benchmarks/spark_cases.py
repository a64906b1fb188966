"""What is measured of Spark: reading, streaming, writing, planning, and the memory of a task."""

from __future__ import annotations

import os
import statistics
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from benchmarks import machine
from benchmarks.loads.records import batch_of
from sparklog.client.admin import AdminClient, NewTopic
from sparklog.client.batch_producer import BatchProducer
from sparklog.client.config import ClientConfig
from sparklog.client.metadata import ClusterMetadata
from sparklog.client.offsets import latest_offsets
from sparklog.clock import Clock
from sparklog.structs import TopicPartition

PARTITIONS = 2
MANY_PARTITIONS = 1000
MICRO_BATCHES = 20
RECORDS = {1000: 1_500_000, 100: 6_000_000}
_BATCH_BYTES = 64 * 1024
_KEPT = {"retention.ms": "-1"}
"""The records are years old."""
_SAMPLE_S = 0.05


@dataclass(frozen=True)
class Topic:
    """Records of ``size`` bytes, keyless, the same on every broker, spread evenly."""

    size: int
    records: int
    partitions: int = PARTITIONS

    @property
    def name(self) -> str:
        return f"records-{self.size}-{self.records}-{self.partitions}"

    def fill(self, bootstrap: str, clock: Clock) -> None:
        """Create it and write the records, at least one batch a partition."""
        batch, count = batch_of(self.size, min(_BATCH_BYTES, self.size * max(self.records // self.partitions, 1)))
        with ClusterMetadata(ClientConfig(bootstrap_servers=bootstrap), clock) as cluster:
            AdminClient(cluster).create_topics([NewTopic(self.name, self.partitions, 1, _KEPT)])
            with BatchProducer(cluster) as producer:
                for number in range(max(self.records // count, self.partitions)):
                    producer.send(TopicPartition(self.name, number % self.partitions), batch)


@dataclass
class Stage:
    """Where the cases run."""

    spark: SparkSession
    bootstraps: dict[str, str]
    directory: Path
    clock: Clock
    _counted: dict[tuple[str, str], int] = field(default_factory=dict)

    def reader(self, source: str, broker: str, **options: object) -> Any:
        given = {"kafka.bootstrap.servers": self.bootstraps[broker], **options}
        return self.spark.read.format(source).options(**given)

    def count(self, broker: str, topic: Topic) -> int:
        """Its records; they were counted by their offsets, outside of what is timed."""
        key = (broker, topic.name)
        if key not in self._counted:
            with ClusterMetadata(ClientConfig(bootstrap_servers=self.bootstraps[broker]), self.clock) as cluster:
                partitions = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
                self._counted[key] = sum(latest_offsets(cluster, partitions).values())
        return self._counted[key]

    def new_directory(self) -> str:
        return mkdtemp(dir=self.directory)


@dataclass(frozen=True)
class Case:
    """A figure: one ending in ``/s`` is the better the more it is, any other the less."""

    name: str
    figure: str
    topic: Topic
    measure: Callable[[Stage, str, str], float]
    ours_alone: bool = False


def all_cases(scale: float) -> Iterator[Case]:
    """Those that read the same topic follow one another."""
    for size, records in RECORDS.items():
        yield from _reading(Topic(size, int(records * scale)))
    yield from _streaming(Topic(100, max(int(RECORDS[100] * scale), 40_000)))
    yield from _writing(scale)
    many = Topic(100, MANY_PARTITIONS, MANY_PARTITIONS)
    yield Case(f"plan {MANY_PARTITIONS:,} partitions", "ms", many, lambda *way: _plan(many, *way))


def _reading(topic: Topic) -> Iterator[Case]:
    def case(name: str, use: Callable[[Stage, DataFrame], None], columns: str = "") -> Case:
        def measure(stage: Stage, source: str, broker: str) -> float:
            count = stage.count(broker, topic)
            return count / _seconds(stage, lambda: use(stage, _load(stage, source, broker, topic, columns)))

        return Case(f"read {topic.size} B, {name}", "records/s", topic, measure)

    middle = topic.records // topic.partitions // 2
    yield case("all columns", lambda _, frame: _to_nowhere(frame))
    yield case("value and offset", lambda _, frame: _to_nowhere(frame), "value, offset")
    yield case("half by a filter on offset", lambda _, frame: _to_nowhere(frame.where(f.col("offset") >= middle)))
    yield case("count, last offset and bytes a partition", lambda _, frame: _aggregate(frame))
    yield case("to Delta", lambda stage, frame: frame.write.format("delta").save(stage.new_directory()))
    memory = f"memory of a task, {topic.size} B"
    yield Case(memory, "MB", topic, lambda *way: _worker_memory(topic, *way), ours_alone=True)


def _streaming(topic: Topic) -> Iterator[Case]:
    few = Topic(100, 100 * MICRO_BATCHES)

    def all_at_once(stage: Stage, source: str, broker: str) -> float:
        count = stage.count(broker, topic)
        return count / _seconds(stage, lambda: _stream(stage, source, broker, topic, count))

    def overhead(stage: Stage, source: str, broker: str) -> float:
        query = _stream(stage, source, broker, few, -(-stage.count(broker, few) // MICRO_BATCHES))
        spent = [each["durationMs"]["triggerExecution"] for each in query.recentProgress if each["numInputRows"]]
        return float(statistics.median(spent[1:] or spent))

    yield Case("stream 100 B, one micro-batch", "records/s", topic, all_at_once)
    yield Case("stream, a micro-batch of 100 records", "ms", few, overhead)


def _writing(scale: float) -> Iterator[Case]:
    for size, records in RECORDS.items():
        count = max(int(records * scale / 4), 1000)
        target = Topic(size, 2 * PARTITIONS)

        def measure(
            stage: Stage, source: str, broker: str, size: int = size, count: int = count, target: Topic = target
        ) -> float:
            value = f.rpad(f.col("id").cast("string"), size, "x").cast("binary")
            frame = stage.spark.range(count, numPartitions=PARTITIONS).select(value.alias("value"))
            options = {"kafka.bootstrap.servers": stage.bootstraps[broker], "topic": target.name}
            writer = frame.write.format(source).options(**options).mode("append")
            return count / _seconds(stage, writer.save)

        yield Case(f"write {size} B", "records/s", target, measure)


def _load(stage: Stage, source: str, broker: str, topic: Topic, columns: str = "") -> DataFrame:
    """The whole topic; columns are asked for in the way of each format that reads least."""
    reader = stage.reader(source, broker, subscribe=topic.name)
    if not columns:
        return reader.load()
    if source == "sparklog":
        types = {"value": "binary", "offset": "bigint"}
        return reader.schema(", ".join(f"{name} {types[name]}" for name in columns.split(", "))).load()
    return reader.load().select(*columns.split(", "))


def _to_nowhere(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _aggregate(frame: DataFrame) -> None:
    frame.groupBy("partition").agg(f.count("*"), f.max("offset"), f.sum(f.length("value"))).collect()


def _stream(stage: Stage, source: str, broker: str, topic: Topic, most: int) -> StreamingQuery:
    """The whole topic to nowhere, up to ``most`` records a micro-batch."""
    options = {
        "kafka.bootstrap.servers": stage.bootstraps[broker],
        "subscribe": topic.name,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": most,
    }
    frame = stage.spark.readStream.format(source).options(**options).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", stage.new_directory())
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def _plan(topic: Topic, stage: Stage, source: str, broker: str) -> float:
    """Milliseconds until Spark has the tasks."""
    return 1000 * _seconds(stage, lambda: _load(stage, source, broker, topic).rdd.getNumPartitions())


def _worker_memory(topic: Topic, stage: Stage, source: str, broker: str) -> float:
    """The most megabytes that one of Spark's Python workers held while it read."""
    done, most = threading.Event(), [0]

    def watch() -> None:
        while not done.wait(_SAMPLE_S):
            for pid in _workers():
                most[0] = max(most[0], _resident(pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        _to_nowhere(_load(stage, source, broker, topic))
    finally:
        done.set()
        watcher.join()
    return most[0] / 1e6


def _workers() -> Iterator[int]:
    """The processes beneath Spark's worker daemon, of this process's JVM."""
    parents = {}
    daemons = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if b"pyspark.daemon" in (entry / "cmdline").read_bytes():
                    daemons.add(int(entry.name))
            except OSError:
                continue
    for pid, parent in parents.items():
        if parent in daemons and _is_beneath(pid, os.getpid(), parents):
            yield pid


def _is_beneath(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != ancestor:
        pid = parents[pid]
    return pid == ancestor


def _resident(pid: int) -> int:
    try:
        return machine.resident_bytes(pid)
    except OSError:
        return 0


def _seconds(stage: Stage, act: Callable[[], object]) -> float:
    start = stage.clock.monotonic()
    act()
    return stage.clock.monotonic() - start
