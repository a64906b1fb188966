"""Lists and changes as Kafka writes them, and nothing but MalformedZnode for what it would not."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import MalformedZnode
from sparklog.security.access import Operation, ResourceType
from sparklog.security.acl import znode
from sparklog.security.acl.entry import ALL, AclEntry, Permission
from sparklog.security.acl.pattern import PatternType, ResourcePattern

ENTRY = AclEntry("User:alice", "*", Operation.IDEMPOTENT_WRITE, Permission.DENY)
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def test_a_list_is_written_as_kafka_writes_it():
    assert znode.encode_list([ENTRY]) == (
        b'{"acls":[{"principal":"User:alice","permissionType":"Deny","host":"*","operation":"IdempotentWrite"}],'
        b'"version":1}'
    )


def test_equal_lists_are_equal_bytes():
    entries = [ENTRY, ENTRY._replace(operation=ALL), AclEntry("User:ö")]
    assert znode.encode_list(entries) == znode.encode_list(reversed(entries))
    assert znode.decode_list("/p", znode.encode_list(entries)) == set(entries)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        (ResourcePattern(ResourceType.TOPIC, "t"), "/kafka-acl/Topic/t"),
        (ResourcePattern(ResourceType.CLUSTER, "kafka-cluster"), "/kafka-acl/Cluster/kafka-cluster"),
        (ResourcePattern(ResourceType.TRANSACTIONAL_ID, "*"), "/kafka-acl/TransactionalId/*"),
        (ResourcePattern(ResourceType.DELEGATION_TOKEN, "x"), "/kafka-acl/DelegationToken/x"),
        (ResourcePattern(ResourceType.GROUP, "g-", PREFIXED), "/kafka-acl-extended/prefixed/Group/g-"),
        (ResourcePattern(ResourceType.USER, "User:a", PREFIXED), "/kafka-acl-extended/prefixed/User/User:a"),
    ],
)
def test_a_list_lies_where_kafka_looks_for_it(pattern, path):
    assert znode.list_path(pattern) == path


@pytest.mark.parametrize(
    "value",
    [
        {"version": 1, "acls": [{"principal": "User:a", "permissionType": "allow", "operation": "READ", "host": "*"}]},
        {"acls": [{"host": "*", "operation": "Read", "permissionType": "Allow", "principal": "User:a"}], "version": 1},
    ],
)
def test_a_list_is_read_in_any_order_and_case(value):
    assert znode.decode_list("/p", json.dumps(value).encode()) == {AclEntry("User:a", "*", Operation.READ)}


def test_no_data_is_no_entries():
    assert znode.decode_list("/p", b"") == frozenset()


def _with(**changes):
    entry = {"principal": "User:a", "permissionType": "Allow", "operation": "Read", "host": "*"} | changes
    return json.dumps({"version": 1, "acls": [entry]}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"[]",
        b'"a"',
        b"{}",
        b'{"version":1}',
        b'{"version":2,"acls":[]}',
        b'{"version":1,"acls":7}',
        b'{"version":1,"acls":[7]}',
        _with(operation="Raed"),
        _with(operation=3),
        _with(operation="Any"),
        _with(permissionType="Maybe"),
        _with(principal="alice"),
        _with(principal=7),
        _with(host=None),
        b"\xff",
    ],
)
def test_what_is_not_understood_as_a_whole_is_malformed(data):
    with pytest.raises(MalformedZnode, match="/p"):
        znode.decode_list("/p", data)


@given(st.binary(max_size=60))
def test_random_bytes_are_malformed_or_a_list(data):
    for decode in (
        lambda: znode.decode_list("/p", data),
        lambda: znode.decode_change(LITERAL, "/p", data),
        lambda: znode.decode_change(PREFIXED, "/p", data),
    ):
        with suppress(MalformedZnode):
            decode()


@pytest.mark.parametrize("name", ["", ".", "..", "../../config/users/alice", "a/b", "a\0b", "a\nb", "\ud800"])
def test_a_change_of_a_list_that_no_znode_can_hold_is_malformed(name):
    literal, prefixed = f"Topic:{name}".encode(errors="surrogatepass"), {"version": 1, "patternType": "PREFIXED"}
    for type_, data in (
        (LITERAL, literal),
        (PREFIXED, json.dumps({**prefixed, "resourceType": "TOPIC", "name": name}).encode()),
    ):
        with pytest.raises(MalformedZnode):
            znode.decode_change(type_, "/p", data)


def test_a_change_is_told_of_as_kafka_does():
    literal, prefixed = ResourcePattern(ResourceType.TOPIC, "a:b"), ResourcePattern(ResourceType.USER, "x", PREFIXED)
    assert znode.encode_change(literal) == b"TOPIC:a:b"
    assert znode.encode_change(prefixed) == (b'{"version":1,"resourceType":"USER","name":"x","patternType":"PREFIXED"}')
    for pattern in (literal, prefixed):
        assert znode.decode_change(pattern.type, "/p", znode.encode_change(pattern)) == pattern


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        (LITERAL, b""),
        (LITERAL, b"TOPIC"),
        (LITERAL, b"THING:a"),
        (PREFIXED, b"TOPIC:a"),
        (PREFIXED, b'{"version":1,"resourceType":"USER","name":"x","patternType":"MATCH"}'),
        (PREFIXED, b'{"version":1,"resourceType":"USER","name":7,"patternType":"PREFIXED"}'),
        (PREFIXED, b'{"version":2,"resourceType":"USER","name":"x","patternType":"PREFIXED"}'),
    ],
)
def test_a_change_that_is_not_understood_is_malformed(type_, data):
    with pytest.raises(MalformedZnode, match="/p"):
        znode.decode_change(type_, "/p", data)


def test_other_folders_than_those_of_types_are_left_alone():
    assert znode.kinds_of(["Topic", "TransactionalId", "Thing"]) == {
        "Topic": ResourceType.TOPIC,
        "TransactionalId": ResourceType.TRANSACTIONAL_ID,
    }
