"""Spark, one local session: ``format("sparklog")`` beside Spark's own Kafka connector, on the same data and options.

The same records lie in sparklog and in Kafka 3.9.1; each case of ``benchmarks.spark_cases`` is done in its ways
(``benchmarks.spark_ways``), one after another in each round. The first round warms up and is thrown away, and the
order turns from round to round. ``ratio`` is the median over the rounds of how many times better a way was than the
connector on Kafka in that round, and ``share`` of how near it came to the source of ready-made batches.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import SparkSession

from benchmarks import machine
from benchmarks.loads.ready import ReadySource
from benchmarks.peers import Peer, both_brokers
from benchmarks.spark_cases import Case, Stage, all_cases
from benchmarks.spark_ways import CONNECTOR, READY, Way
from sparklog.clock import Clock, SystemClock
from sparklog.local.jars import jar_set
from sparklog.spark import session

ROUNDS = 3
_QUIET_WAIT_S = 4

Values = dict[Way, list[float]]


def run(
    rounds: int = ROUNDS, scale: float = 1.0, say: Callable[[str], None] = lambda _: None, only: str = ""
) -> list[dict[str, Any]]:
    """A row a case and way: (measurement, figure, way, value, rounds; ratio, ratios; share, shares).

    ``scale`` is of the number of records; ``only`` is part of the names of the cases wanted.
    """
    clock = SystemClock()
    results: list[dict[str, Any]] = []
    with (
        TemporaryDirectory(prefix="spark-") as directory,
        both_brokers(Path(directory)) as peers,
        spark_session(Path(directory)) as spark,
    ):
        stage = Stage(spark, {peer.name: peer.bootstrap for peer in peers}, Path(directory), clock)
        topics: set[str] = set()
        for case in (case for case in all_cases(scale) if only in case.name):
            topics = _topics_for(case, topics, peers, stage)
            rows = _rows(case, _rounds(case, stage, clock, rounds))
            say(f"spark: {case.name}, {case.figure}: " + ", ".join(f"{row['way']} {row['value']:.0f}" for row in rows))
            results += rows
    return results


@contextmanager
def spark_session(directory: Path) -> Iterator[SparkSession]:
    """A session with Delta, Kafka's connector and the ready-made source; stopped at the end."""
    # Spark's workers import sparklog from where this process did.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    spark = session(
        "benchmarks",
        delta=True,
        jars=jar_set("spark-kafka"),
        spark_driver_memory="2g",
        spark_log_level="ERROR",
        spark_sql_shuffle_partitions="2",
        spark_sql_warehouse_dir=str(directory / "warehouse"),
    )
    spark.dataSource.register(ReadySource)
    try:
        yield spark
    finally:
        spark.stop()


def _topics_for(case: Case, have: set[str], peers: list[Peer], stage: Stage) -> set[str]:
    """The topics that a case reads, on both brokers; those of the case before are deleted unless they are the same."""
    for peer in peers:
        if gone := sorted(have - {case.topic.name}):
            peer.delete_topics(gone)
        if case.topic.name not in have:
            case.topic.fill(peer.bootstrap, stage.clock)
    return {case.topic.name}


def _rounds(case: Case, stage: Stage, clock: Clock, rounds: int) -> Values:
    values: Values = {way: [] for way in case.ways}
    for number in range(rounds + 1):
        for way in case.ways if number % 2 else case.ways[::-1]:
            machine.await_quiet(clock, _QUIET_WAIT_S)
            value = case.measure(stage, way)
            if number:
                values[way].append(value)
    return values


def _rows(case: Case, values: Values) -> list[dict[str, Any]]:
    rows = []
    for way, mine in values.items():
        row: dict[str, Any] = {"measurement": case.name, "figure": case.figure, "way": way.name}
        row["value"] = statistics.median(mine)
        row["rounds"] = [round(each, 3) for each in mine]
        for name, other in (("ratio", CONNECTOR), ("share", READY)):
            if other in values and way is not other:
                row[f"{name}s"] = _times_better(case, mine, values[other])
                row[name] = statistics.median(row[f"{name}s"])
        rows.append(row)
    return rows


def _times_better(case: Case, mine: list[float], others: list[float]) -> list[float]:
    more = case.figure.endswith("/s")
    return [a / b if more else b / a for a, b in zip(mine, others, strict=True)]
