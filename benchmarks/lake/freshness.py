"""How old records are when they are in the table, while a producer writes at a steady pace."""

from __future__ import annotations

import multiprocessing
import time
from contextlib import closing
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np

from benchmarks.comparison import Comparison
from benchmarks.loads.records import batch_of
from benchmarks.spark_cases import Stage
from benchmarks.spark_ways import DIRECT
from sparklog.client import Admin, NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.clock import SystemClock
from sparklog.spark.batch.offload import Committed, Offload, OffloadOptions
from sparklog.spark.lake.delta.raw_table import RawTable
from sparklog.structs import TopicPartition

_SIZE = 1000
_PARTITIONS = 2
_BYTES_A_SECOND = 20_000_000
_SECONDS = 300.0
_OBJECTIVE_S = 10.0
_TOPIC = "freshness"
_BATCH_BYTES = 64 * 1024


def measure(stage: Stage, share: float) -> list[Comparison]:
    """The ages of all records together, and how many there were."""
    servers = stage.bootstraps[DIRECT.broker]
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(_TOPIC, _PARTITIONS, 1, {"message.timestamp.type": "LogAppendTime"})])
    ended = multiprocessing.get_context("fork").Event()
    producer = multiprocessing.get_context("fork").Process(
        target=_produce, args=(servers, _SECONDS * share, ended), daemon=True
    )
    producer.start()
    table = str(Path(stage.new_directory()) / "table")
    commits = []
    with closing(Offload(stage.spark, OffloadOptions(servers, (_TOPIC,), RawTable(table)))) as offload:
        for commit in offload.fresh(_OBJECTIVE_S):
            commits.append(commit)
            if ended.is_set():
                break
    producer.join()
    name = f"freshness at {_BYTES_A_SECOND / 1e6:.0f} MB/s, objective {_OBJECTIVE_S:.0f} s"
    rate = sum(each.records for each in commits) * _SIZE / 1e6 / (_SECONDS * share)
    figures = {"s old, p50": _share(commits, 0), "s old, p95": _share(commits, 1), "MB/s": rate}
    return [Comparison(name, figure, "", [value]) for figure, value in figures.items()]


def _share(commits: list[Committed], index: int) -> float:
    """The median of the commits' medians, or the 95th percentile of their 95th percentiles, by records."""
    ages = np.array([each.ages_s[index] for each in commits])
    order, weights = np.argsort(ages), np.array([each.records for each in commits], float)
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(ages[order][np.searchsorted(reached, (0.5, 0.95)[index])])


def _produce(servers: str, seconds: float, ended: Event) -> None:
    batch, _ = batch_of(_SIZE, _BATCH_BYTES)
    cluster = ClusterMetadata(ClientConfig(bootstrap_servers=servers), SystemClock())
    with cluster, BatchProducer(cluster) as producer:
        start, sent = time.monotonic(), 0
        while (elapsed := time.monotonic() - start) < seconds:
            while sent * len(batch) < elapsed * _BYTES_A_SECOND:
                producer.send(TopicPartition(_TOPIC, sent % _PARTITIONS), batch)
                sent += 1
            time.sleep(0.005)
    ended.set()
