"""How fast a follower copies what it has missed, from its registration until it is in sync again."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.loads.figures import Figures
from benchmarks.replicas.effort import Effort
from benchmarks.replicas.load import produce
from benchmarks.replicas.noted import Noted, noted
from benchmarks.replication import Cluster
from sparklog.clock import Clock
from sparklog.testing.eventually import eventually

_SIZE = 1000
_RECORDS = 300_000
_IN_SYNC_S = 120
_PARTITIONS = range(3)


def measure(cluster: Cluster, number: int, effort: Effort, clock: Clock) -> Iterator[tuple[str, Figures]]:
    topic, count = f"missed-{number}", effort.of(_RECORDS)
    cluster.create(topic, len(_PARTITIONS))
    away = next(id_ for id_ in cluster.brokers if id_ != cluster.controller)
    cluster.brokers[away].stop()
    produce(cluster, topic, _SIZE, count, clock)
    cluster.brokers[away].start()
    with noted(cluster) as zookeeper:
        seconds = _until_in_sync(zookeeper, topic, away)
    megabytes = _SIZE * count / 1e6
    yield f"a follower that missed {megabytes:.0f} MB, until in sync", {"MB/s": megabytes / seconds, "s": seconds}
    cluster.lead_again(topic)
    cluster.delete(topic)


def _until_in_sync(zookeeper: Noted, topic: str, broker: int) -> float:
    def whole() -> list[int]:
        states = zookeeper.states(topic, _PARTITIONS)
        return [written for _, written in states] if all(broker in state.isr for state, _ in states) else []

    written = eventually(whole, _IN_SYNC_S, f"broker {broker} to be in sync")
    return (max(written) - zookeeper.registered(broker)) / 1000
