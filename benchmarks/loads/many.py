"""Several librdkafka clients at once, a process each, on partitions of their own; all begin together."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from itertools import cycle, islice
from multiprocessing.synchronize import Barrier

from confluent_kafka import Producer, TopicPartition

from benchmarks.loads.clients import QUIET, TIMEOUT_S, consumer_of, taken
from benchmarks.loads.figures import Figures
from benchmarks.loads.records import values

_START_TIMEOUT_S = 60
_LARGE_BATCHES: dict[str, object] = {"linger.ms": 5, "batch.size": 1_000_000, "batch.num.messages": 100_000}
_IN_HAND = 100_000
"""Records a producer has not yet heard of, at most."""


def produce_together(
    bootstrap: str, topic: str, size: int, acks: str, records: int, producers: int, one_by_one: bool = False
) -> Figures:
    """``records`` in all, from ``producers`` processes; ``one_by_one`` makes each record a request of its own."""
    share = records // producers
    settings: dict[str, object] = {"linger.ms": 0, "batch.num.messages": 1} if one_by_one else _LARGE_BATCHES
    settings = {**settings, "bootstrap.servers": bootstrap, "acks": acks, **QUIET}
    seconds = _together(producers, _produce, (settings, topic, size, share))
    return {"records/s": share * producers / seconds, "MB/s": share * producers * size / seconds / 1e6}


def consume_together(bootstrap: str, topic: str, size: int, records: int, producers: int) -> Figures:
    """What ``produce_together`` wrote, by as many consumers."""
    share = records // producers
    seconds = _together(producers, _consume, (bootstrap, topic, share))
    return {"records/s": share * producers / seconds, "MB/s": share * producers * size / seconds / 1e6}


def _together(count: int, work: Callable[..., None], arguments: tuple[object, ...]) -> float:
    """Seconds from the common start to the last one's end."""
    context = multiprocessing.get_context("fork")
    start, end = context.Barrier(count + 1), context.Barrier(count + 1)
    workers = [
        context.Process(target=work, args=(*arguments, number, start, end), daemon=True) for number in range(count)
    ]
    for worker in workers:
        worker.start()
    try:
        start.wait(_START_TIMEOUT_S)
        began = time.perf_counter()
        end.wait(TIMEOUT_S)
        return time.perf_counter() - began
    finally:
        for worker in workers:
            worker.join(_START_TIMEOUT_S)
            if worker.exitcode:
                raise RuntimeError(f"a client failed with exit code {worker.exitcode}")


def _produce(
    settings: dict[str, object], topic: str, size: int, records: int, partition: int, start: Barrier, end: Barrier
) -> None:
    producer = Producer(settings)
    producer.list_topics(topic, TIMEOUT_S)
    pool = values(size)
    failed: list[object] = []

    def heard(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    start.wait(_START_TIMEOUT_S)
    for value in islice(cycle(pool), records):
        while len(producer) >= _IN_HAND:
            producer.poll(0.01)
        producer.produce(topic, value, partition=partition, on_delivery=heard)
    if producer.flush(TIMEOUT_S) or failed:
        raise RuntimeError(f"{len(producer)} records were not delivered {failed[:1]}")
    end.wait(TIMEOUT_S)


def _consume(bootstrap: str, topic: str, records: int, partition: int, start: Barrier, end: Barrier) -> None:
    consumer = consumer_of(bootstrap)
    consumer.list_topics(topic, TIMEOUT_S)
    start.wait(_START_TIMEOUT_S)
    consumer.assign([TopicPartition(topic, partition, 0)])
    got = 0
    while got < records:
        got += len(taken(consumer.consume(min(10_000, records - got), TIMEOUT_S)))
    consumer.close()
    end.wait(TIMEOUT_S)
