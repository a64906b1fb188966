"""Fixtures of the client's tests: a cluster of ours, and under the marker ``peer`` a real Kafka broker besides."""

import contextlib

import pytest

from sparklog.client.admin.admin import AdminClient, NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.batch_producer import BatchProducer
from sparklog.record.builder import RecordBatchBuilder
from sparklog.structs import TopicPartition
from sparklog.testing.kafka import KafkaBroker


@pytest.fixture(scope="session")
def kafka(zookeeper, tmp_path_factory):
    """A real Kafka broker."""
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), f"{zookeeper.connect_string}/client") as broker:
        yield broker


@pytest.fixture(scope="session", params=["sparklog", pytest.param("kafka", marks=pytest.mark.peer)])
def servers(request):
    """``host:port`` of the cluster that is asked."""
    return request.getfixturevalue("cluster" if request.param == "sparklog" else "kafka").bootstrap_servers


@pytest.fixture
def metadata(servers):
    """A way to the cluster."""
    with ClusterMetadata(ClientConfig(bootstrap_servers=servers)) as cluster:
        yield cluster


@pytest.fixture
def make_topic(metadata, topic):
    """Creates this test's topic and returns its name.

    Old records stay: those of ``put`` are of 2023, and a broker looks for such soon after its start.
    """

    def make(partitions=1, suffix="", **configs):
        settings = {name.replace("_", "."): str(value) for name, value in {"retention_ms": -1, **configs}.items()}
        AdminClient(metadata).create_topics([NewTopic(topic + suffix, partitions, 1, settings)])
        return topic + suffix

    return make


@pytest.fixture
def put(metadata):
    """Writes values to a partition, as one batch."""

    def write(tp, *values, first_timestamp=1_700_000_000_000):
        builder = RecordBatchBuilder()
        for number, value in enumerate(values):
            builder.append(first_timestamp + number, b"k", value, [("h", b"1")])
        with BatchProducer(metadata) as producer:
            producer.send(tp, builder.build())

    return write


@pytest.fixture
def consumer(servers, topic):
    """Makes consumers of this test's group, from the beginning on; all are closed in the end."""
    with contextlib.ExitStack() as stack:

        def make(**settings):
            given = {"group_id": topic, "auto_offset_reset": "earliest", "heartbeat_interval_ms": 500, **settings}
            return stack.enter_context(Consumer({"bootstrap.servers": servers}, **given))

        yield make


@pytest.fixture
def partitions(make_topic):
    def make(count=1, **configs):
        topic = make_topic(partitions=count, **configs)
        return [TopicPartition(topic, number) for number in range(count)]

    return make
