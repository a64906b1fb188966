"""Kafka's own tools on a cluster as ``sparklog up --secure`` makes it, with the files that it gives to its users."""

import pytest

from sparklog.errors import SparklogError
from sparklog.testing.cluster import SecureClusterHarness
from sparklog.testing.kafka import run_kafka_tool

pytestmark = [pytest.mark.peer, pytest.mark.slow]
TOPICS, ACLS = "org.apache.kafka.tools.TopicCommand", "kafka.admin.AclCommand"


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    with SecureClusterHarness(tmp_path_factory.mktemp("secure"), brokers=3) as cluster:
        yield cluster


def tool(cluster, program, user, *arguments):
    connected = ("--bootstrap-server", cluster.bootstrap_servers, "--command-config", str(cluster.client_file(user)))
    return run_kafka_tool(program, *connected, *arguments)


def test_the_administrator_makes_a_topic_and_spark_sees_it(secure):
    tool(secure, TOPICS, "admin", "--create", "--topic", "t", "--partitions", "3", "--replication-factor", "3")
    described = tool(secure, TOPICS, "spark", "--describe", "--topic", "t")
    assert described.count("Isr: ") == 3
    with pytest.raises(SparklogError, match="the topic may not be deleted"):
        tool(secure, TOPICS, "spark", "--delete", "--topic", "t")


def test_the_administrator_lists_the_rights_of_spark(secure):
    listed = tool(secure, ACLS, "admin", "--list", "--principal", "User:spark")
    assert "principal=User:spark, host=*, operation=WRITE, permissionType=ALLOW" in listed
    with pytest.raises(SparklogError, match="ClusterAuthorizationException"):
        tool(secure, ACLS, "spark", "--list")
