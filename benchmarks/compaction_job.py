"""One partition compacted by the Spark job: one task at a time, and two; and by its broker's own worker.

All three clean copies of one log, each a topic of one broker. What is timed is the whole run: asking the brokers, both
stages, putting the segments in place. A run of a small log before it has begun the Python workers. The log lies in the
page cache.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import machine
from benchmarks.comparison import Comparison
from benchmarks.loads.keyed import keyed_batches
from sparklog.client import Admin, NewTopic
from sparklog.clock import SystemClock
from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.log.log import Log
from sparklog.record.compression import CompressionType
from sparklog.spark.batch.compact import CompactOptions
from sparklog.spark.batch.compact import run as compact
from sparklog.spark.sessions import session
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": "104857600", "min.cleanable.dirty.ratio": "1"}
_SIDES = ("worker", "one task", "two tasks")
_MB = 1e6


@dataclass(frozen=True)
class Case:
    """``records`` of about ``size`` bytes, drawn from ``keys`` different keys; with ``all_keys`` each occurs."""

    size: int
    records: int
    keys: int
    compression: CompressionType = CompressionType.NONE
    sides: tuple[str, ...] = _SIDES
    all_keys: bool = False

    @property
    def name(self) -> str:
        which = f"all of {self.keys / 1e6:g} M" if self.all_keys else f"{self.keys / 1e6:g} M"
        return f"one partition, {self.size} B, {self.compression.name.lower()}, {which} keys"


CASES = (
    Case(100, 20_000_000, 5_000_000),
    Case(100, 10_000_000, 1_000_000, CompressionType.ZSTD),
    Case(50, 60_000_000, 50_000_000, sides=("two tasks",), all_keys=True),
)
_WARM_UP = Case(100, 200_000, 10_000)


def run(directory: Path, share: float, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """A row a figure, see ``Comparison.row``: two tasks at a time beside one, and beside the worker."""
    rows = []
    spark = session("compaction", master="local[2]")
    try:
        for case in CASES:
            say(f"compaction: {case.name}, by Spark")
            rows += [each.row() for each in _compare(spark, case, directory, share)]
    finally:
        spark.stop()
    return rows


def _compare(spark: SparkSession, case: Case, directory: Path, share: float) -> list[Comparison]:
    made, found, left = directory / "made", {}, 0
    size = _write(made / "log", case, share)
    _write(made / "warm", _WARM_UP, 1.0)
    data = directory / "job"
    topics = [f"{side.replace(' ', '-')}-{part}" for side in case.sides for part in ("warm", "log")]
    with ClusterHarness(data, settings={"log.cleaner.backoff.ms": 600_000}) as harness:
        servers = harness.bootstrap_servers
        with Admin(bootstrap_servers=servers, default_api_timeout_ms=600_000) as admin:
            admin.create_topics([NewTopic(topic, 1, 1, _SETTINGS) for topic in topics])
            harness.stop_broker(0)
            for topic in topics:
                _fill(data / "broker-0" / f"{topic}-0", made / topic.rpartition("-")[2])
            harness.start_broker(0)
            for side in case.sides:
                for part in ("warm", "log"):
                    found[side], left = _seconds(spark, admin, servers, side, f"{side.replace(' ', '-')}-{part}")
    workers = [*_python_workers(spark)]
    memory, anonymous = (max(map(of, workers), default=0) for of in (machine.peak_bytes, machine.resident_bytes))
    shutil.rmtree(data)
    shutil.rmtree(made)
    rates = {side: size / seconds / _MB for side, seconds in found.items()}
    compared = [
        Comparison(case.name, "MB/s", peer, [rates["two tasks"]], [rates[side]])
        for side, peer in (("one task", "one task at a time"), ("worker", "the broker's worker"))
        if side in rates
    ]
    alone = [] if compared else [Comparison(case.name, "MB/s", "", [rates["two tasks"]])]
    return [
        *compared,
        *alone,
        Comparison(case.name, "M keys left", "", [left / 1e6]),
        Comparison(case.name, "MB of memory of a Python worker", "", [memory / _MB]),
        Comparison(case.name, "without mapped files at its end", "", [anonymous / _MB]),
    ]


def _seconds(spark: SparkSession, admin: Admin, servers: str, side: str, topic: str) -> tuple[float, int]:
    """And how many records are left, which is one a key."""
    start = time.perf_counter()
    if side == "worker":
        (outcome,) = admin.compact([topic]).values()
        if outcome.run is None:
            raise RuntimeError(f"{topic} was not cleaned: {outcome}")
        left = outcome.run.messages_after
    else:
        tasks = 2 if side == "two tasks" else 1
        report = compact(spark, CompactOptions(servers, (topic,), parallelism=tasks))
        if report.has_failed:
            raise RuntimeError(f"{topic} was not cleaned: {report}")
        left = sum(each.stats.messages_written for each in report.replicas if each.stats)
    return time.perf_counter() - start, left


def _write(directory: Path, case: Case, share: float) -> int:
    """The log of a case; its bytes."""
    directory.mkdir(parents=True)
    config, clock = parse(TopicConfig, _SETTINGS), SystemClock()
    with closing(Log(directory, TopicPartition("made", 0), config, clock, lambda work: work())) as log:
        records, keys = int(case.records * share), max(int(case.keys * share), 1)
        for batch in keyed_batches(case.size, records, keys, case.compression, clock.now_ms(), all_keys=case.all_keys):
            log.append_as_leader(memoryview(batch.data), 0)
        log.roll()
        return log.size


def _fill(directory: Path, made: Path) -> None:
    """Let the log of a topic that a stopped broker has be a copy of another."""
    for path in directory.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    shutil.copytree(made, directory, dirs_exist_ok=True)


def _python_workers(spark: SparkSession) -> Iterator[int]:
    """The processes of Spark's Python workers."""
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    ahead = [int(jvm)]
    while ahead:
        for child in Path(f"/proc/{ahead.pop()}/task").glob("*/children"):
            for pid in map(int, child.read_text().split()):
                ahead.append(pid)
                if b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    yield pid
