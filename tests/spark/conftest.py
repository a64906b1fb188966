"""Fixtures of the Spark tests: a cluster of ours, and under the marker ``peer`` a real Kafka broker besides."""

import pytest

from sparklog.client.admin.admin import AdminClient, NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.testing.cluster import SecureClusterHarness
from sparklog.testing.kafka import KafkaBroker
from sparklog.testing.librdkafka import librdkafka_settings


@pytest.fixture(scope="session")
def kafka(zookeeper, tmp_path_factory):
    """A real Kafka broker."""
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), f"{zookeeper.connect_string}/spark") as broker:
        yield broker


@pytest.fixture(scope="session", params=["sparklog", pytest.param("kafka", marks=pytest.mark.peer)])
def servers(request):
    """``host:port`` of the cluster that is read and written."""
    return request.getfixturevalue("cluster" if request.param == "sparklog" else "kafka").bootstrap_servers


@pytest.fixture(scope="session")
def secure_cluster(tmp_path_factory):
    """One that lets nobody in without a password, as ``sparklog up --secure`` makes it."""
    with SecureClusterHarness(tmp_path_factory.mktemp("secure")) as harness:
        yield harness


@pytest.fixture
def client(servers):
    """What a client of the cluster is told. A module whose tests are of a secure one too has ``any_client`` here."""
    return {"bootstrap.servers": servers}


@pytest.fixture(
    params=[
        "sparklog",
        pytest.param("secure", marks=pytest.mark.slow),
        pytest.param("kafka", marks=pytest.mark.peer),
    ]
)
def any_client(request):
    """The same of each cluster that there is."""
    if request.param == "secure":
        return request.getfixturevalue("secure_cluster").client("spark")
    cluster = request.getfixturevalue("cluster" if request.param == "sparklog" else "kafka")
    return {"bootstrap.servers": cluster.bootstrap_servers}


@pytest.fixture
def administrator(request, client):
    """The same of one that may do everything."""
    is_secure = "security.protocol" in client
    return request.getfixturevalue("secure_cluster").client("admin") if is_secure else client


@pytest.fixture
def client_options(client):
    """The options of the source and the sink that say the same as ``client``."""
    return {f"kafka.{name}": value for name, value in client.items()}


@pytest.fixture
def metadata(client):
    """A way to the cluster."""
    with ClusterMetadata(ClientConfig.from_properties(client)) as cluster:
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
def produce(client):
    """Produces with librdkafka: ``produce(topic, dict(key=, value=, headers=, timestamp=, partition=), ...)``.

    The records of a call that go to one partition are one batch, as long as they fit in one: only ``flush`` sends, and
    only what waits for nothing else. (Records that wait for their topic's metadata join their partition one by one.)
    """
    from confluent_kafka import Producer

    waiting = {"linger.ms": 900_000, "message.timeout.ms": 900_001}
    producer = Producer({**librdkafka_settings(client), "partitioner": "murmur2_random", "log_level": 0} | waiting)

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
def read(spark, client_options):
    """``read(subscribe=topic, ...)``: a DataFrame of the cluster."""

    def load(schema=None, **more):
        reader = spark.read.format("sparklog").options(**client_options).options(**more)
        return (reader.schema(schema) if schema else reader).load()

    return load


@pytest.fixture
def write(client_options):
    """``write(frame, topic=..., ...)``: append to the cluster."""

    def save(frame, mode="append", **more):
        writer = frame.write.format("sparklog").options(**client_options).options(**more)
        writer.mode(mode).save()

    return save
