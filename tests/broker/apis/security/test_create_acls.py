"""CreateAcls: what may be added is, what may not is refused entry by entry."""

import logging

import pytest
from broker.security.acl_lists import ALICE, FakeStore, asked

from sparklog.broker.apis.security import create_acls
from sparklog.errors import ErrorCode
from sparklog.protocol.messages import CreateAclsRequest
from sparklog.security.access import CLUSTER, Operation, ResourceType
from sparklog.security.acl.entry import ALL, AclEntry, Permission
from sparklog.security.acl.pattern import PatternType, ResourcePattern

TOPIC = ResourcePattern(ResourceType.TOPIC, "t")
READ = AclEntry("User:alice", "*", Operation.READ)


@pytest.fixture
def store():
    return FakeStore()


def creation(**fields):
    good = {"resource_type": 2, "resource_name": "t", "resource_pattern_type": 3}
    entry = {"principal": "User:alice", "host": "*", "operation": 3, "permission_type": 3}
    return CreateAclsRequest.AclCreation(**{**good, **entry, **fields})


def codes(store, *creations, **how):
    answer = asked(create_acls, CreateAclsRequest(creations=list(creations)), store=store, **how)
    for each in answer.results:
        assert (each.error_message == "") is (each.error_code == ErrorCode.NONE), "Kafka tells an empty text, not none"
    return [each.error_code for each in answer.results]


def test_entries_are_added_to_what_is_there_and_told_of(store, caplog):
    store.lists[TOPIC] = frozenset({READ})
    with caplog.at_level(logging.INFO, "sparklog.audit"):
        made = codes(
            store,
            creation(),
            creation(operation=2, permission_type=2),
            creation(resource_pattern_type=4),
            creation(resource_type=4, resource_name="kafka-cluster", operation=12),
        )
    assert made == [ErrorCode.NONE] * 4
    assert store.lists == {
        TOPIC: {READ, READ._replace(operation=ALL, permission=Permission.DENY)},
        TOPIC._replace(type=PatternType.PREFIXED): {READ},
        ResourcePattern(*CLUSTER): {READ._replace(operation=Operation.IDEMPOTENT_WRITE)},
    }
    assert [each.partition(" by ")[0] for each in caplog.messages] == [
        "added: 'TOPIC:LITERAL:t: User:alice may not ALL from *'",
        "added: 'TOPIC:PREFIXED:t: User:alice may READ from *'",
        "added: 'CLUSTER:LITERAL:kafka-cluster: User:alice may IDEMPOTENT_WRITE from *'",
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_name": ""},
        {"resource_name": "a/b"},
        {"resource_name": ".."},
        {"resource_name": "a\x00"},
        {"resource_type": 4, "resource_name": "another"},
        {"resource_type": 1},
        {"resource_type": 0},
        {"resource_type": 99},
        {"resource_pattern_type": 0},
        {"resource_pattern_type": 1},
        {"resource_pattern_type": 2},
        {"operation": 1},
        {"operation": 99},
        {"permission_type": 1},
        {"permission_type": 0},
        {"principal": "alice"},
        {"principal": ""},
    ],
    ids=str,
)
def test_what_cannot_be_made_is_refused_and_the_rest_is_made(store, wrong):
    assert codes(store, creation(**wrong), creation()) == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert store.lists == {TOPIC: {READ}}


def test_an_operation_that_the_resource_has_not_is_kept_as_kafka_keeps_it(store):
    assert codes(store, creation(resource_type=3, operation=4)) == [ErrorCode.NONE]


def test_a_list_that_cannot_be_read_is_left_alone(store):
    store.malformed.add(TOPIC)
    assert codes(store, creation(), creation(resource_name="u")) == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert store.lists.keys() == {TOPIC._replace(name="u")}


def test_who_may_not_alter_the_cluster_adds_nothing(store):
    assert codes(store, creation(), creation(), caller=ALICE) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2
    assert store.lists == {}
    store.lists[ResourcePattern(*CLUSTER)] = frozenset({AclEntry("User:alice", "*", Operation.ALTER)})
    assert codes(store, creation(), caller=ALICE) == [ErrorCode.NONE]


def test_without_an_authorizer_security_is_disabled():
    assert codes(None, creation()) == [ErrorCode.SECURITY_DISABLED]
