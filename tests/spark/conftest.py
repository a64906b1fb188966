"""Fixtures of the Spark tests: a cluster of ours, and under the marker ``peer`` a real Kafka broker besides."""

import pytest

from sparklog.client.admin.admin import AdminClient, NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.testing.kafka import KafkaBroker


@pytest.fixture(scope="session")
def kafka(zookeeper, tmp_path_factory):
    """A real Kafka broker."""
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), f"{zookeeper.connect_string}/spark") as broker:
        yield broker


@pytest.fixture(scope="session", params=["sparklog", pytest.param("kafka", marks=pytest.mark.peer)])
def servers(request):
    """``host:port`` of the cluster that is read and written."""
    return request.getfixturevalue("cluster" if request.param == "sparklog" else "kafka").bootstrap_servers


@pytest.fixture
def metadata(servers):
    """A way to the cluster."""
    with ClusterMetadata(ClientConfig(bootstrap_servers=servers)) as cluster:
        yield cluster


@pytest.fixture
def make_topic(metadata, topic):
    """Creates a topic of this test and returns its name; its records may be years old."""

    def make(partitions=1, suffix="", **configs):
        settings = {"retention.ms": "-1"} | {name.replace("_", "."): str(value) for name, value in configs.items()}
        AdminClient(metadata).create_topics([NewTopic(topic + suffix, partitions, 1, settings)])
        return topic + suffix

    return make


@pytest.fixture
def produce(servers):
    """Produces with librdkafka: ``produce(topic, dict(key=, value=, headers=, timestamp=, partition=), ...)``.

    The records of a call that go to one partition are one batch, as long as they fit in one: only ``flush`` sends, and
    only what waits for nothing else. (Records that wait for their topic's metadata join their partition one by one.)
    """
    from confluent_kafka import Producer

    waiting = {"linger.ms": 900_000, "message.timeout.ms": 900_001}
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random", "log_level": 0} | waiting)

    def send(topic, *records):
        failures = []
        producer.list_topics(topic, timeout=30)
        for record in records:
            producer.produce(topic, on_delivery=lambda error, _: failures.append(error) if error else None, **record)
            producer.poll(0)
        assert producer.flush(30) == 0
        assert not failures

    return send


@pytest.fixture
def read(spark, servers):
    """``read(subscribe=topic, ...)``: a DataFrame of the cluster."""

    def load(schema=None, **options):
        reader = spark.read.format("sparklog").option("kafka.bootstrap.servers", servers).options(**options)
        return (reader.schema(schema) if schema else reader).load()

    return load


@pytest.fixture
def write(servers):
    """``write(frame, topic=..., ...)``: append to the cluster."""

    def save(frame, mode="append", **options):
        writer = frame.write.format("sparklog").option("kafka.bootstrap.servers", servers).options(**options)
        writer.mode(mode).save()

    return save
