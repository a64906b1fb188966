"""kafka-python under the settings that our own client has when it is told none."""

from __future__ import annotations

import time
from itertools import islice

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from benchmarks.loads.clients import check_end
from benchmarks.loads.figures import Figures, latencies, rates
from benchmarks.loads.records import pairs, values

_TIMEOUT_S = 60
_BATCHES = {"linger_ms": 5, "batch_size": 128 << 10}
_FETCHES = {"max_partition_fetch_bytes": 4 << 20, "max_poll_records": 500}


def kafka_python_send(bootstrap: str, topic: str, size: int, records: int, partitions: int = 1) -> Figures:
    """``send`` a record, and ``flush``; with keys where there are several partitions."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, **_BATCHES)
    producer.send(topic, values(size)[0]).get(_TIMEOUT_S)
    start = time.perf_counter()
    for key, value in pairs(size, records, partitions):
        producer.send(topic, value, key)
    producer.flush(_TIMEOUT_S)
    seconds = time.perf_counter() - start
    producer.close()
    check_end(bootstrap, topic, records + 1, partitions)
    return rates(records, size, seconds)


def kafka_python_round_trip(bootstrap: str, topic: str, size: int, requests: int) -> Figures:
    """``send`` at linger 0, and ``get`` of its future."""
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, linger_ms=0)
    value = values(size)[0]
    figures = latencies(lambda: producer.send(topic, value).get(_TIMEOUT_S), requests)
    producer.close()
    return figures


def _consumer_of(bootstrap: str, topic: str) -> KafkaConsumer:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, group_id=None, **_FETCHES)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    return consumer


def kafka_python_poll(bootstrap: str, topic: str, size: int, records: int) -> Figures:
    """``poll``, 500 records a call at most."""
    consumer = _consumer_of(bootstrap, topic)
    first = got = _polled(consumer)
    start = time.perf_counter()
    while got < records:
        got += _polled(consumer)
    seconds = time.perf_counter() - start
    consumer.close()
    return rates(got - first, size, seconds)


def _polled(consumer: KafkaConsumer) -> int:
    got = sum(map(len, consumer.poll(_TIMEOUT_S * 1000).values()))
    if not got:
        raise RuntimeError(f"nothing came for {_TIMEOUT_S} s")
    return got


def kafka_python_iterate(bootstrap: str, topic: str, size: int, records: int) -> Figures:
    """``for record in KafkaConsumer``."""
    consumer = _consumer_of(bootstrap, topic)
    next(consumer)
    start = time.perf_counter()
    for _ in islice(consumer, records - 1):
        pass
    seconds = time.perf_counter() - start
    consumer.close()
    return rates(records - 1, size, seconds)
