import socket

import pytest

from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import EARLIEST, LATEST, list_offsets
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.errors import ApiError, ConnectionFailed, ErrorCode
from sparklog.local.ports import free_port
from sparklog.record.builder import RecordBatchBuilder
from sparklog.structs import Endpoint, TopicPartition


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
