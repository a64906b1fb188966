"""Fixtures of the client's tests: a cluster of ours, and under the marker ``peer`` a real Kafka broker besides."""

import pytest

from sparklog.client.admin import AdminClient, NewTopic
from sparklog.client.config import ClientConfig
from sparklog.client.metadata import ClusterMetadata
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
    """Creates this test's topic and returns its name."""

    def make(partitions=1, suffix="", **configs):
        settings = {name.replace("_", "."): str(value) for name, value in configs.items()}
        AdminClient(metadata).create_topics([NewTopic(topic + suffix, partitions, 1, settings)])
        return topic + suffix

    return make
