"""Kafka's AclCommand against our broker, and against the ZooKeeper that it follows."""

import queue

import pytest

from sparklog.client import Admin
from sparklog.client.admin.admin import AclBinding, AclEntry, AclFilter, Operation, ResourcePattern, ResourceType
from sparklog.config.broker import ACL_AUTHORIZER
from sparklog.security.acl import znode
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import run_kafka_tool
from sparklog.zk.client import ZkClient

pytestmark = [pytest.mark.peer, pytest.mark.slow]
TOOL = "kafka.admin.AclCommand"
TOPIC = ResourcePattern(ResourceType.TOPIC, "clicks")
CONSUMER = ("--allow-principal", "User:alice", "--consumer", "--topic", "clicks", "--group", "readers")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    settings = {"authorizer.class.name": ACL_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with ClusterHarness(tmp_path_factory.mktemp("guarded"), settings=settings) as harness:
        yield harness


@pytest.fixture
def administrator(guarded):
    with Admin(bootstrap_servers=guarded.bootstrap_servers) as found:
        yield found
        found.delete_acls([AclFilter()])


def entries(administrator):
    return {(each.pattern.name, each.entry.principal, each.entry.operation) for each in administrator.describe_acls()}


CONSUMERS = {
    ("clicks", "User:alice", Operation.READ),
    ("clicks", "User:alice", Operation.DESCRIBE),
    ("readers", "User:alice", Operation.READ),
}


def test_its_command_adds_lists_and_removes_by_our_broker(guarded, administrator):
    def tool(*arguments):
        return run_kafka_tool(TOOL, "--bootstrap-server", guarded.bootstrap_servers, *arguments)

    tool("--add", *CONSUMER)
    assert entries(administrator) == CONSUMERS
    listed = tool("--list", "--topic", "clicks")
    assert "principal=User:alice, host=*, operation=READ, permissionType=ALLOW" in listed
    tool("--remove", "--force", *CONSUMER)
    assert entries(administrator) == set()


def test_what_its_command_writes_to_zookeeper_is_in_force_here_and_ours_is_its_own(guarded, administrator):
    def tool(*arguments):
        return run_kafka_tool(
            TOOL, "--authorizer-properties", f"zookeeper.connect={guarded.zookeeper_connect}", *arguments
        )

    tool("--add", "--allow-principal", "User:bob", "--operation", "Read", "--topic", "clicks")
    eventually(lambda: entries(administrator) == {("clicks", "User:bob", Operation.READ)})
    zk = ZkClient(guarded.zookeeper_connect, session_timeout=10.0, on_session=queue.Queue().put)
    try:
        theirs = zk.data(znode.list_path(TOPIC))
        administrator.delete_acls([AclFilter()])
        administrator.create_acls([AclBinding(TOPIC, AclEntry("User:bob", "*", Operation.READ))])
        assert zk.data(znode.list_path(TOPIC)) == theirs
    finally:
        zk.close()
    assert "principal=User:bob, host=*, operation=READ, permissionType=ALLOW" in tool("--list", "--topic", "clicks")
    tool("--remove", "--force", "--topic", "clicks")
    eventually(lambda: entries(administrator) == set())
