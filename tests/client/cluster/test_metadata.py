import asyncio
import socket
from typing import Any
from uuid import UUID

import pytest

from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import EARLIEST, LATEST, list_offsets
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.errors import ApiError, ConnectionFailed, ErrorCode, RemoteProtocolError
from sparklog.local.ports import free_port
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ListGroupsRequest, MetadataResponse
from sparklog.record.builder import RecordBatchBuilder
from sparklog.structs import Endpoint, TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.scripted import HangUp, ScriptedCluster, no_kafka

_T0 = TopicPartition("t", 0)


def test_every_broker_tried_is_named_when_none_answers():
    ports = free_port(), free_port()
    config = ClientConfig(bootstrap_servers=",".join(f"127.0.0.1:{port}" for port in ports), api_timeout_ms=1)
    with ClusterMetadata(config) as cluster, pytest.raises(ConnectionFailed) as caught:
        cluster.fetch()
    assert all(f"127.0.0.1:{port}" in str(caught.value) for port in ports)


def test_a_listener_that_is_no_broker_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        config = ClientConfig(bootstrap_servers=f"127.0.0.1:{port}", api_timeout_ms=1, request_timeout_ms=50)
        with ClusterMetadata(config) as cluster, pytest.raises(ConnectionFailed, match=str(port)):
            cluster.fetch()


def test_a_listener_that_is_no_broker_is_passed_over():
    async def test():
        async with no_kafka() as other, ScriptedCluster() as good:
            good.topics["t"] = [0]
            config = ClientConfig(bootstrap_servers=f"{other},{good.bootstrap_servers}")
            with ClusterMetadata(config) as cluster:
                assert set((await asyncio.to_thread(cluster.fetch)).topics) == {"t"}
            with (
                ClusterMetadata(ClientConfig(bootstrap_servers=str(other))) as cluster,
                pytest.raises(RemoteProtocolError, match=f"tried {other}.*Kafka listener"),
            ):
                await asyncio.to_thread(cluster.fetch)

    asyncio.run(test())


def test_a_broker_whose_answer_is_malformed_is_passed_over():
    async def test():
        async with ScriptedCluster(2) as cluster:
            first, _ = cluster.brokers
            first.on[ApiKey.METADATA] = lambda asked: [b"\0"]
            with ClusterMetadata(ClientConfig(bootstrap_servers=cluster.bootstrap_servers)) as metadata:
                assert len((await asyncio.to_thread(metadata.fetch)).brokers) == 2
            cluster.brokers[1].on[ApiKey.METADATA] = first.on[ApiKey.METADATA]
            with (
                ClusterMetadata(ClientConfig(bootstrap_servers=str(first.endpoint))) as metadata,
                pytest.raises(RemoteProtocolError, match=f"tried {first.endpoint}.*malformed Metadata"),
            ):
                await asyncio.to_thread(metadata.fetch)

    asyncio.run(test())


def test_a_broker_that_failed_is_asked_behind_the_others():
    async def test():
        async with ScriptedCluster(2) as cluster:
            first, second = cluster.brokers
            first.on[ApiKey.LIST_GROUPS] = _hang_up
            with ClusterMetadata(ClientConfig(bootstrap_servers=cluster.bootstrap_servers)) as metadata:
                with pytest.raises(ConnectionFailed):
                    await asyncio.to_thread(metadata.request, first.endpoint, ApiKey.LIST_GROUPS, _groups)
                await asyncio.to_thread(metadata.fetch)
                assert [asked.broker for asked in cluster.asked(ApiKey.METADATA)] == [second.broker_id]

    def _hang_up(_asked):
        raise HangUp

    def _groups(version):
        return ListGroupsRequest(version=version)

    asyncio.run(test())


def test_an_answer_that_leaves_the_topic_out():
    async def test():
        clock = ManualClock()
        async with ScriptedCluster() as cluster:

            def empty(asked):
                clock.advance(2)
                message = cluster._metadata(asked)
                message.topics = []
                return message

            cluster.on[ApiKey.METADATA] = empty
            config = ClientConfig(bootstrap_servers=cluster.bootstrap_servers)
            with ClusterMetadata(config, clock) as metadata, pytest.raises(ApiError, match="leaves topic 't' out"):
                await asyncio.to_thread(metadata.describe, ["t"])

    asyncio.run(test())


class _Telling:
    """A connection to a broker that answers Metadata requests as it is told: (leader, leader epoch) of t-0."""

    endpoint = Endpoint("one", 1)
    closed = False

    def __init__(self, *answers):
        self.answers = list(answers)

    def request(self, api, build):
        leader, epoch = self.answers.pop(0)
        partition = MetadataResponse.MetadataResponseTopic.MetadataResponsePartition(
            error_code=0,
            partition_index=0,
            leader_id=leader,
            leader_epoch=epoch,
            replica_nodes=[1, 2],
            isr_nodes=[1, 2],
            offline_replicas=[],
        )
        return MetadataResponse(
            brokers=[
                MetadataResponse.MetadataResponseBroker(node_id=number, host=host, port=number, rack=None)
                for number, host in ((1, "one"), (2, "two"))
            ],
            cluster_id="c",
            controller_id=1,
            topics=[
                MetadataResponse.MetadataResponseTopic(
                    error_code=0, name="t", topic_id=UUID(int=7), is_internal=False, partitions=[partition]
                )
            ],
        )

    def close(self):
        pass


def _told(*answers):
    cluster = ClusterMetadata(ClientConfig(bootstrap_servers="one:1"), ManualClock())
    connection: Any = _Telling(*answers)
    cluster.pool.take = lambda endpoint: connection
    return cluster


def test_an_older_leader_epoch_does_not_replace_a_newer_one():
    tp = TopicPartition("t", 0)
    with _told((2, 6), (1, 5), (1, 7)) as cluster:
        assert cluster.leader(tp)[0] == Endpoint("two", 2)
        cluster.invalidate("t")
        endpoint, topic = cluster.leader(tp)
        assert (endpoint, topic.partition(0).leader_epoch) == (Endpoint("two", 2), 6)
        assert cluster.known_leader(tp) == Endpoint("two", 2)
        cluster.fetch(["t"])
        assert cluster.by_leader([tp]) == {Endpoint("one", 1): [tp]}


def test_what_was_invalidated_is_not_used():
    tp = TopicPartition("t", 0)
    with _told((2, 6), (1, 7)) as cluster:
        assert cluster.known_leader(tp) is None
        cluster.leader(tp)
        cluster.invalidate("t")
        assert cluster.known_leader(tp) is None
        assert cluster.led([tp]) == ({Endpoint("one", 1): [tp]}, [])


def test_a_partition_without_a_leader_is_asked_about_again():
    tp = TopicPartition("t", 0)
    with _told((-1, 6), (3, 7), (1, 8)) as cluster:
        for _ in range(2):
            with pytest.raises(ApiError, match="partition t-0 has no leader"):
                cluster.leader(tp)
        assert cluster.leader(tp)[0] == Endpoint("one", 1)


@pytest.mark.integration
def test_a_dead_bootstrap_broker_is_passed_over(servers):
    with ClusterMetadata(ClientConfig(bootstrap_servers=f"127.0.0.1:{free_port()},{servers}")) as cluster:
        info = cluster.fetch()
    host, port = servers.split(":")
    assert Endpoint(host, int(port)) in info.brokers.values()
    assert info.controller in info.brokers


@pytest.mark.integration
def test_topics_partitions_leaders_and_ids(metadata, make_topic, servers):
    topic = make_topic(partitions=3)
    info = metadata.describe([topic])[topic]
    assert [each.partition for each in info.partitions] == [0, 1, 2]
    assert info.topic_id.int != 0
    endpoint, _ = metadata.leader(TopicPartition(topic, 2))
    assert str(endpoint) == servers


@pytest.mark.integration
def test_an_unknown_topic_is_named(metadata, topic):
    with pytest.raises(ApiError, match=topic) as caught:
        metadata.describe([topic])
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.integration
def test_asking_creates_no_topic(metadata, topic):
    with pytest.raises(ApiError):
        metadata.topic(topic)
    assert topic not in metadata.fetch().topics


@pytest.mark.integration
def test_offsets_by_edge_and_by_time(metadata, make_topic):
    topic = make_topic(partitions=2)
    full, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    builder = RecordBatchBuilder()
    for number in range(10):
        builder.append(1_700_000_000_000 + 100 * number, None, b"x")
    with BatchProducer(metadata) as producer:
        producer.send(full, builder.build())

    def ask(timestamp):
        return list_offsets(metadata, {full: timestamp, empty: timestamp})

    assert (ask(EARLIEST)[full].offset, ask(LATEST)[full].offset) == (0, 10)
    assert (ask(EARLIEST)[empty].offset, ask(LATEST)[empty].offset) == (0, 0)
    assert ask(1_700_000_000_250) == {full: (3, 1_700_000_000_300, 0), empty: None}
    assert ask(1_700_000_000_901)[full] is None


def test_a_call_ends_in_its_time_though_a_broker_is_silent():
    async def test():
        async with ScriptedCluster(2) as cluster:

            async def never(_asked):
                await asyncio.Event().wait()

            cluster.on[ApiKey.METADATA] = never
            config = ClientConfig(
                bootstrap_servers=cluster.bootstrap_servers, api_timeout_ms=50, request_timeout_ms=100_000
            )
            with ClusterMetadata(config) as metadata:
                for ask in (metadata.fetch, lambda: metadata.describe(["t"]), lambda: list_offsets(metadata, {_T0: 0})):
                    async with asyncio.timeout(60):
                        with pytest.raises(ConnectionFailed, match="no broker can be reached"):
                            await asyncio.to_thread(ask)

    asyncio.run(test())


def test_the_shorter_of_two_limits_holds():
    pool = ClusterMetadata(ClientConfig(bootstrap_servers="one:1")).pool
    with pool.within(lambda: 5.0):
        with pool.within(lambda: 7.0):
            assert pool._limit is not None
            assert pool._limit() == 5.0
        with pool.within(lambda: 3.0):
            assert pool._limit() == 3.0
    assert pool._limit is None


class Connection:
    """One that a thread has borrowed."""

    endpoint = Endpoint("one", 1)
    closed = False

    def close(self):
        self.closed = True


def test_a_connection_that_comes_back_when_the_pool_is_closed_is_closed_too():
    pool = ClusterMetadata(ClientConfig(bootstrap_servers="one:1")).pool
    idle, lent = Connection(), Connection()
    pool.give_back(idle)
    assert not idle.closed
    pool.close()
    pool.give_back(lent)
    assert idle.closed
    assert lent.closed
