"""What is left of acknowledged records when brokers die, or lose their power, while they are written.

Four topics are written at once: with acks=0, 1, all, and all with ``flush.messages=1``. The brokers die in the middle
of it, are started when their sessions have ended, and when all replicas are in sync everything is read. Lost is what
the producer was told of as delivered (with acks=0: what it has sent) and cannot be read. A power cut is a SIGKILL
together with the loss of all that the broker's disk had not flushed; it is measured only where each broker has a disk
of its own (``benchmarks.replicas.disk``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from benchmarks.loads.figures import Figures
from benchmarks.replicas import disk
from benchmarks.replicas.effort import Effort
from benchmarks.replicas.load import ADMIN_TIMEOUT_S, FLUSH_TIMEOUT_S
from benchmarks.replicas.noted import noted
from benchmarks.replication import BROKERS, Cluster
from sparklog.clock import Clock
from sparklog.local.broker import BrokerProcess
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import KafkaBroker

_RECORDS = 3000
_PACE_S = 0.0005
_SETTLE_S = 60
_READ_TIMEOUT_S = 60
_WAYS: dict[str, tuple[str, dict[str, str]]] = {
    "acks=0": ("0", {}),
    "acks=1": ("1", {}),
    "acks=all": ("all", {}),
    "acks=all, flush.messages=1": ("all", {"flush.messages": "1"}),
}


@dataclass(frozen=True)
class _Harm:
    """So many brokers, the leader first, lose their process, or their power with it."""

    name: str
    brokers: int
    cuts_power: bool = True
    min_isr: int = 2


_HARMS = (
    _Harm("SIGKILL of the leader", 1, cuts_power=False),
    _Harm("power cut of the leader", 1),
    _Harm("power cut of two of three, min.insync.replicas=3", 2, min_isr=3),
    _Harm("power cut of all three", 3),
)


def places(directory: Path) -> list[Path]:
    """Where ``benchmarks.replication.clusters`` puts the brokers' data."""
    return [directory / f"{name}-{number}" for name in ("sparklog", "kafka") for number in BROKERS]


def measure(cluster: Cluster, number: int, effort: Effort, clock: Clock) -> Iterator[tuple[str, Figures]]:
    for position, harm in enumerate(_HARMS):
        if not harm.cuts_power or all(map(disk.is_disk, map(_data_dir, cluster.brokers.values()))):
            lost = _suffer(cluster, harm, f"harmed-{number}-{position}", effort.of(_RECORDS), clock)
            for way, records in lost.items():
                yield f"{harm.name}, {way}", {"records lost": records}


def _suffer(cluster: Cluster, harm: _Harm, prefix: str, count: int, clock: Clock) -> dict[str, int]:
    """How many acknowledged records are gone, for each of ``_WAYS``."""
    writers = dict[str, _Writer]()
    leader, *others = sorted(cluster.brokers, key=lambda id_: id_ == cluster.controller)
    for way, (acks, config) in _WAYS.items():
        topic = f"{prefix}-{len(writers)}"
        cluster.create(topic, config={"min.insync.replicas": str(harm.min_isr), **config})
        led = next(partition for partition, led_by in cluster.leaders(topic).items() if led_by == leader)
        writers[way] = _Writer(cluster, topic, led, acks)
    if harm.cuts_power:
        for broker in cluster.brokers.values():
            disk.flush(_data_dir(broker))
    for value in range(count):
        for writer in writers.values():
            writer.write(value)
        clock.sleep(_PACE_S)
    _harm(cluster, [leader, *others][: harm.brokers], harm.cuts_power)
    lost = dict[str, int]()
    for way, writer in writers.items():
        cluster.wait_until_whole(writer.topic)
        lost[way] = writer.lost()
    for writer in writers.values():
        cluster.delete(writer.topic)
    return lost


def _harm(cluster: Cluster, victims: list[int], cuts_power: bool) -> None:
    """Returns when they have been started again."""
    for id_ in victims:
        cluster.brokers[id_].kill()
    if cuts_power:
        for id_ in victims:
            disk.cut_power(_data_dir(cluster.brokers[id_]))
    with noted(cluster) as zookeeper:
        eventually(lambda: not any(map(zookeeper.is_registered, victims)), _SETTLE_S, "their sessions to end")
    for id_ in victims:
        cluster.brokers[id_].start()


def _data_dir(broker: BrokerProcess | KafkaBroker) -> Path:
    return broker.data_dir if isinstance(broker, KafkaBroker) else broker.spec.data_dir


@dataclass
class _Writer:
    """A producer of one partition."""

    cluster: Cluster
    topic: str
    partition: int
    acks: str
    acknowledged: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        settings: dict[str, Any] = {"acks": self.acks, "linger.ms": 0, "log_level": 0}
        self._producer = Producer({"bootstrap.servers": self.cluster.bootstrap, **settings})
        self._producer.list_topics(self.topic, timeout=ADMIN_TIMEOUT_S)

    def write(self, value: int) -> None:
        self._producer.produce(self.topic, b"%d" % value, partition=self.partition, on_delivery=self._told)
        self._producer.poll(0)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.add(message.value() or b"")

    def lost(self) -> int:
        """Of what was acknowledged, how much cannot be read."""
        if left := self._producer.flush(FLUSH_TIMEOUT_S):
            raise RuntimeError(f"nothing was said of {left} records within {FLUSH_TIMEOUT_S} s")
        return len(self.acknowledged - _read(self.cluster, self.topic, self.partition))


def _read(cluster: Cluster, topic: str, partition: int) -> set[bytes]:
    common = {"bootstrap.servers": cluster.bootstrap, "group.id": "counting", "log_level": 0}
    consumer = Consumer({**common, "enable.auto.commit": False, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = set[bytes]()
    try:
        while (message := consumer.poll(_READ_TIMEOUT_S)) is not None:
            error = message.error()
            if error is None:
                found.add(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    raise RuntimeError(f"{cluster.name} did not show the end of {topic} within {_READ_TIMEOUT_S} s")
