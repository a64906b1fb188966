"""What the brokers hold in memory, idle and after a load. It is the first part: nothing has loaded them before."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.loads.figures import Figures
from benchmarks.replicas.effort import Effort
from benchmarks.replicas.load import produce, resident_mb
from benchmarks.replication import Cluster
from sparklog.clock import Clock

_REST_S = 5
_RECORDS = ((1000, 200_000), (100, 300_000))
"""Sizes in bytes, and how many."""


def measure(cluster: Cluster, number: int, effort: Effort, clock: Clock) -> Iterator[tuple[str, Figures]]:
    topic = f"memory-{number}"
    cluster.create(topic)
    clock.sleep(_REST_S)
    yield "memory of three brokers, idle", {"RSS MB": resident_mb(cluster)}
    for size, records in _RECORDS:
        produce(cluster, topic, size, effort.of(records), clock)
    megabytes = sum(size * effort.of(records) for size, records in _RECORDS) / 1e6
    yield f"memory of three brokers, after {megabytes:.0f} MB", {"RSS MB": resident_mb(cluster)}
    cluster.delete(topic)
