"""Rows of Parquet into a topic, and topics into a backup and back.

*Load* is a whole job whose segments the leaders adopt; beside it are the same job with a producer, and a plain write of
as many bytes to the same disk. *Backup* and *restore* are of the same topic.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from benchmarks.comparison import Comparison
from benchmarks.spark_cases import Stage, Topic
from benchmarks.spark_ways import DIRECT
from sparklog.backup.making import BackupOptions, make_backup
from sparklog.backup.restoring import RestoreOptions, restore
from sparklog.client import Admin, NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.spark.batch.load import LoadOptions, Via, run
from sparklog.spark.batch.sources import Source
from sparklog.storage.place import Place, open_place

_SIZE = 1000
_RECORDS = 500_000
_PARTITIONS = 2
_CHUNK = 8 << 20
_numbers = count()


def measure_loads(stage: Stage, share: float, rounds: int) -> Iterator[Comparison]:
    """MB/s; the first round is thrown away."""
    records = int(_RECORDS * share)
    rows = str(Path(stage.new_directory()) / "rows")
    value = f"rpad(string(id), {_SIZE}, 'x')"
    frame = stage.spark.range(records, numPartitions=_PARTITIONS)
    frame.selectExpr(f"binary({value}) AS value", f"int(id % {_PARTITIONS}) AS partition").write.parquet(rows)
    by_producer = Comparison(f"load {_SIZE} B", "MB/s", "the job by a producer")
    by_disk = Comparison(f"load {_SIZE} B", "of the disk: MB/s", "a plain write")
    megabytes = records * _SIZE / 1e6
    for number in range(rounds + 1):
        adopted, produced = _load(stage, rows, "adopt"), _load(stage, rows, "produce")
        written = _write_plainly(stage, records * _SIZE)
        if number:
            by_producer.ours.append(megabytes / adopted)
            by_producer.theirs.append(megabytes / produced)
            by_disk.ours.append(megabytes / adopted)
            by_disk.theirs.append(megabytes / written)
    yield by_producer
    yield by_disk


def _load(stage: Stage, rows: str, via: Via) -> float:
    topic = f"loaded-{next(_numbers)}"
    servers = stage.bootstraps[DIRECT.broker]
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(topic, _PARTITIONS, 1)])
        start = stage.clock.monotonic()
        run(
            stage.spark,
            LoadOptions(servers, topic, Source(rows, "parquet", value="value", partition="partition"), topic, via),
        )
        seconds = stage.clock.monotonic() - start
        admin.delete_topics([topic])
    return seconds


def _write_plainly(stage: Stage, size: int) -> float:
    """Seconds for so many bytes, written and synced."""
    path = Path(stage.new_directory()) / "plain"
    chunk = os.urandom(_CHUNK)
    start = stage.clock.monotonic()
    with open(path, "wb") as file:
        for _ in range(-(-size // _CHUNK)):
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    seconds = stage.clock.monotonic() - start
    path.unlink()
    return seconds


def measure_backups(stage: Stage, share: float, rounds: int) -> Iterator[Comparison]:
    """MB/s of a first backup, and of its restore; seconds of one when nothing is new."""
    topic = Topic(_SIZE, int(_RECORDS * share), 5)
    servers = stage.bootstraps[DIRECT.broker]
    topic.fill(servers, stage.clock)
    config, megabytes = ClientConfig(bootstrap_servers=servers), topic.records * topic.size / 1e6
    backup, again, back = (
        Comparison("backup and restore, 1 KB", figure) for figure in ("backup: MB/s", "nothing new: s", "restore: MB/s")
    )
    for _ in range(rounds):
        place = open_place(str(Path(stage.new_directory()) / "backup"))
        seconds = [_backup(stage, config, place, topic) for _ in range(2)]
        backup.ours.append(megabytes / seconds[0])
        again.ours.append(seconds[1])
        name = f"restored-{next(_numbers)}"
        start = stage.clock.monotonic()
        restore(config, place, RestoreOptions(names={topic.name: name}))
        back.ours.append(megabytes / (stage.clock.monotonic() - start))
        with Admin(config) as admin:
            admin.delete_topics([name])
    yield from (backup, again, back)


def _backup(stage: Stage, config: ClientConfig, place: Place, topic: Topic) -> float:
    start = stage.clock.monotonic()
    make_backup(config, place, BackupOptions((topic.name,)))
    return stage.clock.monotonic() - start
