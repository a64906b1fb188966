"""One read over table and log, beside its halves: the table by Delta's own reader, and the log by itself.

A topic is offloaded and deleted from the log, and as much comes again, which only the log has. The other side reads
the two halves, one after another. Rows go nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame

from benchmarks.comparison import Comparison
from benchmarks.lake.topic import KeyedTopic
from benchmarks.spark_cases import Stage
from benchmarks.spark_ways import DIRECT
from sparklog.client import Admin, TopicPartition
from sparklog.spark.batch.offload import OffloadOptions, run
from sparklog.spark.lake.delta.raw_table import RawTable

_RECORDS = {1000: 750_000, 100: 3_000_000}


def measure(stage: Stage, share: float, rounds: int) -> Iterator[Comparison]:
    """Records a second of each side; the first round is thrown away."""
    for size, records in _RECORDS.items():
        topic = KeyedTopic(f"united-{size}", size, 1_000_000)
        table = str(Path(stage.new_directory()) / "table")
        count = _prepare(stage, topic, table, int(records * share))
        compared = Comparison(f"read {size} B from table and log", "records/s", "the halves by themselves")
        for number in range(rounds + 1):
            seconds = {}
            for side in ("both", "halves") if number % 2 else ("halves", "both"):
                seconds[side] = sum(_seconds(stage, frame) for frame in _frames(stage, topic, table, side))
            if number:
                compared.ours.append(count / seconds["both"])
                compared.theirs.append(count / seconds["halves"])
        yield compared


def _prepare(stage: Stage, topic: KeyedTopic, table: str, records: int) -> int:
    """Half of the records in the table, half in the log; how many there are."""
    servers = stage.bootstraps[DIRECT.broker]
    topic.create(servers, stage.clock)
    topic.write(servers, records, stage.clock)
    run(stage.spark, OffloadOptions(servers, (topic.name,), RawTable(table, partition_by=("partition",))))
    with Admin(bootstrap_servers=servers) as admin:
        admin.delete_records({TopicPartition(topic.name, number): -1 for number in range(topic.partitions)})
    topic.write(servers, records, stage.clock)
    return 2 * records


def _frames(stage: Stage, topic: KeyedTopic, table: str, side: str) -> Iterator[DataFrame]:
    log = stage.spark.read.format("sparklog").options(**stage.bootstrap(DIRECT), subscribe=topic.name)
    if side == "both":
        yield log.option("history", table).load()
    else:
        yield stage.spark.read.format("delta").load(table).drop("headers")
        yield log.load()


def _seconds(stage: Stage, frame: DataFrame) -> float:
    start = stage.clock.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    return stage.clock.monotonic() - start
