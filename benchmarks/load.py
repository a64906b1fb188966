"""The loads on a broker, each a process of its own: ``python -m benchmarks.load NAME JSON`` prints its figures as JSON.

Two kinds of client. librdkafka through confluent-kafka is what users run; from Python it costs a call a record, which
is the bottleneck at 100 B. The raw ones send Produce and Fetch requests that were encoded beforehand, so that the
broker is. Every load checks that the broker has, or gave, all that it should.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from typing import Any
from uuid import UUID

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from sparklog.errors import ErrorCode
from sparklog.net.connection import BlockingConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch as fetch_wire
from sparklog.protocol.hot import produce as produce_wire
from sparklog.protocol.hot.fetch import FetchPartition, FetchRequest
from sparklog.protocol.messages import decode_response
from sparklog.record.builder import RecordBatchBuilder
from sparklog.structs import Chunk, Endpoint
from sparklog.structs import TopicPartition as Partition

NOW_MS = 1_700_000_000_000
TIMEOUT_S = 60
IN_FLIGHT = 5
"""As Kafka's producers have it by default (``max.in.flight.requests.per.connection``)."""
_QUIET = {"log_level": 0, "socket.nagle.disable": True}
_READ_AHEAD = {"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 1}
"""By default librdkafka pauses for a second whenever it is 100,000 records ahead of its reader."""
_DISTINCT_VALUES = 4096
_NAMES_TOPICS = 12
"""The last Fetch version that names topics; later ones want their ids."""

Figures = dict[str, float]


def values(size: int) -> list[bytes]:
    """Random bytes, the same in every run."""
    chance = random.Random(size)
    return [chance.randbytes(size) for _ in range(_DISTINCT_VALUES)]


def batch_of(size: int, batch_bytes: int) -> tuple[bytes, int]:
    """One uncompressed batch of at most ``batch_bytes``, at least one record; and how many it has."""
    builder = RecordBatchBuilder()
    for value in cycle(values(size)):
        builder.append(NOW_MS, None, value)
        if builder.size_estimate + size + 16 > batch_bytes:
            break
    return builder.build(), builder.record_count


def produce(bootstrap: str, topic: str, size: int, acks: str, records: int, one_by_one: bool = False) -> Figures:
    """librdkafka, one process: ``records`` of ``size`` bytes; ``one_by_one`` makes each a request of its own."""
    settings = {"linger.ms": 0, "batch.num.messages": 1} if one_by_one else {"linger.ms": 5, "batch.size": 1_000_000}
    room = {"queue.buffering.max.messages": 1_000_000, "queue.buffering.max.kbytes": 1_000_000}
    if not one_by_one:
        room["batch.num.messages"] = 100_000
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, **settings, **room, **_QUIET})
    pool = values(size)
    _produce_all(producer, topic, pool[:1])
    start = time.perf_counter()
    _produce_all(producer, topic, islice(cycle(pool), records))
    seconds = time.perf_counter() - start
    _check_end(bootstrap, topic, records + 1)
    return {"records/s": records / seconds, "MB/s": records * size / seconds / 1e6}


def _produce_all(producer: Producer, topic: str, pool: Any) -> None:
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


def _check_end(bootstrap: str, topic: str, expected: int) -> None:
    consumer = _consumer(bootstrap)
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S)
    consumer.close()
    if end != expected:
        raise RuntimeError(f"the log of {topic} ends at {end}, not at {expected}")


def _consumer(bootstrap: str) -> Consumer:
    settings = {"group.id": "benchmark", "enable.auto.commit": False, **_READ_AHEAD, **_QUIET}
    return Consumer({"bootstrap.servers": bootstrap, **settings})


def consume(bootstrap: str, topic: str, size: int, records: int) -> Figures:
    """librdkafka, one process: ``records`` from the start of the topic, timed from the first that comes."""
    consumer = _consumer(bootstrap)
    consumer.assign([TopicPartition(topic, 0, 0)])
    got = len(_taken(consumer.consume(1, TIMEOUT_S)))
    start = time.perf_counter()
    while got < records:
        got += len(_taken(consumer.consume(10_000, TIMEOUT_S)))
    seconds = time.perf_counter() - start
    consumer.close()
    return {"records/s": got / seconds, "MB/s": got * size / seconds / 1e6}


def _taken(messages: list[Message]) -> list[Message]:
    if not messages:
        raise RuntimeError(f"nothing came for {TIMEOUT_S} s")
    for message in (messages[0], messages[-1]):
        if message.error():
            raise KafkaException(message.error())
    return messages


def round_trip(bootstrap: str, topic: str, size: int, acks: str, requests: int) -> Figures:
    """librdkafka, linger 0: from handing over one record to hearing that it is delivered."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0, **_QUIET})
    delivered: list[object] = []

    def once() -> None:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: delivered.append(error))
        while not delivered:
            producer.poll(TIMEOUT_S)
        if delivered.pop():
            raise RuntimeError("a record was not delivered")

    value = values(size)[0]
    return _latencies(once, requests)


def end_to_end(bootstrap: str, topic: str, size: int, requests: int) -> Figures:
    """librdkafka, linger 0: from handing over one record to a waiting consumer's having it."""
    consumer = _consumer(bootstrap)
    consumer.assign([TopicPartition(topic, 0, 0)])
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "1", "linger.ms": 0, **_QUIET})
    value = values(size)[0]

    def once() -> None:
        producer.produce(topic, value, partition=0)
        _taken(consumer.consume(1, TIMEOUT_S))
        producer.poll(0)

    figures = _latencies(once, requests)
    consumer.close()
    return figures


def _latencies(once: Callable[[], None], requests: int) -> Figures:
    """Median and 99th percentile in milliseconds, the first tenth left out."""
    took = []
    for _ in range(requests):
        start = time.perf_counter()
        once()
        took.append(time.perf_counter() - start)
    took = sorted(took[requests // 10 :])
    return {"p50 ms": took[len(took) // 2] * 1e3, "p99 ms": took[len(took) * 99 // 100] * 1e3}


def raw_produce(bootstrap: str, topic: str, size: int, acks: int, batch_bytes: int, requests: int) -> Figures:
    """Produce requests of one batch each, encoded beforehand, ``IN_FLIGHT`` of them under way."""
    batch, count = batch_of(size, batch_bytes)
    with _connect(bootstrap) as connection:
        version, body = _produce_request(connection, topic, acks, batch)
        start = time.perf_counter()
        for sent in range(requests):
            connection.send(ApiKey.PRODUCE, version, body)
            if sent >= IN_FLIGHT:
                _check_produced(connection, (sent - IN_FLIGHT) * count)
        for answered in range(max(requests - IN_FLIGHT, 0), requests):
            _check_produced(connection, answered * count)
        seconds = time.perf_counter() - start
    return {
        "requests/s": requests / seconds,
        "records/s": requests * count / seconds,
        "MB/s": requests * len(batch) / seconds / 1e6,
    }


def raw_round_trip(bootstrap: str, topic: str, size: int, acks: int, requests: int) -> Figures:
    """Produce requests of one record, encoded beforehand, one at a time."""
    batch, _ = batch_of(size, 0)
    with _connect(bootstrap) as connection:
        version, body = _produce_request(connection, topic, acks, batch)
        answered = iter(range(requests))

        def once() -> None:
            connection.send(ApiKey.PRODUCE, version, body)
            _check_produced(connection, next(answered))

        return _latencies(once, requests)


def _produce_request(connection: BlockingConnection, topic: str, acks: int, batch: bytes) -> tuple[int, list[Chunk]]:
    version = connection.versions.best(ApiKey.PRODUCE)
    return version, produce_wire.encode_request(acks, TIMEOUT_S * 1000, {Partition(topic, 0): [batch]}, version)


def _check_produced(connection: BlockingConnection, base_offset: int) -> None:
    api, version, body = connection.receive()
    answer = decode_response(api, version, body).responses[0].partition_responses[0]
    if answer.error_code or answer.base_offset != base_offset:
        raise RuntimeError(
            f"offset {answer.base_offset}, {ErrorCode(answer.error_code).name}; not offset {base_offset}"
        )


def raw_fetch(bootstrap: str, topic: str, size: int, batch_bytes: int, requests: int) -> Figures:
    """Fetch requests for one batch each of what ``raw_produce`` wrote, encoded beforehand, ``IN_FLIGHT`` under way."""
    batch, count = batch_of(size, batch_bytes)
    with _connect(bootstrap) as connection:
        version = connection.versions.best(ApiKey.FETCH, _NAMES_TOPICS)
        bodies = list(_fetch_requests(topic, version, len(batch), count, requests))
        start = time.perf_counter()
        for sent, body in enumerate(bodies):
            connection.send(ApiKey.FETCH, version, body)
            if sent >= IN_FLIGHT:
                _check_fetched(connection, len(batch))
        for _ in range(min(requests, IN_FLIGHT)):
            _check_fetched(connection, len(batch))
        seconds = time.perf_counter() - start
    return {
        "requests/s": requests / seconds,
        "records/s": requests * count / seconds,
        "MB/s": requests * len(batch) / seconds / 1e6,
    }


def _fetch_requests(topic: str, version: int, size: int, count: int, requests: int) -> Iterator[list[Chunk]]:
    for number in range(requests):
        asked = FetchPartition(topic, UUID(int=0), 0, number * count, size)
        yield fetch_wire.encode_request(FetchRequest(500, 1, size, [asked]), version)


def _check_fetched(connection: BlockingConnection, size: int) -> None:
    _, version, body = connection.receive()
    error, (partition,) = fetch_wire.decode_response(body, version)
    got = sum(len(piece) for piece in partition.records if not isinstance(piece, tuple))
    if error or partition.error or got != size:
        raise RuntimeError(f"{got} bytes, {partition.error.name}; not {size} bytes")


def _connect(bootstrap: str) -> BlockingConnection:
    host, _, port = bootstrap.rpartition(":")
    return BlockingConnection(Endpoint(host, int(port)), client_id="benchmark", request_timeout=TIMEOUT_S)


LOADS: dict[str, Callable[..., Figures]] = {
    load.__name__: load for load in (produce, consume, round_trip, end_to_end, raw_produce, raw_round_trip, raw_fetch)
}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(LOADS[sys.argv[1]](**json.loads(sys.argv[2]))) + "\n")
