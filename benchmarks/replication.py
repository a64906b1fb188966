"""Three brokers of ours beside three of Apache Kafka 3.9.1: what three replicas cost, and how long a dead leader is
missed.

Each round does the same on one cluster and then on the other (which is first alternates). Both clusters stay up all the
while; only one is loaded at a time. A topic has three partitions, each on all three brokers, and
``min.insync.replicas=2``. What is timed runs in this process, by librdkafka. Failover: a broker that leads a third of
the partitions is killed (SIGKILL), or told to stop (SIGTERM), and the time runs until a record is acknowledged in each
of those partitions again: the longest that one of them is without a leader that answers. Both have the same session
timeout.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from confluent_kafka import ElectionType, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.broker import Results
from benchmarks.peers import kafka_heap
from sparklog.clock import Clock, SystemClock
from sparklog.local.broker import BrokerProcess, BrokerSpec
from sparklog.local.ports import free_port
from sparklog.local.zookeeper import EmbeddedZooKeeper
from sparklog.testing.broker import settings_arguments
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import KafkaBroker

ROUNDS = 3
BROKERS = (0, 1, 2)
PARTITIONS = (10, 1000)
"""Of the topics whose leaders die; the many in the first round alone."""
SESSION_MS = 6000
_ADMIN_TIMEOUT_S = 60
_SETTINGS = {"zookeeper.session.timeout.ms": SESSION_MS}
_LATENCY_FIGURES = ("p50 ms", "p99 ms", "p99.9 ms")


@dataclass(frozen=True)
class Cluster:
    """Three running brokers, by their ids."""

    name: str
    brokers: dict[int, BrokerProcess | KafkaBroker]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{_port(each)}" for each in self.brokers.values())

    def create(self, topic: str, partitions: int = 3) -> None:
        """Returns when all replicas are in sync."""
        new = NewTopic(topic, partitions, 3, config={"min.insync.replicas": "2", "retention.ms": "-1"})
        admin = self._admin()
        admin.create_topics([new])[topic].result(_ADMIN_TIMEOUT_S)
        self.wait_until_whole(topic)

    def delete(self, topic: str) -> None:
        admin = self._admin()
        admin.delete_topics([topic])[topic].result(_ADMIN_TIMEOUT_S)

    @property
    def controller(self) -> int:
        return int(self._admin().list_topics(timeout=_ADMIN_TIMEOUT_S).controller_id)

    def leaders(self, topic: str) -> dict[int, int]:
        metadata = self._admin().list_topics(topic, timeout=_ADMIN_TIMEOUT_S)
        return {number: int(each.leader) for number, each in metadata.topics[topic].partitions.items()}

    def _is_whole(self, topic: str) -> bool:
        partitions = self._admin().list_topics(topic, timeout=_ADMIN_TIMEOUT_S).topics[topic].partitions
        return all(len(each.isrs) == len(each.replicas) for each in partitions.values())

    def wait_until_whole(self, topic: str) -> None:
        eventually(lambda: self._is_whole(topic), 120, f"{topic} to be replicated")

    def lead_again(self, topic: str) -> None:
        """Returns when each broker leads what it is to lead first."""
        partitions = [TopicPartition(topic, number) for number in self.leaders(topic)]
        admin = self._admin()
        admin.elect_leaders(ElectionType.PREFERRED, partitions).result(_ADMIN_TIMEOUT_S)
        eventually(lambda: set(self.leaders(topic).values()) == set(BROKERS), 120, "each broker to lead some")

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})


def _port(broker: BrokerProcess | KafkaBroker) -> int:
    return broker.port if isinstance(broker, KafkaBroker) else broker.spec.port


def run(rounds: int = ROUNDS, say: Callable[[str], None] = lambda _: None) -> list[dict[str, Any]]:
    """A row a figure: (measurement, figure, sparklog, kafka, ratio, ratios)."""
    clock, results = SystemClock(), Results()
    figures: dict[str, tuple[str, ...]] = {}
    with TemporaryDirectory(prefix="sparklog-bench-") as scratch, clusters(Path(scratch)) as both:
        for number in range(rounds + 1):
            say(f"replication: {f'round {number} of {rounds}' if number else 'warming up'}")
            for cluster in both if number % 2 else both[::-1]:
                for name, found in _round(cluster, number, clock):
                    figures[name] = tuple(found)
                    if number:
                        results.add(name, cluster.name, found)
    return [results.row(name, figure) for name, each in figures.items() for figure in each]


def _round(cluster: Cluster, number: int, clock: Clock) -> Iterator[tuple[str, dict[str, float]]]:
    topic = f"replicated-{number}"
    cluster.create(topic)
    share = 1.0 if number else 0.3
    for size, records in ((1000, 100_000), (100, 300_000)):
        count = int(records * share)
        seconds = _produce(cluster, topic, size, count, clock)
        yield f"produce, {size} B, acks=all", {"MB/s": size * count / 1e6 / seconds}
    for acks in ("1", "all"):
        yield f"round trip, 100 B, acks={acks}", _latencies(cluster, topic, acks, int(2000 * share), clock)
    if number:
        for partitions in PARTITIONS if number == 1 else PARTITIONS[:1]:
            yield from _failovers(cluster, f"failing-{number}-{partitions}", partitions, clock)


def _produce(cluster: Cluster, topic: str, size: int, count: int, clock: Clock) -> float:
    value, failures = b"x" * size, list[KafkaError]()
    settings = {"linger.ms": 5, "batch.size": 200_000, "queue.buffering.max.messages": 1_000_000}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0, **settings})
    producer.list_topics(topic, timeout=_ADMIN_TIMEOUT_S)
    began = clock.monotonic()
    for each in range(count):
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
        if each % 1000 == 0:
            producer.poll(0)
    if producer.flush(120) or failures:
        raise RuntimeError(f"{cluster.name} did not take all records: {failures[:1]}")
    return clock.monotonic() - began


def _latencies(cluster: Cluster, topic: str, acks: str, count: int, clock: Clock) -> dict[str, float]:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": acks, "linger.ms": 0, "log_level": 0})
    times = []
    for _ in range(count):
        began = clock.monotonic()
        producer.produce(topic, b"x" * 100)
        producer.flush(60)
        times.append((clock.monotonic() - began) * 1000)
    times.sort()
    return {
        name: times[int(len(times) * share)] for name, share in zip(_LATENCY_FIGURES, (0.5, 0.99, 0.999), strict=True)
    }


def _failovers(cluster: Cluster, topic: str, partitions: int, clock: Clock) -> Iterator[tuple[str, dict[str, float]]]:
    cluster.create(topic, partitions)
    for what, signal_, of_controller in (
        ("SIGKILL of a leader", signal.SIGKILL, False),
        ("SIGKILL of the controller", signal.SIGKILL, True),
        ("controlled shutdown", signal.SIGTERM, False),
    ):
        controller = cluster.controller
        victim = controller if of_controller else next(id_ for id_ in BROKERS if id_ != controller)
        yield f"after {what}, {partitions:,} partitions", {"s": _failover(cluster, topic, victim, signal_, clock)}
        cluster.brokers[victim].stop()
        cluster.brokers[victim].start()
        cluster.wait_until_whole(topic)
        cluster.lead_again(topic)
    cluster.delete(topic)


def _failover(cluster: Cluster, topic: str, victim: int, signal_: signal.Signals, clock: Clock) -> float:
    """The longest time in which not all partitions that the victim leads acknowledged a record, in seconds."""
    led = [number for number, leader in cluster.leaders(topic).items() if leader == victim]
    settings = {"acks": "all", "linger.ms": 0, "message.timeout.ms": 60_000, "retry.backoff.ms": 20, "log_level": 0}
    refresh = {"topic.metadata.refresh.fast.interval.ms": 50, "retry.backoff.max.ms": 50}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **settings, **refresh})
    _one_each(producer, topic, led, clock)
    broker = cluster.brokers[victim]
    os.kill(broker.pid, signal_)
    longest = _one_each(producer, topic, led, clock)
    while broker.alive:
        longest = max(longest, _one_each(producer, topic, led, clock))
    return longest


def _one_each(producer: Producer, topic: str, partitions: list[int], clock: Clock) -> float:
    """Seconds until a record is acknowledged in each partition."""
    began, told = clock.monotonic(), list[KafkaError | None]()
    for number in partitions:
        producer.produce(topic, b"x" * 100, partition=number, on_delivery=lambda error, _: told.append(error))
    producer.flush(90)
    if told != [None] * len(partitions):
        raise RuntimeError(f"records were not taken within 90 s: {[each for each in told if each is not None][:1]}")
    return clock.monotonic() - began


@contextmanager
def clusters(directory: Path) -> Iterator[list[Cluster]]:
    with EmbeddedZooKeeper(directory / "zookeeper") as zookeeper, ExitStack() as stack:
        ours: dict[int, BrokerProcess | KafkaBroker] = {}
        theirs: dict[int, BrokerProcess | KafkaBroker] = {}
        for number in BROKERS:
            spec = BrokerSpec(
                number,
                zookeeper.connect_string,
                directory / f"sparklog-{number}",
                free_port(),
                arguments=settings_arguments(_SETTINGS),
            )
            ours[number] = BrokerProcess(spec, directory / f"sparklog-{number}.log")
            with kafka_heap():
                theirs[number] = KafkaBroker(
                    directory / f"kafka-{number}",
                    f"{zookeeper.connect_string}/kafka",
                    broker_id=number,
                    extra_props=_SETTINGS,
                )
                for broker in (ours[number], theirs[number]):
                    broker.start()
                    stack.callback(broker.stop)
        yield [Cluster("sparklog", ours), Cluster("kafka", theirs)]
