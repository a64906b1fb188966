"""Producers of other projects, and our own, all made to write the same records."""

import subprocess
from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa
from confluent_kafka import Producer
from kafka import KafkaProducer

from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.record.columnar import HEADERS_TYPE, encode_columns
from sparklog.record.compression import CompressionType
from sparklog.structs import TopicPartition

FIRST_TIMESTAMP = 1_700_000_000_000
FLUSH_EVERY = 25
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


class Sent(NamedTuple):
    """A record handed to a producer; ``timestamp`` in ms, None where the producer gives its own."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None


def records() -> list[Sent]:
    """Nulls, empties, headers, unordered timestamps, and enough to fill several small segments."""
    odd = [
        Sent(b"key", b"value"),
        Sent(None, b"no-key"),
        Sent(b"tombstone", None),
        Sent(b"", b""),
        Sent(b"k", b"headers", (("a", b"1"), ("empty", b""), ("null", None), ("a", b"2"))),
    ]
    plain = [Sent(b"key-%d" % (n % 7), b"a value that repeats itself, number %d" % n) for n in range(300)]
    return [each._replace(timestamp=FIRST_TIMESTAMP + n * 37 % 91) for n, each in enumerate(odd + plain)]


def confluent(bootstrap: str, topic: str, compression: str, **settings: object) -> list[Sent]:
    """librdkafka through confluent-kafka."""
    sent = records()
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": compression, "linger.ms": 50, "log_level": 0, **settings}
    )
    for number, each in enumerate(sent, 1):
        producer.produce(topic, each.value, each.key, 0, timestamp=each.timestamp, headers=list(each.headers) or None)
        if number % FLUSH_EVERY == 0:
            assert producer.flush(30) == 0
    assert producer.flush(30) == 0
    return sent


def confluent_idempotent(bootstrap: str, topic: str, compression: str) -> list[Sent]:
    """The same, with a producer id and sequence numbers in every batch."""
    return confluent(bootstrap, topic, compression, **{"enable.idempotence": True})


def kafka_python(bootstrap: str, topic: str, compression: str) -> list[Sent]:
    """kafka-python's producer, which knows no record without key and value."""
    sent = [each for each in records() if each.key is not None or each.value is not None]
    kind = None if compression == "none" else compression
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=kind, linger_ms=50)
    try:
        for number, each in enumerate(sent, 1):
            headers = [(name, value or b"") for name, value in each.headers]
            producer.send(topic, each.value, each.key, headers or None, 0, each.timestamp)
            if number % FLUSH_EVERY == 0:
                producer.flush(30)
        producer.flush(30)
    finally:
        producer.close(30)
    return sent


def kcat(bootstrap: str, topic: str, compression: str) -> list[Sent]:
    """kcat, a line a record, all with one header; it gives its own timestamps."""
    lines = b"".join(b"key-%d:value-%d\n" % (number, number) for number in range(600))
    command = ["kcat", "-P", "-b", bootstrap, "-t", topic, "-p", "0", "-K", ":", "-z", compression, "-H", "by=kcat"]
    subprocess.run([*command, "-X", "batch.num.messages=20"], input=lines, check=True, timeout=60, capture_output=True)
    header = (("by", b"kcat"),)
    return [Sent(key, value, header) for key, value in (line.split(b":") for line in lines.splitlines())]


def sparklog(bootstrap: str, topic: str, compression: str) -> list[Sent]:
    """Our own client: batches that the columnar encoder made."""
    sent = records()
    headers = [[{"key": name, "value": value} for name, value in each.headers] or None for each in sent]
    batches = encode_columns(
        pa.array([each.key for each in sent], pa.binary()),
        pa.array([each.value for each in sent], pa.binary()),
        pa.array(headers, HEADERS_TYPE),
        pa.array([each.timestamp for each in sent], pa.int64()),
        now_ms=0,
        compression=CompressionType[compression.upper()],
        max_batch_bytes=1000,
    )
    with ClusterMetadata(ClientConfig(bootstrap_servers=bootstrap)) as cluster, BatchProducer(cluster) as producer:
        for batch in batches:
            producer.send(TopicPartition(topic, 0), batch.data)
        producer.flush()
    return sent


PRODUCERS: dict[str, Callable[[str, str, str], list[Sent]]] = {
    "confluent": confluent,
    "confluent-idempotent": confluent_idempotent,
    "kafka-python": kafka_python,
    "kcat": kcat,
    "sparklog": sparklog,
}
