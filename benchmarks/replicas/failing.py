"""How long partitions are without a leader that answers; and what of that comes after the death is noticed.

The first is ``benchmarks.replication``'s. The second runs from the first thing that ZooKeeper is told of it, a new
controller or a partition's new state, until a record is acknowledged in each partition.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.loads.figures import Figures
from benchmarks.replicas.effort import Effort
from benchmarks.replicas.noted import Noted, noted
from benchmarks.replication import Cluster, failovers
from sparklog.clock import Clock


def measure(cluster: Cluster, number: int, effort: Effort, clock: Clock) -> Iterator[tuple[str, Figures]]:
    with noted(cluster) as zookeeper:
        for partitions in effort.failing if number == 1 else effort.failing[:1]:
            topic = f"failing-{number}-{partitions}"
            for name, failover in failovers(cluster, topic, partitions, clock):
                yield name, {"s": failover.seconds}
                if "SIGKILL" in name:
                    noticed_ms = _noticed(zookeeper, topic, partitions, failover.began_ms)
                    yield f"{name}: once noticed", {"s": (failover.ended_ms - noticed_ms) / 1000}


def _noticed(zookeeper: Noted, topic: str, partitions: int, killed_ms: int) -> int:
    told = [written for _, written in zookeeper.states(topic, range(partitions))]
    return min(each for each in (*told, zookeeper.controller_since()) if each >= killed_ms)
