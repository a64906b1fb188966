"""Three brokers of ours beside three of Apache Kafka 3.9.1, and how long a dead leader is missed.

What else is measured of such clusters is in ``benchmarks.replicas``. Failover: a broker that leads a third of
the partitions is killed (SIGKILL), or told to stop (SIGTERM), and the time runs until a record is acknowledged in each
of those partitions again: the longest that one of them is without a leader that answers. Both have the same session
timeout.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import ElectionType, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.peers import kafka_heap
from sparklog.clock import Clock
from sparklog.local.broker import BrokerProcess, BrokerSpec
from sparklog.local.ports import free_port
from sparklog.local.zookeeper import EmbeddedZooKeeper
from sparklog.testing.broker import settings_arguments
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import KafkaBroker

BROKERS = (0, 1, 2)
SESSION_MS = 6000
_ADMIN_TIMEOUT_S = 60
_SETTINGS = {"zookeeper.session.timeout.ms": SESSION_MS}


@dataclass(frozen=True)
class Cluster:
    """Three running brokers, by their ids."""

    name: str
    brokers: dict[int, BrokerProcess | KafkaBroker]
    zookeeper: str

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{_port(each)}" for each in self.brokers.values())

    def create(self, topic: str, partitions: int = 3, config: Mapping[str, str] | None = None) -> None:
        """With ``min.insync.replicas=2`` unless ``config`` has it otherwise; returns when all replicas are in sync."""
        settings = {"min.insync.replicas": "2", "retention.ms": "-1", **(config or {})}
        new = NewTopic(topic, partitions, 3, config=settings)
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
        return bool(partitions) and all(len(each.isrs) == len(each.replicas) for each in partitions.values())

    def wait_until_whole(self, topic: str) -> None:
        eventually(lambda: self._is_whole(topic), 120, f"{topic} to be replicated")

    def wait_until_all_serve(self) -> None:
        def known() -> int:
            return len(self._admin().list_topics(timeout=_ADMIN_TIMEOUT_S).brokers)

        eventually(lambda: known() == len(self.brokers), 120, f"all brokers of {self.name} to serve")

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


class Failover(NamedTuple):
    """How long it lasted, in seconds; when the broker was told to end, and when it was over, in ms since 1970."""

    seconds: float
    began_ms: int
    ended_ms: int


def failovers(cluster: Cluster, topic: str, partitions: int, clock: Clock) -> Iterator[tuple[str, Failover]]:
    """Of a leader and of the controller that are killed, and of a leader that is stopped."""
    cluster.create(topic, partitions)
    for what, signal_, of_controller in (
        ("SIGKILL of a leader", signal.SIGKILL, False),
        ("SIGKILL of the controller", signal.SIGKILL, True),
        ("controlled shutdown", signal.SIGTERM, False),
    ):
        controller = cluster.controller
        victim = controller if of_controller else next(id_ for id_ in BROKERS if id_ != controller)
        yield f"after {what}, {partitions:,} partitions", _failover(cluster, topic, victim, signal_, clock)
        cluster.brokers[victim].stop()
        cluster.brokers[victim].start()
        cluster.wait_until_whole(topic)
        cluster.lead_again(topic)
    cluster.delete(topic)


def _failover(cluster: Cluster, topic: str, victim: int, signal_: signal.Signals, clock: Clock) -> Failover:
    """The longest time in which not all partitions that the victim leads acknowledged a record."""
    led = [number for number, leader in cluster.leaders(topic).items() if leader == victim]
    if not led:
        raise RuntimeError(f"broker {victim} of {cluster.name} leads nothing of {topic}")
    settings = {"acks": "all", "linger.ms": 0, "message.timeout.ms": 60_000, "retry.backoff.ms": 20, "log_level": 0}
    refresh = {"topic.metadata.refresh.fast.interval.ms": 50, "retry.backoff.max.ms": 50}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **settings, **refresh})
    _one_each(producer, topic, led, clock)
    broker, began_ms = cluster.brokers[victim], clock.now_ms()
    os.kill(broker.pid, signal_)
    longest, is_dead = Failover(0.0, began_ms, began_ms), False
    while not is_dead:
        is_dead = not broker.alive  # what it took just before it died says nothing: once more
        seconds = _one_each(producer, topic, led, clock)
        longest = max(longest, Failover(seconds, began_ms, clock.now_ms()))
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
        both = [
            Cluster("sparklog", ours, zookeeper.connect_string),
            Cluster("kafka", theirs, f"{zookeeper.connect_string}/kafka"),
        ]
        for cluster in both:
            cluster.wait_until_all_serve()
        yield both
