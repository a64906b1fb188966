"""What is measured of Spark: reading, streaming, writing, planning, and the memory of a task."""

from __future__ import annotations

import os
import statistics
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from benchmarks import machine
from benchmarks.loads.records import batch_of
from benchmarks.spark_ways import (
    BY_FETCH,
    CONNECTOR,
    DIRECT,
    ON_KAFKA,
    READING,
    READY,
    READY_IN_CACHE,
    RECORDS,
    WRITING,
    Way,
)
from sparklog.client.admin.admin import AdminClient, NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import latest_offsets
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.clock import Clock
from sparklog.spark.source import SparklogDataSource
from sparklog.structs import TopicPartition

PARTITIONS = 2
MANY_PARTITIONS = 1000
MICRO_BATCHES = 20
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

    def bootstrap(self, way: Way) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstraps[way.broker]}

    def count(self, way: Way, topic: Topic) -> int:
        """Its records; they were counted by their offsets, outside of what is timed."""
        broker = way.broker
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
    measure: Callable[[Stage, Way], float]
    ways: tuple[Way, ...]
    """The first is what the others are measured by."""


def all_cases(scale: float) -> Iterator[Case]:
    """Those that read the same topic follow one another.

    First the memory of tasks: their workers serve later cases too, and by then hold more than a task's.
    """
    for size, records in RECORDS.items():
        yield _memory(Topic(size, int(records * scale / 4)))
    for size, records in RECORDS.items():
        yield from _reading(Topic(size, int(records * scale)))
    yield from _streaming(Topic(100, max(int(RECORDS[100] * scale), 40_000)))
    yield from _writing(scale)
    many = Topic(100, MANY_PARTITIONS, MANY_PARTITIONS)
    plan = f"plan {MANY_PARTITIONS:,} partitions"
    yield Case(plan, "ms", many, lambda *where: _plan(many, *where), (CONNECTOR, ON_KAFKA, BY_FETCH))


def _memory(topic: Topic) -> Case:
    name = f"memory of a task, {topic.size} B"
    return Case(name, "MB", topic, lambda *where: _worker_memory(topic, *where), (BY_FETCH, DIRECT))


def _reading(topic: Topic) -> Iterator[Case]:
    def case(
        name: str, use: Callable[[Stage, DataFrame], None], columns: str = "", bounds: tuple[Way, ...] = (READY,)
    ) -> Case:
        def measure(stage: Stage, way: Way) -> float:
            count = stage.count(way, topic)
            return count / _seconds(stage, lambda: use(stage, _load(stage, way, topic, columns)))

        return Case(f"read {topic.size} B, {name}", "records/s", topic, measure, (*READING, *bounds))

    half = topic.records // topic.partitions // 2
    yield case("all columns", lambda _, frame: _to_nowhere(frame), bounds=(READY, READY_IN_CACHE))
    yield case("value and offset", lambda _, frame: _to_nowhere(frame), "value, offset")
    yield case(
        "half by a filter on offset", lambda _, frame: _to_nowhere(frame.where(f.col("offset") >= half)), bounds=()
    )
    yield case("count, last offset and bytes a partition", lambda _, frame: _aggregate(frame))
    yield case("to Delta", lambda stage, frame: frame.write.format("delta").save(stage.new_directory()), bounds=())
    alone = f"read {topic.size} B, one Python process without Spark"
    yield Case(alone, "records/s", topic, lambda *where: _without_spark(topic, *where), (BY_FETCH, DIRECT))


def _streaming(topic: Topic) -> Iterator[Case]:
    few = Topic(100, 100 * MICRO_BATCHES)

    def all_at_once(stage: Stage, way: Way) -> float:
        count = stage.count(way, topic)
        return count / _seconds(stage, lambda: _stream(stage, way, topic, count))

    def overhead(stage: Stage, way: Way, copy: str = "") -> float:
        query = _stream(stage, way, few, -(-stage.count(way, few) // MICRO_BATCHES), copy)
        spent = [each["durationMs"]["triggerExecution"] for each in query.recentProgress if each["numInputRows"]]
        return float(statistics.median(spent[1:] or spent))

    def copying(stage: Stage, way: Way) -> float:
        return overhead(stage, way, f"{few.name}-copy")

    yield Case("stream 100 B, one micro-batch", "records/s", topic, all_at_once, READING)
    yield Case("stream, a micro-batch of 100 records", "ms", few, overhead, READING)
    yield Case("stream, a micro-batch of 100 records copied", "ms", few, copying, WRITING)


def _writing(scale: float) -> Iterator[Case]:
    for size, records in RECORDS.items():
        count = max(int(records * scale / 4), 1000)
        target = Topic(size, 2 * PARTITIONS)

        def measure(stage: Stage, way: Way, size: int = size, count: int = count, target: Topic = target) -> float:
            value = f.rpad(f.col("id").cast("string"), size, "x").cast("binary")
            frame = stage.spark.range(count, numPartitions=PARTITIONS).select(value.alias("value"))
            writer = frame.write.format(way.source).options(**stage.bootstrap(way), **way.options, topic=target.name)
            return count / _seconds(stage, writer.mode("append").save)

        yield Case(f"write {size} B", "records/s", target, measure, WRITING)


def _load(stage: Stage, way: Way, topic: Topic, columns: str = "") -> DataFrame:
    """The whole topic; columns are asked for in the way of each format that reads least."""
    reader = stage.spark.read.format(way.source).options(**stage.bootstrap(way), **way.options, subscribe=topic.name)
    if way.source == READY.source:
        reader = reader.options(size=topic.size, records=stage.count(way, topic), partitions=topic.partitions)
    if not columns:
        return reader.load()
    if way is CONNECTOR:
        return reader.load().select(*columns.split(", "))
    types = {"value": "binary", "offset": "bigint"}
    return reader.schema(", ".join(f"{name} {types[name]}" for name in columns.split(", "))).load()


def _without_spark(topic: Topic, stage: Stage, way: Way) -> float:
    """Records a second that the source's tasks yield, one after another in this process."""
    source = SparklogDataSource({**stage.bootstrap(way), **way.options, "subscribe": topic.name})
    reader = source.reader(source.schema())

    def read() -> None:
        for task in reader.partitions():
            for _ in reader.read(task):
                pass

    return stage.count(way, topic) / _seconds(stage, read)


def _to_nowhere(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _aggregate(frame: DataFrame) -> None:
    frame.groupBy("partition").agg(f.count("*"), f.max("offset"), f.sum(f.length("value"))).collect()


def _stream(stage: Stage, way: Way, topic: Topic, most: int, copy: str = "") -> StreamingQuery:
    """The whole topic to nowhere, or to the topic ``copy``; up to ``most`` records a micro-batch."""
    given = {"subscribe": topic.name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(most)}
    reader = stage.spark.readStream.format(way.source).options(**stage.bootstrap(way), **given)
    if copy:
        frame = reader.load().select("key", "value")
        writer = frame.writeStream.format(way.source).options(**stage.bootstrap(way), **way.options, topic=copy)
    else:
        writer = reader.options(**way.options).load().writeStream.format("noop")
    query = writer.option("checkpointLocation", stage.new_directory()).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def _plan(topic: Topic, stage: Stage, way: Way) -> float:
    """Milliseconds until Spark has the tasks."""
    return 1000 * _seconds(stage, lambda: _load(stage, way, topic).rdd.getNumPartitions())


def _worker_memory(topic: Topic, stage: Stage, way: Way) -> float:
    """The most megabytes that one of Spark's Python workers held while it read."""
    done, most = threading.Event(), [0]

    def watch() -> None:
        while not done.wait(_SAMPLE_S):
            for pid in _workers():
                most[0] = max(most[0], _resident(pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        _to_nowhere(_load(stage, way, topic))
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
