"""confluent-kafka under the settings that our own client has when it is told none, with more room to run ahead in."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from benchmarks.loads.clients import QUIET, TIMEOUT_S, check_end, consumer_of, taken
from benchmarks.loads.figures import Figures, latencies, rates
from benchmarks.loads.records import pairs, values

_SAFE = {"acks": "all", "enable.idempotence": True}
_BATCHES = {"linger.ms": 5, "batch.size": 128 << 10, "queue.buffering.max.messages": 1_000_000}
_FETCHES = {"max.partition.fetch.bytes": 4 << 20}
_PER_POLL = 500


def confluent_send(bootstrap: str, topic: str, size: int, records: int, partitions: int = 1) -> Figures:
    """``produce`` a record, and ``flush``; with keys where there are several partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", **_SAFE, **_BATCHES, **QUIET})
    producer.produce(topic, values(size)[0])
    _flush(producer)
    start = time.perf_counter()
    for key, value in pairs(size, records, partitions):
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.01)
    _flush(producer)
    seconds = time.perf_counter() - start
    check_end(bootstrap, topic, records + 1, partitions)
    return rates(records, size, seconds)


def _flush(producer: Producer) -> None:
    if producer.flush(TIMEOUT_S):
        raise RuntimeError(f"{len(producer)} records were not delivered")


def confluent_round_trip(bootstrap: str, topic: str, size: int, requests: int) -> Figures:
    """``produce`` at linger 0, and ``poll`` until its callback was called."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **_SAFE, **QUIET})
    value = values(size)[0]
    delivered: list[object] = []

    def once() -> None:
        producer.produce(topic, value, on_delivery=lambda error, _: delivered.append(error))
        while not delivered:
            producer.poll(TIMEOUT_S)
        if delivered.pop():
            raise RuntimeError("a record was not delivered")

    return latencies(once, requests)


def _reader(bootstrap: str, topic: str) -> Consumer:
    consumer = consumer_of(bootstrap, dict(_FETCHES))
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


def confluent_consume(bootstrap: str, topic: str, size: int, records: int) -> Figures:
    """``consume``, 500 records a call, each one's value looked at: until then it is not a Python object."""
    consumer = _reader(bootstrap, topic)
    first = got = len(taken(consumer.consume(1, TIMEOUT_S)))
    start = time.perf_counter()
    while got < records:
        for message in taken(consumer.consume(min(_PER_POLL, records - got), TIMEOUT_S)):
            message.value()
            got += 1
    seconds = time.perf_counter() - start
    consumer.close()
    return rates(got - first, size, seconds)


def confluent_poll(bootstrap: str, topic: str, size: int, records: int) -> Figures:
    """``poll``, which gives one record."""
    consumer = _reader(bootstrap, topic)
    taken(consumer.consume(1, TIMEOUT_S))
    start = time.perf_counter()
    for _ in range(records - 1):
        message = consumer.poll(TIMEOUT_S)
        if message is None or message.error():
            raise (
                RuntimeError(f"nothing came for {TIMEOUT_S} s") if message is None else KafkaException(message.error())
            )
        message.value()
    seconds = time.perf_counter() - start
    consumer.close()
    return rates(records - 1, size, seconds)
