"""librdkafka through confluent-kafka, which is what users run; from Python it costs a call a record.

Every load checks that the broker has, or gave, all that it should.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import cycle, islice

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from benchmarks.loads.figures import Figures, latencies, percentiles
from benchmarks.loads.records import values

TIMEOUT_S = 60
QUIET = {"log_level": 0, "socket.nagle.disable": True}
_READ_AHEAD = {"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 1}
"""By default librdkafka pauses for a second whenever it is 100,000 records ahead of its reader."""


def produce(
    bootstrap: str,
    topic: str,
    size: int,
    acks: str,
    records: int,
    one_by_one: bool = False,
    client: dict[str, object] | None = None,
) -> Figures:
    """librdkafka, one process: ``records`` of ``size`` bytes; ``one_by_one`` makes each a request of its own.

    ``client`` are settings of how it connects.
    """
    settings = {"linger.ms": 0, "batch.num.messages": 1} if one_by_one else {"linger.ms": 5, "batch.size": 1_000_000}
    room = {"queue.buffering.max.messages": 1_000_000, "queue.buffering.max.kbytes": 1_000_000}
    if not one_by_one:
        room["batch.num.messages"] = 100_000
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, **settings, **room, **QUIET, **(client or {})})
    pool = values(size)
    _hand_over(producer, topic, pool[:1])
    start = time.perf_counter()
    _hand_over(producer, topic, islice(cycle(pool), records))
    seconds = time.perf_counter() - start
    check_end(bootstrap, topic, records + 1, client=client)
    return {"records/s": records / seconds, "MB/s": records * size / seconds / 1e6}


def _hand_over(producer: Producer, topic: str, pool: Iterable[bytes]) -> None:
    for value in pool:
        try:
            producer.produce(topic, value, partition=0)
        except BufferError:
            producer.poll(0.01)
            while len(producer) > 900_000:
                producer.poll(0.01)
            producer.produce(topic, value, partition=0)
    if producer.flush(TIMEOUT_S):
        raise RuntimeError(f"{len(producer)} records were not delivered")


def check_end(
    bootstrap: str, topic: str, expected: int, partitions: int = 1, client: dict[str, object] | None = None
) -> None:
    """Raises unless the topic has so many records in all."""
    consumer = consumer_of(bootstrap, client)
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, each), TIMEOUT_S)[1] for each in range(partitions)]
    consumer.close()
    if sum(ends) != expected:
        raise RuntimeError(f"the logs of {topic} end at {ends}, not at {expected} in all")


def consumer_of(bootstrap: str, other_settings: dict[str, object] | None = None) -> Consumer:
    """Reads what it is assigned, and commits nothing."""
    settings = {"group.id": "benchmark", "enable.auto.commit": False, **_READ_AHEAD, **QUIET, **(other_settings or {})}
    return Consumer({"bootstrap.servers": bootstrap, **settings})


def consume(bootstrap: str, topic: str, size: int, records: int, client: dict[str, object] | None = None) -> Figures:
    """librdkafka, one process: ``records`` from the start of the topic, timed from the first that comes."""
    consumer = consumer_of(bootstrap, client)
    consumer.assign([TopicPartition(topic, 0, 0)])
    got = len(taken(consumer.consume(1, TIMEOUT_S)))
    start = time.perf_counter()
    while got < records:
        got += len(taken(consumer.consume(10_000, TIMEOUT_S)))
    seconds = time.perf_counter() - start
    consumer.close()
    return {"records/s": got / seconds, "MB/s": got * size / seconds / 1e6}


def taken(messages: list[Message]) -> list[Message]:
    """The messages, once it is sure that none of them is an error."""
    if not messages:
        raise RuntimeError(f"nothing came for {TIMEOUT_S} s")
    for message in (messages[0], messages[-1]):
        if message.error():
            raise KafkaException(message.error())
    return messages


def round_trip(bootstrap: str, topic: str, size: int, acks: str, requests: int) -> Figures:
    """librdkafka, linger 0: from handing over one record to hearing that it is delivered."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0, **QUIET})
    delivered: list[object] = []

    def once() -> None:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: delivered.append(error))
        while not delivered:
            producer.poll(TIMEOUT_S)
        if delivered.pop():
            raise RuntimeError("a record was not delivered")

    value = values(size)[0]
    return latencies(once, requests)


def paced_round_trips(bootstrap: str, topic: str, size: int, acks: str, rate: int, seconds: int) -> Figures:
    """librdkafka, linger 0: ``rate`` records a second, one at a time: from when one was due to its delivery.

    So one that comes late makes the next late as well, and a stall counts for all that it kept waiting.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0, **QUIET})
    value, took, delivered = values(size)[0], list[float](), list[object]()
    _hand_over(producer, topic, [value])
    start = time.perf_counter()
    for number in range(rate * seconds):
        due = start + number / rate
        time.sleep(max(due - time.perf_counter(), 0))
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: delivered.append(error))
        while not delivered:
            producer.poll(TIMEOUT_S)
        if delivered.pop():
            raise RuntimeError("a record was not delivered")
        took.append(time.perf_counter() - due)
    return percentiles(took)


def end_to_end(bootstrap: str, topic: str, size: int, requests: int) -> Figures:
    """librdkafka, linger 0: from handing over one record to a waiting consumer's having it."""
    consumer = consumer_of(bootstrap)
    consumer.assign([TopicPartition(topic, 0, 0)])
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "1", "linger.ms": 0, **QUIET})
    value = values(size)[0]

    def once() -> None:
        producer.produce(topic, value, partition=0)
        taken(consumer.consume(1, TIMEOUT_S))
        producer.poll(0)

    figures = latencies(once, requests)
    consumer.close()
    return figures
