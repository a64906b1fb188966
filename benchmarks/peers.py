"""The two brokers that are compared, on one ZooKeeper and one disk: sparklog, and Apache Kafka 3.9.1."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from sparklog.local.broker import PROGRAM, BrokerProcess, BrokerSpec
from sparklog.local.ports import free_port
from sparklog.local.zookeeper import EmbeddedZooKeeper
from sparklog.testing.broker import settings_arguments
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import KafkaBroker

KAFKA_JVM = "-Xms1g -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35"
"""What Kafka's own start script gives its JVM, beside the ``-Xmx1g`` that the harness gives."""
_ADMIN_TIMEOUT_S = 30
_KEPT = {"retention.ms": "-1"}


@dataclass(frozen=True)
class Peer:
    """A running broker."""

    name: str
    bootstrap: str
    pid: int
    zookeeper: str = ""
    """The connect string of its ZooKeeper, where that is of use."""

    def end(self, protocol: str) -> str:
        """``host:port`` of its listener of this protocol. Raises KeyError if it has none."""
        return {"PLAINTEXT": self.bootstrap}[protocol]

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """One replica, kept for ever (the records may be years old); otherwise ``config`` or the broker's settings."""
        admin = self.admin()
        new = NewTopic(topic, partitions, 1, config={**_KEPT, **(config or {})})
        admin.create_topics([new])[topic].result(_ADMIN_TIMEOUT_S)

    def delete_topics(self, topics: list[str]) -> None:
        admin = self.admin()
        for deleted in admin.delete_topics(topics).values():
            deleted.result(_ADMIN_TIMEOUT_S)

    def knows_its_controller(self) -> bool:
        """Kafka answers requests before it does; an administrator's request would wait a minute then."""
        return bool(self.admin().list_topics(timeout=_ADMIN_TIMEOUT_S).controller_id == 0)

    def admin(self) -> AdminClient:
        """To be held until its answers are there: it takes them with it when it goes."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})


@contextmanager
def both_brokers(directory: Path, settings: Mapping[str, object] | None = None) -> Iterator[list[Peer]]:
    """sparklog and Kafka with the same ``settings``, their data under ``directory``; stopped at the end."""
    with EmbeddedZooKeeper(directory / "zookeeper") as zookeeper, ExitStack() as stack:
        ours = _our_process(directory, zookeeper, settings or {})
        _started(stack, ours.start, ours.stop)
        with kafka_heap():
            kafka = KafkaBroker(
                directory / "kafka",
                f"{zookeeper.connect_string}/kafka",
                extra_props={"log.segment.delete.delay.ms": 0, **(settings or {})},
            )
        _started(stack, kafka.start, kafka.stop)
        peers = [Peer("sparklog", ours.address, ours.pid), Peer("kafka", kafka.bootstrap_servers, kafka.pid)]
        for peer in peers:
            eventually(peer.knows_its_controller, what=f"{peer.name} to serve administrators")
        yield peers


@contextmanager
def our_broker(
    directory: Path,
    program: Sequence[str] = PROGRAM,
    settings: Mapping[str, object] | None = None,
    prepare: Callable[[str], None] = lambda _: None,
) -> Iterator[Peer]:
    """sparklog by itself, run by ``program``, its data under ``directory``; stopped at the end.

    ``prepare`` is called before it starts, with the connect string of its ZooKeeper.
    """
    with EmbeddedZooKeeper(directory / "zookeeper") as zookeeper, ExitStack() as stack:
        prepare(zookeeper.connect_string)
        ours = _our_process(directory, zookeeper, settings or {}, program)
        _started(stack, ours.start, ours.stop)
        peer = Peer("sparklog", ours.address, ours.pid, zookeeper.connect_string)
        eventually(peer.knows_its_controller, what="sparklog to serve administrators")
        yield peer


def _our_process(
    directory: Path,
    zookeeper: EmbeddedZooKeeper,
    settings: Mapping[str, object],
    program: Sequence[str] = PROGRAM,
) -> BrokerProcess:
    """With the settings that the harness gives Kafka too, above all that a new group waits for nobody."""
    arguments = settings_arguments(settings)
    return BrokerProcess(
        BrokerSpec(
            0, zookeeper.connect_string, directory / "sparklog", free_port(), arguments=arguments, program=program
        ),
        directory / "sparklog.log",
    )


def _started(stack: ExitStack, start: Callable[[], None], stop: Callable[[], None]) -> None:
    start()
    stack.callback(stop)


@contextmanager
def kafka_heap() -> Iterator[None]:
    """Brokers of Kafka that are made and started within get the heap that Kafka's own start script gives."""
    with _environment("JDK_JAVA_OPTIONS", KAFKA_JVM):
        yield


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
