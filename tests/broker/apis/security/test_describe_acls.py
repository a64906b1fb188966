"""DescribeAcls: what a filter finds, for who may ask."""

import pytest
from broker.security.acl_lists import ALICE, FakeStore, asked

from sparklog.broker.apis.security import describe_acls
from sparklog.errors import ErrorCode
from sparklog.protocol.messages import DescribeAclsRequest
from sparklog.security.access import CLUSTER, Operation, ResourceType
from sparklog.security.acl.entry import AclEntry, Permission
from sparklog.security.acl.pattern import PatternType, ResourcePattern

TOPIC = ResourcePattern(ResourceType.TOPIC, "t")
PREFIXED = ResourcePattern(ResourceType.TOPIC, "t", PatternType.PREFIXED)
READ = AclEntry("User:alice", "*", Operation.READ)
DENIED = AclEntry("User:bob", "10.0.0.1", Operation.WRITE, Permission.DENY)


@pytest.fixture
def store():
    store = FakeStore()
    store.lists = {TOPIC: frozenset({READ, DENIED}), PREFIXED: frozenset({READ})}
    return store


def filtered(**fields):
    every = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    nothing = dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
    return DescribeAclsRequest(**{**every, **nothing, **fields})


def found(answer):
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, "")
    return {
        (each.resource_name, each.pattern_type): [
            (acl.principal, acl.operation, acl.permission_type) for acl in each.acls
        ]
        for each in answer.resources
    }


def test_all_entries_are_told_list_by_list(store):
    assert found(asked(describe_acls, filtered(), store=store)) == {
        ("t", 3): [("User:alice", 3, 3), ("User:bob", 4, 2)],
        ("t", 4): [("User:alice", 3, 3)],
    }


def test_a_list_in_which_nothing_is_found_is_not_named(store):
    answer = asked(describe_acls, filtered(principal_filter="User:bob"), store=store)
    assert found(answer) == {("t", 3): [("User:bob", 4, 2)]}


def test_the_oldest_version_asks_for_literal_names_alone(store):
    asked_for = filtered(pattern_type_filter=DescribeAclsRequest().pattern_type_filter)
    assert found(asked(describe_acls, asked_for, store=store, version=0)).keys() == {("t", 3)}


@pytest.mark.parametrize("field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"])
def test_a_number_of_a_newer_kafka_finds_nothing_and_an_unknown_one_is_refused(store, field):
    assert found(asked(describe_acls, filtered(**{field: 99}), store=store)) == {}
    answer = asked(describe_acls, filtered(**{field: 0}), store=store)
    assert (answer.error_code, answer.resources) == (ErrorCode.INVALID_REQUEST, [])


def test_who_may_not_describe_the_cluster_is_told_nothing(store):
    answer = asked(describe_acls, filtered(), ALICE, store)
    assert (answer.error_code, answer.resources) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
    store.lists[ResourcePattern(*CLUSTER)] = frozenset({AclEntry("User:alice", "*", Operation.DESCRIBE)})
    assert len(found(asked(describe_acls, filtered(), ALICE, store))) == 3


def test_without_an_authorizer_security_is_disabled():
    answer = asked(describe_acls, filtered())
    assert (answer.error_code, answer.resources) == (ErrorCode.SECURITY_DISABLED, [])
