"""Records at a fixed rate, each with the time of its sending, and when a waiting consumer has them."""

from __future__ import annotations

import multiprocessing
import struct
import time
from multiprocessing.synchronize import Event

from confluent_kafka import Producer, TopicPartition

from benchmarks.loads.clients import QUIET, TIMEOUT_S, consumer_of, taken
from benchmarks.loads.figures import Figures, percentiles

_TICK_S = 0.001
_WARM_UP = 0.1
"""The share of the records whose latencies are left out."""
_STAMP = struct.Struct("<q")


def paced(bootstrap: str, topic: str, size: int, acks: str, rate: int, records: int) -> Figures:
    """``rate`` records of ``size`` bytes a second: percentiles of the time until a consumer has them.

    A record is stamped when it was due, so a producer that falls behind shows (no coordinated omission).
    """
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    producer = context.Process(target=_produce, args=(bootstrap, topic, size, acks, rate, records, ready), daemon=True)
    producer.start()
    consumer = consumer_of(bootstrap, {"fetch.wait.max.ms": 500})
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumer.poll(0.5)
    ready.set()
    took: list[float] = []
    while len(took) < records:
        # One by one: ``consume`` of several waits for all of them.
        (message,) = taken([each for each in [consumer.poll(TIMEOUT_S)] if each])
        took.append((time.monotonic_ns() - _STAMP.unpack_from(message.value())[0]) / 1e9)
    consumer.close()
    producer.join(TIMEOUT_S)
    if producer.exitcode:
        raise RuntimeError(f"the producer failed with exit code {producer.exitcode}")
    return percentiles(took[int(records * _WARM_UP) :])


def _produce(bootstrap: str, topic: str, size: int, acks: str, rate: int, records: int, ready: Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 1, **QUIET})
    producer.list_topics(topic, TIMEOUT_S)
    padding = bytes(size - _STAMP.size)
    ready.wait(TIMEOUT_S)
    start = time.monotonic_ns()
    sent = 0
    while sent < records:
        due = min(records, (time.monotonic_ns() - start) * rate // 1_000_000_000)
        for number in range(sent, due):
            stamp = start + number * 1_000_000_000 // rate
            producer.produce(topic, _STAMP.pack(stamp) + padding, partition=0)
        sent = max(sent, due)
        producer.poll(0)
        time.sleep(_TICK_S)
    if producer.flush(TIMEOUT_S):
        raise RuntimeError(f"{len(producer)} records were not delivered")
