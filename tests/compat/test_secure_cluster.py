"""Kafka's own tools on a cluster as ``sparklog up --secure`` makes it, with the files that it gives to its users."""

import queue

import pytest
from kazoo.security import OPEN_ACL_UNSAFE, Id, Permissions

from sparklog.config.properties import load_properties
from sparklog.config.zookeeper_security import ZooKeeperSecurity
from sparklog.errors import SparklogError
from sparklog.testing.cluster import SecureClusterHarness
from sparklog.testing.kafka import run_kafka_tool
from sparklog.zk.client import ZkClient

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


def test_its_migration_takes_the_root_for_the_brokers(secure):
    settings = secure.secured.broker_settings
    security, _ = ZooKeeperSecurity.divide(load_properties(settings))
    zk = ZkClient(secure.zookeeper_connect, session_timeout=10.0, on_session=queue.Queue().put, security=security)
    try:
        zk.kazoo.set_acls("/", OPEN_ACL_UNSAFE)
        connected = ("--zookeeper.connect", secure.zookeeper_connect, "--zk-tls-config-file", str(settings))
        run_kafka_tool("kafka.admin.ZkSecurityMigrator", "--zookeeper.acl=secure", *connected)
        owners = {acl.id for acl in zk.kazoo.get_acls("/")[0] if acl.perms == Permissions.ALL}
    finally:
        zk.close()
    assert owners == {Id("x509", "CN=sparklog-broker")}
    tool(secure, TOPICS, "admin", "--create", "--topic", "after", "--partitions", "3", "--replication-factor", "3")
