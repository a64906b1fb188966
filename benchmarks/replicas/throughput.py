"""How fast records are written that all replicas have, in their page cache or on their disks, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.loads.figures import Figures
from benchmarks.replicas.effort import Effort
from benchmarks.replicas.load import processor_s, produce
from benchmarks.replication import Cluster
from sparklog.clock import Clock

_FLUSHED = {"flush.messages": "1"}
_RECORDS = ((1000, 100_000), (100, 300_000))
"""Sizes in bytes, and how many."""
_FLUSHED_SHARE = 0.3
"""Of the records, where each replica flushes before it acknowledges."""


def measure(cluster: Cluster, number: int, effort: Effort, clock: Clock) -> Iterator[tuple[str, Figures]]:
    for config, share in (({}, 1.0), (_FLUSHED, _FLUSHED_SHARE)):
        topic = f"written-{number}{'-flushed' if config else ''}"
        cluster.create(topic, config=config)
        for size, records in _RECORDS:
            count = effort.of(int(records * share))
            before = processor_s(cluster)
            seconds = produce(cluster, topic, size, count, clock)
            megabytes = size * count / 1e6
            yield (
                f"produce, {size} B, acks=all{', flush.messages=1' if config else ''}",
                {
                    "MB/s": megabytes / seconds,
                    "processor ms a MB": (processor_s(cluster) - before) * 1000 / megabytes,
                },
            )
        cluster.delete(topic)
