"""Our own client, every way of writing and reading that it has; of the blocking ones the caller's thread is timed."""

from __future__ import annotations

import asyncio
import time
from itertools import islice

import pyarrow as pa

from benchmarks.loads.clients import check_end
from benchmarks.loads.figures import Figures, latencies, latencies_async, rates
from benchmarks.loads.records import keys, pairs, values
from sparklog.client import AsyncProducer, Consumer, Producer
from sparklog.structs import TopicPartition

_TIMEOUT_S = 60


def sparklog_send(bootstrap: str, topic: str, size: int, records: int, partitions: int = 1) -> Figures:
    """``Producer.send`` a record, and ``flush``; with keys where there are several partitions."""
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, values(size)[0]).result(_TIMEOUT_S)
        start = time.perf_counter()
        for key, value in pairs(size, records, partitions):
            producer.send(topic, value, key)
        producer.flush(_TIMEOUT_S)
        seconds = time.perf_counter() - start
    check_end(bootstrap, topic, records + 1, partitions)
    return rates(records, size, seconds)


def sparklog_send_async(bootstrap: str, topic: str, size: int, records: int, partitions: int = 1) -> Figures:
    """The same by ``AsyncProducer.send``, in one task."""

    async def send() -> float:
        async with AsyncProducer(bootstrap_servers=bootstrap) as producer:
            await (await producer.send(topic, values(size)[0]))
            start = time.perf_counter()
            for key, value in pairs(size, records, partitions):
                await producer.send(topic, value, key)
            await producer.flush()
            return time.perf_counter() - start

    seconds = asyncio.run(send())
    check_end(bootstrap, topic, records + 1, partitions)
    return rates(records, size, seconds)


def sparklog_send_arrow(bootstrap: str, topic: str, size: int, records: int, partitions: int = 1) -> Figures:
    """``Producer.send_arrow``, a few thousand rows a call, and ``flush``."""
    columns = {"value": pa.array(values(size), pa.binary())}
    if partitions > 1:
        columns["key"] = pa.array(keys(), pa.binary())
    rows = pa.RecordBatch.from_pydict(columns)
    calls = -(-records // rows.num_rows)
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, values(size)[0]).result(_TIMEOUT_S)
        start = time.perf_counter()
        for _ in range(calls):
            producer.send_arrow(topic, rows)
        producer.flush(_TIMEOUT_S)
        seconds = time.perf_counter() - start
    check_end(bootstrap, topic, calls * rows.num_rows + 1, partitions)
    return rates(calls * rows.num_rows, size, seconds)


def sparklog_round_trip(bootstrap: str, topic: str, size: int, requests: int) -> Figures:
    """``Producer.send`` at linger 0, and the ``result`` of its future."""
    value = values(size)[0]
    with Producer(bootstrap_servers=bootstrap, linger_ms=0) as producer:
        return latencies(lambda: producer.send(topic, value).result(_TIMEOUT_S), requests)


def sparklog_round_trip_async(bootstrap: str, topic: str, size: int, requests: int) -> Figures:
    """``AsyncProducer.send`` at linger 0, and its future."""
    value = values(size)[0]

    async def measure() -> Figures:
        async with AsyncProducer(bootstrap_servers=bootstrap, linger_ms=0) as producer:

            async def once() -> None:
                await (await producer.send(topic, value))

            return await latencies_async(once, requests)

    return asyncio.run(measure())


def _consumer_of(bootstrap: str, topic: str) -> Consumer:
    consumer = Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    return consumer


def sparklog_poll(bootstrap: str, topic: str, size: int, records: int) -> Figures:
    """``Consumer.poll``, 500 records a call at most, timed from the first that come."""
    with _consumer_of(bootstrap, topic) as consumer:
        first = got = len(consumer.poll(_TIMEOUT_S))
        start = time.perf_counter()
        while got < records:
            polled = consumer.poll(_TIMEOUT_S)
            if not polled:
                raise RuntimeError(f"nothing came for {_TIMEOUT_S} s")
            got += len(polled)
        return rates(got - first, size, time.perf_counter() - start)


def sparklog_iterate(bootstrap: str, topic: str, size: int, records: int) -> Figures:
    """``for record in Consumer``."""
    with _consumer_of(bootstrap, topic) as consumer:
        stream = iter(consumer)
        next(stream)
        start = time.perf_counter()
        for _ in islice(stream, records - 1):
            pass
        return rates(records - 1, size, time.perf_counter() - start)


def _poll_rows(consumer: Consumer) -> int:
    rows = consumer.poll_arrow(_TIMEOUT_S)
    if rows is None:
        raise RuntimeError(f"nothing came for {_TIMEOUT_S} s")
    return int(rows.num_rows)


def sparklog_poll_arrow(bootstrap: str, topic: str, size: int, records: int) -> Figures:
    """``Consumer.poll_arrow``, as much as there is in a call."""
    with _consumer_of(bootstrap, topic) as consumer:
        first = got = _poll_rows(consumer)
        start = time.perf_counter()
        while got < records:
            got += _poll_rows(consumer)
        return rates(got - first, size, time.perf_counter() - start)
