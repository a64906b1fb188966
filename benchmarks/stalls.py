"""How long one client holds up another: one asks every 5 ms, the other asks the worst of each API.

One broker, one worst case at a time, the longest wait of the asking client during it. ``nothing`` is the same with an
idle broker: what the machine and the client add by themselves.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID, uuid4

from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

from benchmarks.loads.raw import connect
from benchmarks.peers import Peer, our_broker
from sparklog.clock import Clock, SystemClock
from sparklog.compaction.erased_keys import MOST_BYTES
from sparklog.errors import SparklogError
from sparklog.protocol import messages
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.connection import ClientConnection
from sparklog.protocol.hot import fetch as fetch_wire
from sparklog.protocol.hot import produce as produce_wire
from sparklog.protocol.messages import Message, decode_response, encode
from sparklog.protocol.wire import ZERO_UUID
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.structs import Chunk, TopicPartition
from sparklog.zk.client import ZkClient

ROUNDS = 3
MANY = 19_000
"""Elements of one request: nearly as many as a broker takes."""
PARTITIONS = 500
MEMBERS, NAMES = 100, 2000
"""Of a group, and what each of its members names."""
_TIMEOUT_MS = 60_000
_SETTLE_S = 1.0
_NOW_MS = 1_700_000_000_000
_NO_TOPIC = UUID(int=7)
_BY_NAME = fetch_wire.TOPIC_ID_VERSION - 1
_PRODUCE_VERSION = 9


@dataclass(frozen=True)
class Cluster:
    """The broker that is asked."""

    bootstrap: str
    directory: Path
    number: int
    """Of the round: its topics have names of their own."""
    zookeeper: str
    """Its connect string."""

    @property
    def epoch(self) -> int:
        """Of the broker's registration: what only brokers ask is refused under any other."""
        zk = ZkClient(self.zookeeper, session_timeout=10.0, on_session=lambda _: None)
        try:
            return zk.brokers.live()[0].epoch
        finally:
            zk.close()

    def topic(self, name: str) -> str:
        return f"{name}-{self.number}"

    def admin(self) -> AdminClient:
        """To be held until its answers are there: it takes them with it when it goes."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create(self, name: str, partitions: int, **config: str) -> None:
        admin, topic = self.admin(), NewTopic(self.topic(name), partitions, 1, config=config)
        next(iter(admin.create_topics([topic], request_timeout=60).values())).result(60)


Case = Callable[[Cluster], None]


def _request(api: ApiKey, message: Message, version: int) -> Case:
    """One request of the schema library, sent whole at once; its answer is read, or the end of the connection."""
    body = encode(message, version)

    def ask(cluster: Cluster) -> None:
        with connect(cluster.bootstrap) as connection, suppress(SparklogError):
            connection.send(api, version, [body])
            connection.receive()

    return ask


def _list_offsets(count: int) -> Case:
    topic = messages.ListOffsetsRequest.ListOffsetsTopic
    asked = [topic.ListOffsetsPartition(partition_index=n, current_leader_epoch=-1, timestamp=-1) for n in range(count)]
    message = messages.ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[topic(name="stalls", partitions=asked)]
    )
    return _request(ApiKey.LIST_OFFSETS, message, 7)


def _offset_commit() -> Case:
    topic = messages.OffsetCommitRequest.OffsetCommitRequestTopic
    asked = [
        topic.OffsetCommitRequestPartition(
            partition_index=n, committed_offset=1, committed_leader_epoch=-1, committed_metadata=""
        )
        for n in range(MANY)
    ]
    message = messages.OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[topic(name="stalls", partitions=asked)],
    )
    return _request(ApiKey.OFFSET_COMMIT, message, 8)


def _offset_fetch() -> Case:
    topic = messages.OffsetFetchRequest.OffsetFetchRequestTopic
    message = messages.OffsetFetchRequest(
        group_id="g", topics=[topic(name="stalls", partition_indexes=list(range(MANY)))], require_stable=False
    )
    return _request(ApiKey.OFFSET_FETCH, message, 7)


def _offset_for_leader_epoch() -> Case:
    topic = messages.OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    asked = [topic.OffsetForLeaderPartition(partition=n, current_leader_epoch=-1, leader_epoch=0) for n in range(MANY)]
    message = messages.OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic(topic="stalls", partitions=asked)])
    return _request(ApiKey.OFFSET_FOR_LEADER_EPOCH, message, 4)


def _metadata_by_name() -> Case:
    topic = messages.MetadataRequest.MetadataRequestTopic
    message = messages.MetadataRequest(
        topics=[topic(topic_id=None, name=f"nothing-{n}") for n in range(MANY)],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return _request(ApiKey.METADATA, message, 9)


def _everything() -> Message:
    return messages.MetadataRequest(
        topics=None,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


def _metadata_flood(cluster: Cluster, connections: int = 200, pipelined: int = 50) -> None:
    """Many clients that ask for everything, read nothing, and are gone."""
    frame = _frame(ApiKey.METADATA, 9, _everything())
    with _sockets(cluster, connections) as sockets:
        for each in sockets:
            each.sendall(frame * pipelined)
        for each in sockets[:3]:
            each.recv(1)


def _delete_records(cluster: Cluster) -> None:
    topic = messages.DeleteRecordsRequest.DeleteRecordsTopic
    asked = [topic.DeleteRecordsPartition(partition_index=n, offset=-1) for n in range(100)]
    message = messages.DeleteRecordsRequest(
        topics=[topic(name=cluster.topic("wide"), partitions=asked)], timeout_ms=_TIMEOUT_MS
    )
    _request(ApiKey.DELETE_RECORDS, message, 2)(cluster)


def _create_topics(cluster: Cluster) -> None:
    cluster.create("wide", PARTITIONS)


def _create_partitions(cluster: Cluster) -> None:
    admin, grown = cluster.admin(), NewPartitions(cluster.topic("wide"), PARTITIONS + 200)
    next(iter(admin.create_partitions([grown], request_timeout=60).values())).result(60)


def _delete_topics(cluster: Cluster) -> None:
    admin = cluster.admin()
    next(iter(admin.delete_topics([cluster.topic("wide")], request_timeout=60).values())).result(60)


def _describe_configs(cluster: Cluster) -> None:
    admin = cluster.admin()
    resources = [ConfigResource(ConfigResource.Type.TOPIC, cluster.topic("wide"))]
    for each in admin.describe_configs(resources, request_timeout=60).values():
        each.result(60)


def _describe_groups() -> Case:
    message = messages.DescribeGroupsRequest(groups=[f"g{n}" for n in range(MANY)], include_authorized_operations=False)
    return _request(ApiKey.DESCRIBE_GROUPS, message, 5)


def _find_coordinator() -> Case:
    return _request(ApiKey.FIND_COORDINATOR, _find_coordinators(MANY), 4)


def _find_coordinators(keys: int) -> Message:
    return messages.FindCoordinatorRequest(key_type=0, coordinator_keys=[f"g{n}" for n in range(keys)])


def _find_coordinator_flood(cluster: Cluster, connections: int = 200, times: int = 10) -> None:
    """Many clients that ask for some coordinators each, all at once."""
    frame = _frame(ApiKey.FIND_COORDINATOR, 4, _find_coordinators(100))
    with _sockets(cluster, connections) as sockets:
        for _ in range(times):
            for each in sockets:
                each.sendall(frame)
            for each in sockets:
                _read(each)


def _alternate(cluster: Cluster, connections: int = 300, seconds: float = 3.0) -> None:
    """Many clients that each ask for little and for more by turns, without end."""
    little = _frame(ApiKey.FIND_COORDINATOR, 4, _find_coordinators(1))
    more = _frame(ApiKey.FIND_COORDINATOR, 4, _find_coordinators(50))
    clock = SystemClock()
    with _sockets(cluster, connections) as sockets, select.epoll() as poll:
        following = {each.fileno(): (each, cycle((more, little))) for each in sockets}
        for each in sockets:
            each.sendall(little)
            poll.register(each, select.EPOLLIN)
        until = clock.monotonic() + seconds
        while clock.monotonic() < until:
            for number, _ in poll.poll(seconds):
                each, frames = following[number]
                _read(each)
                each.sendall(next(frames))


def _frame(api: ApiKey, version: int, message: Message) -> bytes:
    return b"".join(ClientConnection("flood").request(api, version, [encode(message, version)]))  # type: ignore[arg-type]


@contextmanager
def _sockets(cluster: Cluster, count: int) -> Iterator[list[socket.socket]]:
    host, _, port = cluster.bootstrap.rpartition(":")
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(count)]


def _read(connection: socket.socket) -> None:
    left = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    while left:
        left -= len(connection.recv(left))


def _describe_log_dirs() -> Case:
    return _request(ApiKey.DESCRIBE_LOG_DIRS, messages.DescribeLogDirsRequest(topics=None), 4)


def _describe_compaction(topics: list[str] | None) -> Case:
    return _request(ApiKey.DESCRIBE_COMPACTION, messages.DescribeCompactionRequest(topics=topics), 0)


def _describe_retention() -> Case:
    return _request(ApiKey.DESCRIBE_RETENTION, messages.DescribeRetentionRequest(topics=None), 0)


def _describe_lag() -> Case:
    topic = messages.DescribeLagRequest.LagTopic
    asked = [topic.LagPartition(partition_index=0, offset=each) for each in range(MANY)]
    return _request(
        ApiKey.DESCRIBE_LAG, messages.DescribeLagRequest(topics=[topic(name="stalls", partitions=asked)]), 0
    )


def _begin_compaction() -> Case:
    topic = messages.BeginCompactionRequest.GrantedTopic
    message = messages.BeginCompactionRequest(
        topics=[topic(name="stalls", partitions=list(range(MANY)))],
        rolls_active=False,
        duration_ms=_TIMEOUT_MS,
        renewed=list(range(MANY)),
    )
    return _request(ApiKey.BEGIN_COMPACTION, message, 0)


def _compact_partitions() -> Case:
    topic = messages.CompactPartitionsRequest.CompactedTopic
    message = messages.CompactPartitionsRequest(
        topics=[topic(name="stalls", partitions=list(range(MANY)))], timeout_ms=_TIMEOUT_MS, since_ms=-1
    )
    return _request(ApiKey.COMPACT_PARTITIONS, message, 0)


def _erase_records() -> Case:
    """As many keys as one erasure takes, and partitions that are not here."""
    asked = messages.EraseRecordsRequest.ErasedPartition
    message = messages.EraseRecordsRequest(
        erasure_id=uuid4(),
        round=1,
        scan_only=True,
        keys=bytes(MOST_BYTES),
        topic="stalls",
        topic_id=uuid4(),
        partitions=[asked(partition_index=number, end_offset=1) for number in range(MANY)],
    )
    return _request(ApiKey.ERASE_RECORDS, message, 0)


def _adopt_segments() -> Case:
    """Segments that are not there, as many as one request can name."""
    message = messages.AdoptSegmentsRequest(
        topic="stalls",
        partition_index=0,
        current_leader_epoch=-1,
        mode=1,
        tag=uuid4().hex,
        bases=list(range(MANY)),
        end_offset=MANY,
        log_start_offset=-1,
        timeout_ms=_TIMEOUT_MS,
    )
    return _request(ApiKey.ADOPT_SEGMENTS, message, 0)


def _describe_producers() -> Case:
    topic = messages.DescribeProducersRequest.TopicRequest
    message = messages.DescribeProducersRequest(topics=[topic(name="stalls", partition_indexes=list(range(MANY)))])
    return _request(ApiKey.DESCRIBE_PRODUCERS, message, 0)


def _delete_groups() -> Case:
    message = messages.DeleteGroupsRequest(groups_names=[f"g{n}" for n in range(MANY)])
    return _request(ApiKey.DELETE_GROUPS, message, 2)


def _add_partitions_to_txn() -> Case:
    """Of a topic that nobody knows, so that all of it is refused."""
    request = messages.AddPartitionsToTxnRequest
    message = request(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[request.AddPartitionsToTxnTopic(name="stalls", partitions=list(range(MANY)))],
    )
    return _request(ApiKey.ADD_PARTITIONS_TO_TXN, message, 3)


def _verify_partitions_of_txns() -> Case:
    request = messages.AddPartitionsToTxnRequest
    transaction = request.AddPartitionsToTxnTransaction
    topics = [transaction.AddPartitionsToTxnTopic(name="stalls", partitions=[0])]
    message = request(
        transactions=[
            transaction(transactional_id=f"t{n}", producer_id=n, producer_epoch=0, verify_only=True, topics=topics)
            for n in range(MANY // 3)
        ]
    )
    return _request(ApiKey.ADD_PARTITIONS_TO_TXN, message, 4)


def _write_txn_markers(cluster: Cluster) -> None:
    """One partition, and as many producers as may be."""
    marker = messages.WriteTxnMarkersRequest.WritableTxnMarker
    topics = [marker.WritableTxnMarkerTopic(name=cluster.topic("gzip"), partition_indexes=[0])]
    markers = [
        marker(producer_id=n, producer_epoch=0, transaction_result=False, topics=topics, coordinator_epoch=0)
        for n in range(MANY // 3)
    ]
    _request(ApiKey.WRITE_TXN_MARKERS, messages.WriteTxnMarkersRequest(markers=markers), 1)(cluster)


def _offset_delete() -> Case:
    topic = messages.OffsetDeleteRequest.OffsetDeleteRequestTopic
    asked = [topic.OffsetDeleteRequestPartition(partition_index=n) for n in range(MANY)]
    message = messages.OffsetDeleteRequest(group_id="g", topics=[topic(name="stalls", partitions=asked)])
    return _request(ApiKey.OFFSET_DELETE, message, 0)


def _replica_log_info(cluster: Cluster) -> None:
    asked = messages.GetReplicaLogInfoRequest.TopicLogs(name="stalls", topic_id=_NO_TOPIC, partitions=list(range(MANY)))
    message = messages.GetReplicaLogInfoRequest(broker_id=0, topics=[asked])
    _request(ApiKey.GET_REPLICA_LOG_INFO, message, 0)(cluster)


def _alter_partition(cluster: Cluster) -> None:
    """Of a topic that there is, in which only a few are."""
    topic = messages.AlterPartitionRequest.TopicData
    asked = [
        topic.PartitionData(
            partition_index=n, leader_epoch=0, new_isr_with_epochs=[], leader_recovery_state=0, partition_epoch=0
        )
        for n in range(MANY)
    ]
    with connect(cluster.bootstrap) as connection:
        name = messages.MetadataRequest.MetadataRequestTopic(topic_id=ZERO_UUID, name=cluster.topic("polled"))
        described = messages.MetadataRequest(topics=[name], allow_auto_topic_creation=False)
        connection.send(ApiKey.METADATA, 12, [encode(described, 12)])
        found: Any = decode_response(*connection.receive())
    topics = [topic(topic_id=found.topics[0].topic_id, partitions=asked)]
    message = messages.AlterPartitionRequest(broker_id=0, broker_epoch=cluster.epoch, topics=topics)
    _request(ApiKey.ALTER_PARTITION, message, 3)(cluster)


def _alter_reassignments() -> Case:
    topic = messages.AlterPartitionReassignmentsRequest.ReassignableTopic
    asked = [
        topic(name=f"nothing-{n}", partitions=[topic.ReassignablePartition(partition_index=0, replicas=[0])])
        for n in range(MANY // 2)
    ]
    message = messages.AlterPartitionReassignmentsRequest(timeout_ms=_TIMEOUT_MS, topics=asked)
    return _request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, message, 0)


def _alter_replica_log_dirs() -> Case:
    directory = messages.AlterReplicaLogDirsRequest.AlterReplicaLogDir
    topic = directory.AlterReplicaLogDirTopic(name="stalls", partitions=list(range(MANY)))
    message = messages.AlterReplicaLogDirsRequest(dirs=[directory(path="/nowhere", topics=[topic])])
    return _request(ApiKey.ALTER_REPLICA_LOG_DIRS, message, 2)


def _alter_configs() -> Case:
    """Of what has no settings."""
    resource = messages.AlterConfigsRequest.AlterConfigsResource
    message = messages.AlterConfigsRequest(
        resources=[resource(resource_type=99, resource_name=f"nothing-{n}", configs=[]) for n in range(MANY)],
        validate_only=False,
    )
    return _request(ApiKey.ALTER_CONFIGS, message, 1)


def _alter_one_config() -> Case:
    resource = messages.AlterConfigsRequest.AlterConfigsResource
    entries = [resource.AlterableConfig(name=f"nothing-{n}", value="") for n in range(MANY)]
    message = messages.AlterConfigsRequest(
        resources=[resource(resource_type=2, resource_name="stalls", configs=entries)], validate_only=False
    )
    return _request(ApiKey.ALTER_CONFIGS, message, 1)


def _alter_one_user() -> Case:
    """Who is named too often to be changed."""
    upsertion = messages.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="nobody", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"salted"
    )
    message = messages.AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion] * MANY)
    return _request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, message, 0)


def _alter_users() -> Case:
    deletion = messages.AlterUserScramCredentialsRequest.ScramCredentialDeletion
    deletions = [deletion(name=f"nobody-{n}", mechanism=9) for n in range(MANY)]
    message = messages.AlterUserScramCredentialsRequest(deletions=deletions, upsertions=[])
    return _request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, message, 0)


def _describe_users() -> Case:
    """Each is named twice."""
    user = messages.DescribeUserScramCredentialsRequest.UserName
    message = messages.DescribeUserScramCredentialsRequest(users=[user(name=f"nobody-{n // 2}") for n in range(MANY)])
    return _request(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, message, 0)


def _bomb(cluster: Cluster) -> None:
    """Zeros that are a few KB on the wire and tens of MB for the topic's codec."""
    builder = RecordBatchBuilder(CompressionType.ZSTD)
    builder.append(_NOW_MS, None, bytes(60 << 20))
    batch = builder.build()
    with connect(cluster.bootstrap) as connection:
        version = connection.versions.best(ApiKey.PRODUCE)
        records: dict[TopicPartition, list[Chunk]] = {TopicPartition(cluster.topic("gzip"), 0): [batch]}
        connection.send(ApiKey.PRODUCE, version, produce_wire.encode_request(1, _TIMEOUT_MS, records, version))
        connection.receive()


def _list_offsets_of_a_bomb(cluster: Cluster) -> None:
    """By time, of one batch that is a few KB in the log."""
    builder = RecordBatchBuilder(CompressionType.ZSTD)
    for at, value in ((_NOW_MS, None), (_NOW_MS + 2, bytes(100 << 20))):
        builder.append(at, None, value)
    topic = messages.ListOffsetsRequest.ListOffsetsTopic
    asked = topic.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=_NOW_MS + 1)
    message = messages.ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[topic(name=cluster.topic("searched"), partitions=[asked])]
    )
    with connect(cluster.bootstrap) as connection:
        version = connection.versions.best(ApiKey.PRODUCE)
        records: dict[TopicPartition, list[Chunk]] = {TopicPartition(cluster.topic("searched"), 0): [builder.build()]}
        connection.send(ApiKey.PRODUCE, version, produce_wire.encode_request(1, _TIMEOUT_MS, records, version))
        connection.receive()
        connection.send(ApiKey.LIST_OFFSETS, 7, [encode(message, 7)])
        connection.receive()


def _cold_fetch(cluster: Cluster) -> None:
    """Segments that the page cache does not hold any more."""
    with connect(cluster.bootstrap) as connection:
        version = connection.versions.best(ApiKey.PRODUCE)
        builder = RecordBatchBuilder()
        builder.append(_NOW_MS, None, os.urandom(1_000_000))
        records: dict[TopicPartition, list[Chunk]] = {TopicPartition(cluster.topic("cold"), 0): [builder.build()]}
        for _ in range(100):
            connection.send(ApiKey.PRODUCE, version, produce_wire.encode_request(1, _TIMEOUT_MS, records, version))
            connection.receive()
    for path in cluster.directory.rglob(f"{cluster.topic('cold')}-0/*.log"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with connect(cluster.bootstrap) as connection:
        version = min(connection.versions.best(ApiKey.FETCH), 12)
        for offset in range(100):
            asked = [fetch_wire.FetchPartition(cluster.topic("cold"), ZERO_UUID, 0, offset, 1_000_000)]
            request = fetch_wire.FetchRequest(500, 1, 1_000_000, asked)
            connection.send(ApiKey.FETCH, version, fetch_wire.encode_request(request, version))
            connection.receive()


def _fetched(topic: str, partition: int) -> fetch_wire.FetchPartition:
    return fetch_wire.FetchPartition(topic, ZERO_UUID, partition, 0, 1_000_000)


def _fetch(partitions: list[fetch_wire.FetchPartition]) -> Case:
    """One request without a session."""
    body = fetch_wire.encode_request(fetch_wire.FetchRequest(0, 1, 1_000_000, partitions), _BY_NAME)

    def ask(cluster: Cluster) -> None:
        with connect(cluster.bootstrap) as connection:
            connection.send(ApiKey.FETCH, _BY_NAME, body)
            connection.receive()

    return ask


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


def _produce(count: int) -> Case:
    """To partitions that do not exist."""
    builder = RecordBatchBuilder()
    builder.append(_NOW_MS, None, b"v")
    batch = builder.build()
    records: dict[TopicPartition, list[Chunk]] = {TopicPartition("stalls", n): [batch] for n in range(count)}
    body = produce_wire.encode_request(1, _TIMEOUT_MS, records, _PRODUCE_VERSION)

    def ask(cluster: Cluster) -> None:
        with connect(cluster.bootstrap) as connection:
            connection.send(ApiKey.PRODUCE, _PRODUCE_VERSION, body)
            connection.receive()

    return ask


def _long_polls(cluster: Cluster, connections: int = 200, pipelined: int = 5) -> None:
    """All of them wait for one record."""
    topic = cluster.topic("polled")
    request = fetch_wire.FetchRequest(_TIMEOUT_MS, 1, 1_000_000, [_fetched(topic, 0)])
    body = fetch_wire.encode_request(request, _BY_NAME)
    builder = RecordBatchBuilder()
    builder.append(_NOW_MS, None, b"v")
    records: dict[TopicPartition, list[Chunk]] = {TopicPartition(topic, 0): [builder.build()]}
    with ExitStack() as stack:
        readers = [stack.enter_context(connect(cluster.bootstrap)) for _ in range(connections)]
        for reader in readers:
            for _ in range(pipelined):
                reader.send(ApiKey.FETCH, _BY_NAME, body)
        SystemClock().sleep(_SETTLE_S)
        with connect(cluster.bootstrap) as writer:
            written = produce_wire.encode_request(1, _TIMEOUT_MS, records, _PRODUCE_VERSION)
            writer.send(ApiKey.PRODUCE, _PRODUCE_VERSION, written)
            writer.receive()
        for reader in readers:
            for _ in range(pipelined):
                reader.receive()


def _members(count: int) -> Case:
    """All join, each with all names, and do what they are told until there is nothing to do; then all leave."""
    heartbeat = messages.ConsumerGroupHeartbeatRequest

    def ask(cluster: Cluster) -> None:
        names = [cluster.topic("wide"), *(f"nothing-{n}" for n in range(NAMES - 1))]
        epochs, owned = dict.fromkeys(range(count), 0), dict[int, Any]()
        with connect(cluster.bootstrap) as connection:
            for turn in range(4):
                for number, epoch in epochs.items():
                    message = heartbeat(
                        group_id=cluster.topic("members"),
                        member_id=f"member-{number}",
                        member_epoch=-1 if turn == 3 else epoch,
                        rebalance_timeout_ms=-1 if epoch else _TIMEOUT_MS,
                        subscribed_topic_names=None if epoch else names,
                        topic_partitions=owned.get(number, []),
                    )
                    connection.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, [encode(message, 1)])
                    answer: Any = decode_response(*connection.receive())
                    epochs[number] = answer.member_epoch
                    if answer.assignment is not None:
                        owned[number] = [
                            heartbeat.TopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
                            for each in answer.assignment.topic_partitions
                        ]

    return ask


def _commit_what_exists(cluster: Cluster) -> None:
    topic = messages.OffsetCommitRequest.OffsetCommitRequestTopic
    asked = [
        topic.OffsetCommitRequestPartition(
            partition_index=n, committed_offset=1, committed_leader_epoch=-1, committed_metadata=""
        )
        for n in range(PARTITIONS)
    ]
    message = messages.OffsetCommitRequest(
        group_id=cluster.topic("committed"),
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[topic(name=cluster.topic("wide"), partitions=asked)],
    )
    _request(ApiKey.OFFSET_COMMIT, message, 8)(cluster)


def _delete_what_was_committed(cluster: Cluster) -> None:
    message = messages.DeleteGroupsRequest(groups_names=[cluster.topic("committed")])
    _request(ApiKey.DELETE_GROUPS, message, 2)(cluster)


def _groups_of_what_exists() -> Iterator[tuple[str, Case]]:
    yield f"ConsumerGroupHeartbeat, {MEMBERS} members of {NAMES} names", _members(MEMBERS)
    yield f"OffsetCommit, {PARTITIONS} partitions that exist", _commit_what_exists
    yield f"DeleteGroups, a group with {PARTITIONS} offsets", _delete_what_was_committed


def _cases() -> Iterator[tuple[str, Case]]:
    yield "nothing", lambda _: SystemClock().sleep(_SETTLE_S)
    yield f"CreateTopics, {PARTITIONS} partitions", _create_topics
    yield "CreatePartitions, 200 more", _create_partitions
    yield "Metadata of everything, from 200 clients 50 times", _metadata_flood
    yield "DescribeConfigs", _describe_configs
    yield "DescribeLogDirs", _describe_log_dirs()
    yield "DescribeCompaction", _describe_compaction(None)
    yield "DescribeRetention", _describe_retention()
    yield f"DescribeLag, {MANY} offsets", _describe_lag()
    yield "DeleteRecords, 100 partitions", _delete_records
    yield from _groups_of_what_exists()
    yield "DeleteTopics, 700 partitions", _delete_topics
    yield f"ListOffsets, {MANY} partitions", _list_offsets(MANY)
    yield "ListOffsets of 20 MB", _list_offsets(1_200_000)
    yield f"DescribeCompaction, {MANY} names", _describe_compaction([f"nothing-{n}" for n in range(MANY)])
    yield f"CompactPartitions, {MANY} partitions", _compact_partitions()
    yield f"BeginCompaction, {MANY} partitions", _begin_compaction()
    yield f"EraseRecords, {MANY} partitions, {MOST_BYTES >> 20} MB of keys", _erase_records()
    yield f"AdoptSegments, {MANY} segments", _adopt_segments()
    yield f"Metadata, {MANY} names", _metadata_by_name()
    yield f"OffsetCommit, {MANY} partitions", _offset_commit()
    yield f"OffsetFetch, {MANY} partitions", _offset_fetch()
    yield f"OffsetForLeaderEpoch, {MANY} partitions", _offset_for_leader_epoch()
    yield f"DescribeGroups, {MANY} groups", _describe_groups()
    yield f"DeleteGroups, {MANY} groups", _delete_groups()
    yield f"FindCoordinator, {MANY} groups", _find_coordinator()
    yield "FindCoordinator, 100 groups, from 200 clients 10 times", _find_coordinator_flood
    yield "FindCoordinator, 1 and 50 groups by turns, from 300 clients", _alternate
    yield f"DescribeProducers, {MANY} partitions", _describe_producers()
    yield f"AddPartitionsToTxn, {MANY} partitions", _add_partitions_to_txn()
    yield f"AddPartitionsToTxn, {MANY // 3} transactions", _verify_partitions_of_txns()
    yield f"WriteTxnMarkers, {MANY // 3} of one partition", _write_txn_markers
    yield f"OffsetDelete, {MANY} partitions", _offset_delete()
    yield f"GetReplicaLogInfo, {MANY} partitions", _replica_log_info
    yield f"AlterPartition, {MANY} partitions", _alter_partition
    yield f"AlterPartitionReassignments, {MANY // 2} topics", _alter_reassignments()
    yield f"AlterReplicaLogDirs, {MANY} partitions", _alter_replica_log_dirs()
    yield f"AlterConfigs, {MANY} resources", _alter_configs()
    yield f"AlterConfigs, {MANY} settings of a topic", _alter_one_config()
    yield f"AlterUserScramCredentials, {MANY} of a user", _alter_one_user()
    yield f"AlterUserScramCredentials, {MANY} users", _alter_users()
    yield f"DescribeUserScramCredentials, {MANY} names", _describe_users()
    yield "Produce, a bomb into compression.type=gzip", _bomb
    yield "ListOffsets by time of a bomb", _list_offsets_of_a_bomb
    yield "Fetch, 100 MB that the page cache does not hold", _cold_fetch
    yield f"Fetch, {MANY} partitions", _fetch([_fetched("stalls", n) for n in range(MANY)])
    yield f"Fetch, one partition {MANY} times", _fetch([_fetched("stalls", 0)] * MANY)
    yield "Fetch, nothing new in the largest session", _fetch_in_session
    yield "Fetch, 1000 long polls of a partition that is written to", _long_polls
    yield f"Produce, {MANY} partitions", _produce(MANY)


def run(rounds: int = ROUNDS, say: Callable[[str], None] = lambda _: None) -> list[dict[str, Any]]:
    """A row a worst case: (measurement, longest, p99, longests), milliseconds; the medians of the rounds."""
    with TemporaryDirectory(prefix="sparklog-bench-") as scratch, our_broker(Path(scratch)) as peer:
        return measure(peer, Path(scratch), rounds, say)


def measure(peer: Peer, directory: Path, rounds: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Every case on a broker that runs already, its log directories below ``directory``."""
    clock, samples = SystemClock(), dict[str, list[dict[str, float]]]()
    for number in range(rounds):
        cluster = Cluster(peer.bootstrap, directory, number, peer.zookeeper)
        cluster.create("searched", 1)
        cluster.create("gzip", 1, **{"compression.type": "gzip", "max.message.bytes": "100000000"})
        cluster.create("cold", 1, **{"max.message.bytes": "10000000"})
        cluster.create("polled", 1)
        for name, case in _cases():
            samples.setdefault(name, []).append(_longest_wait(cluster, case, clock))
            say(f"stalls: round {number + 1} of {rounds}, {name}: {samples[name][-1]['longest']:.1f} ms")
    return [
        {
            "measurement": name,
            "longest": sorted(each["longest"] for each in found)[len(found) // 2],
            "p99": sorted(each["p99"] for each in found)[len(found) // 2],
            "longests": [each["longest"] for each in found],
        }
        for name, found in samples.items()
    ]


def _longest_wait(cluster: Cluster, case: Case, clock: Clock) -> dict[str, float]:
    host, _, port = cluster.bootstrap.rpartition(":")
    command = [sys.executable, "-m", "benchmarks.pinger", host, port]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as pinger:
        assert pinger.stdout is not None
        pinger.stdout.readline()
        case(cluster)
        clock.sleep(_SETTLE_S)  # what the case leaves to be done afterwards counts too
        found, _ = pinger.communicate("")
    waits: dict[str, float] = json.loads(found)
    return waits
