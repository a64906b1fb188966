"""Access control lists of a cluster of two: changed by either broker, or in ZooKeeper, and in force on both."""

import queue

import pytest
from integration import wire

from sparklog.client import Admin
from sparklog.client.admin.admin import (
    ALL,
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from sparklog.config.broker import ACL_AUTHORIZER
from sparklog.errors import ApiError, ConnectionFailed, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually
from sparklog.zk.acls import AclStore
from sparklog.zk.client import ZkClient

pytestmark = pytest.mark.integration

SETTINGS = {"authorizer.class.name": ACL_AUTHORIZER, "super.users": "User:ANONYMOUS"}
TOPIC = ResourcePattern(ResourceType.TOPIC, "t")
PREFIXED = ResourcePattern(ResourceType.GROUP, "g-", PatternType.PREFIXED)
READ = AclEntry("User:alice", "*", Operation.READ)
DENIED = AclEntry("User:*", "10.0.0.1", ALL, Permission.DENY)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    with ClusterHarness(tmp_path_factory.mktemp("guarded"), brokers=2, settings=SETTINGS) as harness:
        yield harness


@pytest.fixture
def administrator(guarded):
    with Admin(bootstrap_servers=guarded.bootstrap_servers) as found:
        yield found
        eventually(lambda: found.delete_acls([AclFilter()]) == [] == entries_on(guarded, 0) == entries_on(guarded, 1))


def entries_on(guarded, broker_id):
    """What is in force on one broker: names and principals."""
    asked = DescribeAclsRequest(
        **dict.fromkeys(("resource_type_filter", "pattern_type_filter", "operation", "permission_type"), 1),
        **dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter")),
    )
    with wire.connect(guarded.broker(broker_id).address) as connection:
        answer = wire.ask(connection, ApiKey.DESCRIBE_ACLS, 3, asked)
    return sorted((each.resource_name, acl.principal) for each in answer.resources for acl in each.acls)


def on_both(guarded, *expected):
    for broker_id in (0, 1):
        eventually(lambda broker_id=broker_id: entries_on(guarded, broker_id) == sorted(expected))


def test_entries_come_and_go_on_both_brokers(guarded, administrator):
    made = [AclBinding(TOPIC, READ), AclBinding(TOPIC, DENIED), AclBinding(PREFIXED, READ)]
    administrator.create_acls(made)
    administrator.create_acls(made[:1])
    on_both(guarded, ("t", "User:alice"), ("t", "User:*"), ("g-", "User:alice"))
    assert administrator.describe_acls() == sorted(made)
    concerning = AclFilter(ResourceType.GROUP, "g-1", PatternType.MATCH)
    assert administrator.describe_acls(concerning) == [AclBinding(PREFIXED, READ)]
    gone = administrator.delete_acls([AclFilter.of(made[0]), AclFilter(name="g-", kind=ResourceType.GROUP)])
    assert gone == sorted([made[0], made[2]])
    on_both(guarded, ("t", "User:*"))


def test_a_change_is_in_force_on_the_broker_that_answers(guarded):
    creation = CreateAclsRequest.AclCreation(
        resource_type=2, resource_name="t", resource_pattern_type=3, principal="User:alice", host="*", operation=3,
        permission_type=3,
    )  # fmt: skip
    gone = DeleteAclsRequest.DeleteAclsFilter(
        **{"resource_type_filter": 2, "resource_name_filter": "t", "pattern_type_filter": 3, "operation": 1},
        **{"principal_filter": None, "host_filter": None, "permission_type": 1},
    )
    for broker_id in (0, 1):
        with wire.connect(guarded.broker(broker_id).address) as connection:
            made = wire.ask(connection, ApiKey.CREATE_ACLS, 3, CreateAclsRequest(creations=[creation]))
            assert [each.error_code for each in made.results] == [0]
            assert entries_on(guarded, broker_id) == [("t", "User:alice")]
            deleted = wire.ask(connection, ApiKey.DELETE_ACLS, 3, DeleteAclsRequest(filters=[gone]))
            assert [len(each.matching_acls) for each in deleted.filter_results] == [1]
            assert entries_on(guarded, broker_id) == []


def test_what_is_refused_is_named(guarded, administrator):
    bad = AclBinding(ResourcePattern(ResourceType.CLUSTER, "another"), READ)
    with pytest.raises(ApiError, match=r"cannot add CLUSTER:LITERAL:another.*kafka-cluster") as refused:
        administrator.create_acls([AclBinding(TOPIC, READ), bad])
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    on_both(guarded, ("t", "User:alice"))


def test_what_is_written_to_zookeeper_is_in_force_on_every_broker_and_after_a_restart(guarded, administrator):
    zk = ZkClient(guarded.zookeeper_connect, session_timeout=10.0, on_session=queue.Queue().put)
    try:
        AclStore(zk).change(PREFIXED, frozenset({READ, DENIED}).union)
    finally:
        zk.close()
    on_both(guarded, ("g-", "User:alice"), ("g-", "User:*"))
    guarded.stop_broker(1)
    guarded.start_broker(1)
    assert entries_on(guarded, 1) == entries_on(guarded, 0)


def test_without_an_authorizer_there_are_no_lists(admin):
    for attempt in (
        admin.describe_acls,
        lambda: admin.create_acls([AclBinding(TOPIC, READ)]),
        lambda: admin.delete_acls([AclFilter()]),
    ):
        with pytest.raises(ApiError) as refused:
            attempt()
        assert refused.value.code is ErrorCode.SECURITY_DISABLED


def test_what_a_broker_keeps_is_not_for_other_users(guarded):
    kept = list(guarded.broker(0).spec.data_dir.rglob("*"))
    assert kept
    assert {each for each in kept if each.stat().st_mode & 0o027} == set()


def test_a_log_directory_that_others_may_write_is_not_served(tmp_path, zookeeper):
    (tmp_path / "broker-0").mkdir()
    (tmp_path / "broker-0").chmod(0o770)
    broker = BrokerHarness(tmp_path, f"{zookeeper.connect_string}/open-directory", settings=SETTINGS)
    with pytest.raises(ConnectionFailed, match=r"type: chmod g-w,o= .*broker-0"):
        broker.start()
