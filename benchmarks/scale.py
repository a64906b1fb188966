"""Three brokers of ours beside three of Apache Kafka 3.9.1, while their partitions become more: what each one more
costs though nothing is written to it.

Both clusters stay up; a topic after another makes each grow to the next of ``SIZES``, all with three replicas, and then
one is measured after the other. What is written goes to one partition. How the figures go on from there, and what
limits them, is in ``docs/scale.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from confluent_kafka import Producer

from benchmarks import machine
from benchmarks.broker import Results
from benchmarks.replication import Cluster, clusters
from sparklog.clock import Clock, SystemClock

SIZES = (10, 1_000, 3_000)
"""Partitions of the cluster, so as many replicas a broker."""
_IDLE_S = 10
_RECORDS = 1_000
_REST_S = 3
"""After which what follows the making of topics is over."""


def run(share: float = 1.0, say: Callable[[str], None] = lambda _: None) -> list[dict[str, Any]]:
    """A row a figure: (measurement, figure, sparklog, kafka, ratio, ratios). ``share`` is of the partitions."""
    clock, results = SystemClock(), Results()
    figures: dict[str, tuple[str, ...]] = {}
    with TemporaryDirectory(prefix="sparklog-bench-") as scratch, clusters(Path(scratch)) as both:
        before = 0
        for number, size in enumerate(sorted({max(3, int(size * share)) for size in SIZES})):
            for cluster in both if number % 2 else both[::-1]:
                say(f"scale: {cluster.name}, {size:,} partitions")
                for name, found in _measure(cluster, before, size, clock):
                    figures[name] = tuple(found)
                    results.add(name, cluster.name, found)
            before = size
    return [results.row(name, figure) for name, each in figures.items() for figure in each]


def _measure(cluster: Cluster, before: int, size: int, clock: Clock) -> Iterator[tuple[str, dict[str, float]]]:
    topic, of = f"grown-to-{size}", f"{size:,} partitions"
    began = clock.monotonic()
    cluster.create(topic, size - before)
    yield f"making {size - before:,} more, {of}", {"s": clock.monotonic() - began}
    clock.sleep(_REST_S)
    yield f"idle, {of}", {"processor ms a second": _idle(cluster, clock), "MB": _memory(cluster)}
    yield f"round trip, 100 B, acks=all, {of}", _round_trips(cluster, topic, clock)


def _processor_s(cluster: Cluster) -> float:
    """Of all brokers together, since their start."""
    return sum(machine.cpu_seconds(broker.pid) for broker in cluster.brokers.values())


def _idle(cluster: Cluster, clock: Clock) -> float:
    spent, began = _processor_s(cluster), clock.monotonic()
    clock.sleep(_IDLE_S)
    return (_processor_s(cluster) - spent) / (clock.monotonic() - began) * 1000


def _memory(cluster: Cluster) -> float:
    """Resident, of all brokers together, in MB."""
    return sum(machine.resident_bytes(broker.pid) for broker in cluster.brokers.values()) / 1e6


def _round_trips(cluster: Cluster, topic: str, clock: Clock) -> dict[str, float]:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0})
    producer.list_topics(topic, timeout=60)
    times = list[float]()
    spent = 0.0
    for number in range(-_RECORDS // 10, _RECORDS):
        if number == 0:
            spent, times = _processor_s(cluster), list[float]()
        began = clock.monotonic()
        producer.produce(topic, b"x" * 100, partition=0)
        producer.flush(60)
        times.append((clock.monotonic() - began) * 1000)
    times.sort()
    processor_ms = (_processor_s(cluster) - spent) / _RECORDS * 1000
    return {
        "p50 ms": times[len(times) // 2],
        "p99 ms": times[len(times) * 99 // 100],
        "processor ms a record": processor_ms,
    }
