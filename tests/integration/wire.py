"""Requests as raw as a test wants them, over a blocking connection of ours or over a bare socket."""

import socket
import struct
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from sparklog.errors import ErrorCode
from sparklog.local.broker import BrokerProcess
from sparklog.net.connection import BlockingConnection
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch as fetch_wire
from sparklog.protocol.hot import produce as produce_wire
from sparklog.protocol.hot.fetch import FetchedPartition, FetchPartition, FetchRequest
from sparklog.protocol.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FindCoordinatorRequest,
    ListOffsetsRequest,
    MetadataRequest,
    decode_response,
    encode,
)
from sparklog.protocol.wire import ZERO_UUID
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.records import iter_batches, iter_records
from sparklog.security.connecting import PLAIN, ConnectionSecurity
from sparklog.structs import Endpoint, IsolationLevel, TopicPartition

BY_NAME = fetch_wire.TOPIC_ID_VERSION - 1
"""The newest Fetch that names its topics."""
OF_LEADERS = 10
"""The newest Fetch that only a leader answers; a follower, asked by a later one, tells of its own high watermark."""
PRODUCE_VERSION = 9
FIRST_TIMESTAMP = 1_700_000_000_000
MANY = 1 << 30
CORRELATION_ID = 7


def endpoint_of(address: str) -> Endpoint:
    """``host:port`` taken apart."""
    host, _, port = address.rpartition(":")
    return Endpoint(host, int(port))


def connect(address: str, timeout: float = 60.0, security: ConnectionSecurity = PLAIN) -> BlockingConnection:
    """A connection of ours to the first broker of ``address``."""
    return BlockingConnection(endpoint_of(address.split(",")[0]), request_timeout=timeout, security=security)


def batch_of(*values: bytes | None, key: bytes | None = b"k", **header: object) -> bytearray:
    """A batch with one record a value, as a producer sends it."""
    builder = RecordBatchBuilder(**header)
    for number, value in enumerate(values):
        builder.append(FIRST_TIMESTAMP + number, key, value)
    return bytearray(builder.build())


def create_topic(
    connection: BlockingConnection,
    name: str,
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
    replication_factor: int = 1,
    timeout_ms: int = 20_000,
) -> tuple[ErrorCode, str]:
    """What CreateTopics answers: the code and its message."""
    topic = CreateTopicsRequest.CreatableTopic
    settings = [topic.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
    asked = topic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=settings,
    )
    answer = connection.request(
        ApiKey.CREATE_TOPICS, lambda _: CreateTopicsRequest(topics=[asked], timeout_ms=timeout_ms, validate_only=False)
    )
    (result,) = answer.topics
    return ErrorCode(result.error_code), result.error_message or ""


def topic_is_made(
    brokers: Iterable[BrokerProcess], name: str, configs: Mapping[str, str], replication_factor: int
) -> bool:
    """Whether the topic of one partition is there by now: one of the brokers is the controller, which makes it."""
    codes = []
    for broker in brokers:
        with connect(broker.address) as connection:
            codes.append(create_topic(connection, name, 1, configs, replication_factor)[0])
    return not {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}.isdisjoint(codes)


def delete_topic(connection: BlockingConnection, name: str) -> ErrorCode:
    """What DeleteTopics answers."""
    asked = DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=ZERO_UUID)
    answer = connection.request(
        ApiKey.DELETE_TOPICS, lambda _: DeleteTopicsRequest(topics=[asked], topic_names=[name], timeout_ms=20_000)
    )
    (result,) = answer.responses
    return ErrorCode(result.error_code)


def metadata(connection: BlockingConnection, *topics: str, create: bool = False) -> Any:
    """What Metadata answers about these topics."""
    asked = [MetadataRequest.MetadataRequestTopic(name=name, topic_id=ZERO_UUID) for name in topics]
    return connection.request(
        ApiKey.METADATA, lambda _: MetadataRequest(topics=asked, allow_auto_topic_creation=create)
    )


def topic_names(connection: BlockingConnection) -> set[str]:
    """Every topic that this broker knows."""
    answer = connection.request(
        ApiKey.METADATA, lambda _: MetadataRequest(topics=None, allow_auto_topic_creation=False)
    )
    return {each.name for each in answer.topics}


def leaders(connection: BlockingConnection, topic: str) -> dict[int, int]:
    """The leader of each partition of the topic as this broker tells it: -1 while there is none, empty if unknown."""
    (described,) = metadata(connection, topic).topics
    return {each.partition_index: each.leader_id for each in described.partitions}


def produce(
    connection: BlockingConnection, tp: TopicPartition, batch: bytes | bytearray, acks: int = -1
) -> tuple[ErrorCode, int, str]:
    """The code, base offset and message that one batch gets."""
    send_produce(connection, tp, batch, acks)
    return receive_produced(connection)


def receive_produced(connection: BlockingConnection) -> tuple[ErrorCode, int, str]:
    """What the Produce answer that is due says."""
    _, version, body = connection.receive()
    (topic,) = decode_response(ApiKey.PRODUCE, version, body).responses
    (result,) = topic.partition_responses
    return ErrorCode(result.error_code), result.base_offset, result.error_message or ""


def send_produce(connection: BlockingConnection, tp: TopicPartition, batch: bytes | bytearray, acks: int = -1) -> None:
    """Put the request on the wire; with ``acks=0`` no answer will come."""
    body = produce_wire.encode_request(acks, 20_000, {tp: [batch]}, PRODUCE_VERSION)
    connection.send(ApiKey.PRODUCE, PRODUCE_VERSION, body, expect_response=acks != 0)


def send_fetch(
    connection: BlockingConnection,
    positions: Mapping[TopicPartition, int],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = MANY,
    partition_max_bytes: int = MANY,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    rack_id: str = "",
    version: int = BY_NAME,
) -> None:
    """Put a Fetch on the wire."""
    partitions = [
        FetchPartition(tp.topic, ZERO_UUID, tp.partition, offset, partition_max_bytes)
        for tp, offset in positions.items()
    ]
    request = FetchRequest(max_wait_ms, min_bytes, max_bytes, partitions, isolation, rack_id=rack_id)
    connection.send(ApiKey.FETCH, version, fetch_wire.encode_request(request, version))


def receive_fetch(connection: BlockingConnection) -> dict[TopicPartition, FetchedPartition]:
    """The partitions of the Fetch answer that is due."""
    _, version, body = connection.receive()
    error, partitions = fetch_wire.decode_response(body, version)
    assert error is ErrorCode.NONE
    return {TopicPartition(each.topic, each.partition): each for each in partitions}


def fetch(connection: BlockingConnection, tp: TopicPartition, offset: int, **how: Any) -> FetchedPartition:
    """What one partition gives from ``offset`` on."""
    send_fetch(connection, {tp: offset}, **how)
    return receive_fetch(connection)[tp]


def offsets_in(fetched: FetchedPartition) -> list[int]:
    """The offsets of the records that came."""
    return [record.offset for record in _records(fetched)]


def values_in(fetched: FetchedPartition) -> list[bytes | None]:
    """The values of the records that came."""
    return [record.value for record in _records(fetched)]


def _records(fetched: FetchedPartition) -> Iterable[Any]:
    for chunk in fetched.records:
        for batch in iter_batches(chunk):
            yield from iter_records(batch)


def read_all(connection: BlockingConnection, tp: TopicPartition) -> list[bytes | None]:
    """Every value of the partition, from its start to its high watermark."""
    values: list[bytes | None] = []
    while True:
        fetched = fetch(connection, tp, len(values))
        assert fetched.error is ErrorCode.NONE, fetched.error
        if len(values) >= fetched.high_watermark:
            return values
        values += values_in(fetched)


def list_offset(connection: BlockingConnection, tp: TopicPartition, timestamp: int) -> tuple[ErrorCode, int, int]:
    """The code, offset and timestamp that ListOffsets answers."""
    topic = ListOffsetsRequest.ListOffsetsTopic
    asked = topic.ListOffsetsPartition(partition_index=tp.partition, current_leader_epoch=-1, timestamp=timestamp)
    answer = connection.request(
        ApiKey.LIST_OFFSETS,
        lambda _: ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=[topic(name=tp.topic, partitions=[asked])]
        ),
    )
    (result,) = answer.topics[0].partitions
    return ErrorCode(result.error_code), result.offset, result.timestamp


def find_coordinator(connection: BlockingConnection, group: str) -> int:
    """The node id of the group's coordinator, -1 if there is none now, as while the offsets topic is made."""
    answer = connection.request(
        ApiKey.FIND_COORDINATOR, lambda _: FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    )
    (found,) = answer.coordinators
    return int(found.node_id)


def request_bytes(
    api: int, version: int, body: bytes = b"", *, flexible: bool = False, correlation_id: int = 7
) -> bytes:
    """A whole request frame, whatever it says; the client calls itself ``hostile``."""
    header = struct.pack(">hhih", api, version, correlation_id, 7) + b"hostile" + (b"\0" if flexible else b"")
    return struct.pack(">i", len(header) + len(body)) + header + body


def send_raw(address: str, data: bytes, *, timeout: float = 60.0) -> tuple[int, bytes]:
    """Send ``data``, then nothing more; our port, and all that comes back until the broker hangs up."""
    with closing(socket.create_connection(endpoint_of(address), timeout)) as sock:
        port = sock.getsockname()[1]
        with suppress(OSError):  # the broker may have read enough, and hung up
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
        return port, receive_until_closed(sock)


def receive_until_closed(sock: socket.socket) -> bytes:
    """All that the peer sends before it hangs up, politely or not."""
    received = bytearray()
    with suppress(ConnectionResetError):
        while chunk := sock.recv(1 << 16):
            received += chunk
    return bytes(received)


def files_of(data_dir: Path, tp: TopicPartition, suffix: str) -> list[Path]:
    """The partition's files of one kind, in order."""
    return sorted((data_dir / str(tp)).glob(f"*{suffix}"))


def ask(connection: BlockingConnection, api: ApiKey, version: int, message: Any) -> Any:
    """The answer to a request in just this version."""
    connection.send(api, version, [encode(message, version)])
    _, answered, body = connection.receive()
    assert answered == version
    return decode_response(api, version, body)
