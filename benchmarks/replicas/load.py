"""Records written to a cluster, and what its brokers have spent by then."""

from __future__ import annotations

from confluent_kafka import KafkaError, Producer

from benchmarks import machine
from benchmarks.replication import Cluster
from sparklog.clock import Clock

ADMIN_TIMEOUT_S = 60
FLUSH_TIMEOUT_S = 120
_BATCHED = {"linger.ms": 5, "batch.size": 200_000, "queue.buffering.max.messages": 1_000_000}


def produce(cluster: Cluster, topic: str, size: int, count: int, clock: Clock) -> float:
    """Write ``count`` records of ``size`` bytes with acks=all; the seconds until all were acknowledged.

    RuntimeError if one was not.
    """
    value, failures = b"x" * size, list[KafkaError]()
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0, **_BATCHED})
    producer.list_topics(topic, timeout=ADMIN_TIMEOUT_S)
    began = clock.monotonic()
    for each in range(count):
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
        if each % 1000 == 0:
            producer.poll(0)
    if producer.flush(FLUSH_TIMEOUT_S) or failures:
        raise RuntimeError(f"{cluster.name} did not take all records: {failures[:1]}")
    return clock.monotonic() - began


def processor_s(cluster: Cluster) -> float:
    """User and system time of all brokers together, since their start."""
    return sum(machine.cpu_seconds(broker.pid) for broker in cluster.brokers.values())


def resident_mb(cluster: Cluster) -> float:
    """Resident memory (RSS) of all brokers together, mapped files with it."""
    return sum(machine.rss_bytes(broker.pid) for broker in cluster.brokers.values()) / 1e6
