"""Replaying flights into a topic, in time order, in bulk."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.client.admin.admin import AdminClient, NewTopic
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.client.producer.partitioner import Partitioner
from sparklog.demo.evidence import Evidence, examine
from sparklog.demo.flights import Flights
from sparklog.record.columnar import ColumnarEncoder
from sparklog.structs import TopicPartition

BLOCK = 20_000
"""Flights at a time; those of a block that have no key go to one partition."""


class Replayed(NamedTuple):
    """What was sent: the evidence for each partition, and the seconds from the first batch to the last answer."""

    evidence: dict[int, Evidence]
    seconds: float


def replay(cluster: ClusterMetadata, topic: str, partitions: int, flights: Flights) -> Replayed:
    """Create ``topic`` and send the flights to it."""
    # The records are as old as the flights: retention would take them at once.
    AdminClient(cluster).create_topics([NewTopic(topic, partitions, 1, {"retention.ms": "-1"})])
    rows: dict[int, list[pa.Array]] = {partition: [] for partition in range(partitions)}
    started = cluster.clock.monotonic()
    with BatchProducer(cluster) as producer:
        _send(cluster, producer, topic, flights, rows)
    seconds = cluster.clock.monotonic() - started
    return Replayed({partition: _evidence(flights, chosen) for partition, chosen in rows.items()}, seconds)


def _send(
    cluster: ClusterMetadata,
    producer: BatchProducer,
    topic: str,
    flights: Flights,
    rows: dict[int, list[pa.Array]],
) -> None:
    """Send all, and note in ``rows`` which flight went to which partition."""
    encoder = ColumnarEncoder(max_batch_bytes=cluster.config.batch_size)
    partitioner = Partitioner(len(rows))
    for start in range(0, len(flights), BLOCK):
        key, value, timestamp = (column[start : start + BLOCK] for column in flights)
        for share in partitioner.shares(key, len(key)):
            part = slice(share.offset, share.offset + share.length)
            columns = key[part], value[part], None, timestamp[part]
            for batch in encoder.encode(*columns, now_ms=cluster.clock.now_ms(), rows=share.rows):
                producer.send(TopicPartition(topic, share.partition), batch.data)
            rows[share.partition].append(_numbers(share.rows, share.length, start + share.offset))


def _numbers(rows: memoryview | None, length: int, start: int) -> pa.Array:
    """The numbers, among all flights, of the rows of a share that begins at ``start``."""
    if rows is None:
        return pa.array(range(start, start + length), pa.int64())
    chosen = pa.Array.from_buffers(pa.int32(), len(rows), [None, pa.py_buffer(rows)])
    return pc.add(chosen.cast(pa.int64()), start)


def _evidence(flights: Flights, rows: list[pa.Array]) -> Evidence:
    chosen = pa.concat_arrays(rows) if rows else pa.array([], pa.int64())
    return examine(*(column.take(chosen) for column in flights))
