"""A topic into a Delta table: the offload, and Spark's connector on Kafka with ``df.write.format("delta")``.

Both get the same records and write Snappy's Parquet. A round is a whole job on a new table: planning, tasks, commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.comparison import Comparison
from benchmarks.lake.processor import spent_cpu_s
from benchmarks.lake.topic import KeyedTopic
from benchmarks.spark_cases import Stage
from benchmarks.spark_ways import CONNECTOR, DIRECT, Way
from sparklog.spark.batch.offload import OffloadOptions, run
from sparklog.spark.lake.delta.raw_table import RawTable

_RECORDS = {1000: 1_500_000, 100: 6_000_000}
_PEER = "the connector on Kafka"


class _Round(NamedTuple):
    """What one job took, and made."""

    seconds: float
    cpu_s: float
    files: int
    nbytes: int


def measure(stage: Stage, share: float, rounds: int) -> Iterator[Comparison]:
    """Of both sides, in turn; the first round of each is thrown away."""
    for size, records in _RECORDS.items():
        yield from _compare(stage, KeyedTopic(f"offloaded-{size}", size, 1_000_000), int(records * share), rounds)


def _compare(stage: Stage, topic: KeyedTopic, records: int, rounds: int) -> list[Comparison]:
    for bootstrap in stage.bootstraps.values():
        topic.create(bootstrap, stage.clock)
        topic.write(bootstrap, records, stage.clock)
    taken: dict[Way, list[_Round]] = {DIRECT: [], CONNECTOR: []}
    for number in range(rounds + 1):
        for way in (DIRECT, CONNECTOR) if number % 2 else (CONNECTOR, DIRECT):
            found = _measured(stage, way, topic.name)
            if number:
                taken[way].append(found)
    megabytes = records * topic.size / 1e6
    figures: dict[str, Callable[[_Round], float]] = {
        "records/s": lambda each: records / each.seconds,
        "MB/s": lambda each: megabytes / each.seconds,
        "of CPU time: MB/s": lambda each: megabytes / each.cpu_s,
        "files": lambda each: each.files,
        "MB written": lambda each: each.nbytes / 1e6,
    }
    name = f"offload {topic.size} B"
    return [
        Comparison(name, figure, _PEER, [*map(of, taken[DIRECT])], [*map(of, taken[CONNECTOR])])
        for figure, of in figures.items()
    ]


def _measured(stage: Stage, way: Way, topic: str) -> _Round:
    table = Path(stage.new_directory()) / "table"
    before, start = spent_cpu_s(stage.spark), stage.clock.monotonic()
    if way is CONNECTOR:
        given = {**stage.bootstrap(way), "subscribe": topic, "includeHeaders": "true"}
        stage.spark.read.format("kafka").options(**given).load().write.format("delta").save(str(table))
    else:
        servers = stage.bootstrap(way)["kafka.bootstrap.servers"]
        run(stage.spark, OffloadOptions(servers, (topic,), RawTable(str(table), partition_by=())))
    seconds, cpu_s = stage.clock.monotonic() - start, spent_cpu_s(stage.spark) - before
    files = [each for each in table.rglob("*.parquet") if "_delta_log" not in each.parts]
    return _Round(seconds, cpu_s, len(files), sum(each.stat().st_size for each in files))
