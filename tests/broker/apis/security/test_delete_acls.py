"""DeleteAcls: what filters find is removed, and told of once."""

import logging

import pytest
from broker.security.acl_lists import ALICE, FakeStore, asked

from sparklog.broker.apis.security import delete_acls
from sparklog.errors import ErrorCode
from sparklog.protocol.messages import DeleteAclsRequest
from sparklog.security.access import Operation, ResourceType
from sparklog.security.acl.entry import AclEntry
from sparklog.security.acl.pattern import PatternType, ResourcePattern

TOPIC = ResourcePattern(ResourceType.TOPIC, "t")
PREFIXED = ResourcePattern(ResourceType.TOPIC, "t", PatternType.PREFIXED)
GROUP = ResourcePattern(ResourceType.GROUP, "g")
READ = AclEntry("User:alice", "*", Operation.READ)
WRITE = AclEntry("User:bob", "*", Operation.WRITE)


@pytest.fixture
def store():
    store = FakeStore()
    store.lists = {TOPIC: frozenset({READ, WRITE}), PREFIXED: frozenset({READ}), GROUP: frozenset({READ})}
    return store


def wanted(**fields):
    every = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    nothing = dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
    return DeleteAclsRequest.DeleteAclsFilter(**{**every, **nothing, **fields})


def removed(store, *filters, **how):
    """For each filter its error, and what it is told of."""
    answer = asked(delete_acls, DeleteAclsRequest(filters=list(filters)), store=store, **how)
    return [
        (each.error_code, sorted((acl.resource_name, acl.pattern_type, acl.principal) for acl in each.matching_acls))
        for each in answer.filter_results
    ]


def left(store):
    return {pattern: entries for pattern, entries in store.lists.items() if entries}


def test_each_entry_is_told_of_by_the_first_filter_that_finds_it(store, caplog):
    alices = wanted(principal_filter="User:alice")
    of_topics = wanted(resource_type_filter=2)
    with caplog.at_level(logging.INFO, "sparklog.audit"):
        told = removed(store, alices, of_topics, alices)
    assert told == [
        (ErrorCode.NONE, [("g", 3, "User:alice"), ("t", 3, "User:alice"), ("t", 4, "User:alice")]),
        (ErrorCode.NONE, [("t", 3, "User:bob")]),
        (ErrorCode.NONE, []),
    ]
    assert left(store) == {}
    assert len([each for each in caplog.messages if each.startswith("removed: ")]) == 4


def test_a_filter_that_names_its_list_finds_what_this_broker_does_not_know_yet(store):
    unseen = ResourcePattern(ResourceType.TOPIC, "new", PatternType.PREFIXED)
    following_reads = store.read_all

    def read_all():  # the list is made after the broker has read all, and nobody has told of it
        found = following_reads()
        store.lists[unseen] = frozenset({READ})
        return found

    store.read_all = read_all
    named = wanted(resource_type_filter=2, resource_name_filter="new")
    assert removed(store, wanted(resource_type_filter=2, pattern_type_filter=4), named) == [
        (ErrorCode.NONE, [("t", 4, "User:alice")]),
        (ErrorCode.NONE, [("new", 4, "User:alice")]),
    ]


def test_match_removes_what_concerns_a_name(store):
    asked_for = wanted(resource_type_filter=2, resource_name_filter="tt", pattern_type_filter=2)
    assert removed(store, asked_for) == [(ErrorCode.NONE, [("t", 4, "User:alice")])]


@pytest.mark.parametrize("name", ["", "a/b", "..", "none"])
def test_what_is_not_there_is_not_removed(store, name):
    before = dict(store.lists)
    assert removed(store, wanted(resource_type_filter=2, resource_name_filter=name)) == [(ErrorCode.NONE, [])]
    assert store.lists == before


def test_numbers_that_are_not_known_find_nothing(store):
    assert removed(store, wanted(operation=99), wanted(operation=0)) == [
        (ErrorCode.NONE, []),
        (ErrorCode.INVALID_REQUEST, []),
    ]


def test_a_list_that_cannot_be_read_is_left_alone_and_said_to_be(store):
    store.malformed.add(TOPIC)
    told = removed(store, wanted(resource_type_filter=2, resource_name_filter="t"), wanted(resource_type_filter=3))
    assert told == [
        (ErrorCode.INVALID_REQUEST, [("t", 4, "User:alice")]),
        (ErrorCode.NONE, [("g", 3, "User:alice")]),
    ]


def test_who_may_not_alter_the_cluster_removes_nothing(store):
    before = dict(store.lists)
    assert removed(store, wanted(), caller=ALICE) == [(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])]
    assert store.lists == before


def test_without_an_authorizer_security_is_disabled():
    assert removed(None, wanted()) == [(ErrorCode.SECURITY_DISABLED, [])]
