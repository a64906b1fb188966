"""How long a single record takes.

With acks=1 and acks=all until it is acknowledged. With acks=0 nobody answers: until a consumer that waits for it has
it, which all replicas in sync must have for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from benchmarks.loads.figures import Figures
from benchmarks.replicas.effort import Effort
from benchmarks.replicas.load import ADMIN_TIMEOUT_S
from benchmarks.replication import Cluster
from sparklog.clock import Clock

_RECORDS = 2000
_READ_TIMEOUT_S = 30
_FIGURES = (("p50 ms", 0.5), ("p99 ms", 0.99), ("p99.9 ms", 0.999))
_VALUE = b"x" * 100


def measure(cluster: Cluster, number: int, effort: Effort, clock: Clock) -> Iterator[tuple[str, Figures]]:
    topic, count = f"timed-{number}", effort.of(_RECORDS, least=10)
    cluster.create(topic)
    yield "one record, 100 B, acks=0, until it is read", _until_read(cluster, topic, count, clock)
    for acks in ("1", "all"):
        yield f"one record, 100 B, acks={acks}, until acknowledged", _acknowledged(cluster, topic, acks, count, clock)
    cluster.delete(topic)


def _acknowledged(cluster: Cluster, topic: str, acks: str, count: int, clock: Clock) -> Figures:
    producer = _producer(cluster, topic, acks)

    def once() -> None:
        producer.produce(topic, _VALUE)
        if producer.flush(ADMIN_TIMEOUT_S):
            raise RuntimeError(f"{cluster.name} did not acknowledge a record within {ADMIN_TIMEOUT_S} s")

    return _times(once, count, clock)


def _until_read(cluster: Cluster, topic: str, count: int, clock: Clock) -> Figures:
    producer = _producer(cluster, topic, "0")
    common = {"bootstrap.servers": cluster.bootstrap, "group.id": "timing", "log_level": 0}
    consumer = Consumer({**common, "enable.auto.commit": False})
    position = TopicPartition(topic, 0)
    position.offset = consumer.get_watermark_offsets(position, timeout=ADMIN_TIMEOUT_S)[1]
    consumer.assign([position])

    def once() -> None:
        producer.produce(topic, _VALUE, partition=0)
        producer.poll(0)
        message = consumer.poll(_READ_TIMEOUT_S)
        if message is None:
            raise RuntimeError(f"{cluster.name} did not show a record within {_READ_TIMEOUT_S} s")
        if (error := message.error()) is not None:
            raise KafkaException(error)

    try:
        return _times(once, count, clock)
    finally:
        consumer.close()


def _producer(cluster: Cluster, topic: str, acks: str) -> Producer:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": acks, "linger.ms": 0, "log_level": 0})
    producer.list_topics(topic, timeout=ADMIN_TIMEOUT_S)
    return producer


def _times(once: Callable[[], None], count: int, clock: Clock) -> Figures:
    """Of ``count`` times in turn; what goes before them, until connections are there, is left out."""
    for _ in range(10):
        once()
    times = list[float]()
    for _ in range(count):
        began = clock.monotonic()
        once()
        times.append((clock.monotonic() - began) * 1000)
    times.sort()
    return {name: times[int(len(times) * share)] for name, share in _FIGURES}
