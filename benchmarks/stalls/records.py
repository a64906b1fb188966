"""The worst of what is asked about records."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial

from benchmarks.loads.raw import connect
from benchmarks.stalls.cluster import LONGEST_STRING, MANY, NOW_MS, TIMEOUT_MS, Case, Cluster, long_name, request
from sparklog.clock import SystemClock
from sparklog.errors import SparklogError
from sparklog.protocol import messages
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch as fetch_wire
from sparklog.protocol.hot import produce as produce_wire
from sparklog.protocol.messages import Message
from sparklog.protocol.wire import ZERO_UUID
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.structs import Chunk, TopicPartition

_BY_NAME = fetch_wire.TOPIC_ID_VERSION - 1
_PRODUCE_VERSION = 9
_SETTLE_S = 1.0
_LONG = 3000
_SESSIONS = 20


def written() -> Iterator[Case]:
    """Batches, and partitions to write to."""
    yield Case(ApiKey.PRODUCE, "a bomb into compression.type=gzip", _bomb)
    yield Case(ApiKey.PRODUCE, f"{MANY} partitions", partial(_produce, _partitions))
    yield Case(ApiKey.PRODUCE, f"{_LONG} long names", partial(_produce, _long_names))


def looked_up() -> Iterator[Case]:
    """Offsets, by time or at the ends, and what producers have written."""
    yield request(ApiKey.LIST_OFFSETS, f"{MANY} partitions", partial(_list_offsets, MANY), 7)
    yield request(ApiKey.LIST_OFFSETS, "20 MB", partial(_list_offsets, 1_200_000), 7)
    yield Case(ApiKey.LIST_OFFSETS, "by time of a bomb", _list_offsets_of_a_bomb)
    yield request(ApiKey.OFFSET_FOR_LEADER_EPOCH, f"{MANY} partitions", _ends_of_epochs, 4)
    yield request(ApiKey.DESCRIBE_PRODUCERS, f"{MANY} partitions", _producers, 0)


def read() -> Iterator[Case]:
    """Partitions to read, and sessions to read them in."""
    yield Case(ApiKey.FETCH, "100 MB that the page cache does not hold", _cold_fetch)
    yield Case(ApiKey.FETCH, f"{MANY} partitions", partial(_fetch, _partitions))
    one = [TopicPartition("stalls", 0)]
    yield Case(ApiKey.FETCH, f"one partition {MANY} times", partial(_fetch, lambda: one * MANY))
    yield Case(ApiKey.FETCH, f"{_LONG} long names", partial(_fetch, _long_names))
    yield Case(ApiKey.FETCH, "nothing new in the largest session", _fetch_in_session)
    yield Case(ApiKey.FETCH, f"{_SESSIONS} of the largest sessions", _fetch_in_sessions)
    yield Case(ApiKey.FETCH, "1000 long polls of a partition that is written to", _long_polls)


def _list_offsets(count: int) -> Message:
    topic = messages.ListOffsetsRequest.ListOffsetsTopic
    asked = [topic.ListOffsetsPartition(partition_index=n, current_leader_epoch=-1, timestamp=-1) for n in range(count)]
    return messages.ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[topic(name="stalls", partitions=asked)]
    )


def _ends_of_epochs() -> Message:
    topic = messages.OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    asked = [topic.OffsetForLeaderPartition(partition=n, current_leader_epoch=-1, leader_epoch=0) for n in range(MANY)]
    return messages.OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic(topic="stalls", partitions=asked)])


def _producers() -> Message:
    topic = messages.DescribeProducersRequest.TopicRequest(name="stalls", partition_indexes=list(range(MANY)))
    return messages.DescribeProducersRequest(topics=[topic])


def _bomb(cluster: Cluster) -> None:
    """Zeros that are a few KB on the wire and tens of MB for the topic's codec."""
    builder = RecordBatchBuilder(CompressionType.ZSTD)
    builder.append(NOW_MS, None, bytes(60 << 20))
    cluster.write("gzip", builder.build())


def _list_offsets_of_a_bomb(cluster: Cluster) -> None:
    """By time, of one batch that is a few KB in the log."""
    builder = RecordBatchBuilder(CompressionType.ZSTD)
    for at, value in ((NOW_MS, None), (NOW_MS + 2, bytes(100 << 20))):
        builder.append(at, None, value)
    cluster.write("searched", builder.build())
    topic = messages.ListOffsetsRequest.ListOffsetsTopic
    asked = topic.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=NOW_MS + 1)
    message = messages.ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[topic(name=cluster.topic("searched"), partitions=[asked])]
    )
    cluster.ask(ApiKey.LIST_OFFSETS, message, 7)


def _cold_fetch(cluster: Cluster) -> None:
    """Segments that the page cache does not hold any more."""
    builder = RecordBatchBuilder()
    builder.append(NOW_MS, None, os.urandom(1_000_000))
    batch = builder.build()
    for _ in range(100):
        cluster.write("cold", batch)
    for path in cluster.directory.rglob(f"{cluster.topic('cold')}-0/*.log"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with connect(cluster.bootstrap) as connection:
        version = min(connection.versions.best(ApiKey.FETCH), 12)
        for offset in range(100):
            asked = [fetch_wire.FetchPartition(cluster.topic("cold"), ZERO_UUID, 0, offset, 1_000_000)]
            body = fetch_wire.encode_request(fetch_wire.FetchRequest(500, 1, 1_000_000, asked), version)
            connection.send(ApiKey.FETCH, version, body)
            connection.receive()


def _fetched(topic: str, partition: int) -> fetch_wire.FetchPartition:
    return fetch_wire.FetchPartition(topic, ZERO_UUID, partition, 0, 1_000_000)


def _partitions() -> list[TopicPartition]:
    return [TopicPartition("stalls", n) for n in range(MANY)]


def _long_names() -> list[TopicPartition]:
    return [TopicPartition(long_name(n, LONGEST_STRING), 0) for n in range(_LONG)]


def _fetch(partitions: Callable[[], list[TopicPartition]], cluster: Cluster) -> None:
    """One request without a session."""
    asked = [_fetched(*each) for each in partitions()]
    body = fetch_wire.encode_request(fetch_wire.FetchRequest(0, 1, 1_000_000, asked), _BY_NAME)
    with connect(cluster.bootstrap) as connection, suppress(SparklogError):
        connection.send(ApiKey.FETCH, _BY_NAME, body)
        connection.receive()


def _fetch_in_session(cluster: Cluster, increments: int = 6) -> None:
    """A session that is made as large as it may be, and empty requests in it."""
    named = [[_fetched("stalls", MANY * n + each) for each in range(MANY)] for n in range(increments)]
    with connect(cluster.bootstrap) as connection:
        session = 0
        for epoch, partitions in enumerate([*named, *[[]] * increments]):
            request = fetch_wire.FetchRequest(
                0, 1, 1_000_000, partitions, session_id=session, session_epoch=epoch if session else 0
            )
            connection.send(ApiKey.FETCH, _BY_NAME, fetch_wire.encode_request(request, _BY_NAME))
            _, version, body = connection.receive()
            session = fetch_wire.session_id_of(body, version)


def _fetch_in_sessions(cluster: Cluster) -> None:
    """As many partitions each as a session may have, so that much is remembered."""
    partitions = [_fetched("stalls", n) for n in range(MANY)]
    body = fetch_wire.encode_request(fetch_wire.FetchRequest(0, 1, 1_000_000, partitions, session_epoch=0), _BY_NAME)
    with connect(cluster.bootstrap) as connection:
        for _ in range(_SESSIONS):
            connection.send(ApiKey.FETCH, _BY_NAME, body)
            connection.receive()


def _produce(partitions: Callable[[], list[TopicPartition]], cluster: Cluster) -> None:
    """To partitions that do not exist."""
    builder = RecordBatchBuilder()
    builder.append(NOW_MS, None, b"v")
    batch = builder.build()
    records: dict[TopicPartition, list[Chunk]] = {each: [batch] for each in partitions()}
    body = produce_wire.encode_request(1, TIMEOUT_MS, records, _PRODUCE_VERSION)
    with connect(cluster.bootstrap) as connection, suppress(SparklogError):
        connection.send(ApiKey.PRODUCE, _PRODUCE_VERSION, body)
        connection.receive()


def _long_polls(cluster: Cluster, connections: int = 200, pipelined: int = 5) -> None:
    """All of them wait for one record."""
    request = fetch_wire.FetchRequest(TIMEOUT_MS, 1, 1_000_000, [_fetched(cluster.topic("polled"), 0)])
    body = fetch_wire.encode_request(request, _BY_NAME)
    builder = RecordBatchBuilder()
    builder.append(NOW_MS, None, b"v")
    with ExitStack() as stack:
        readers = [stack.enter_context(connect(cluster.bootstrap)) for _ in range(connections)]
        for reader in readers:
            for _ in range(pipelined):
                reader.send(ApiKey.FETCH, _BY_NAME, body)
        SystemClock().sleep(_SETTLE_S)
        cluster.write("polled", builder.build())
        for reader in readers:
            for _ in range(pipelined):
                reader.receive()
