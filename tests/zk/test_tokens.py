"""Delegation tokens in ZooKeeper: written as Kafka writes them, no change lost, and each told of with the token."""

import json
import queue
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.security import make_acl

from sparklog.errors import ApiError, ErrorCode, MalformedZnode
from sparklog.security.delegation.token import DelegationToken
from sparklog.security.principal import Principal
from sparklog.testing.eventually import eventually
from sparklog.zk.client import ZkClient
from sparklog.zk.tokens import CHANGES, TOKENS, TokenStore, decode, encode, token_path

ALICE, BOB = Principal("User", "alice"), Principal("User", "CN=bob, O=ö")
TOKEN = DelegationToken("id-1", ALICE, BOB, (BOB, ALICE), 100, 700, 200)
AS_KAFKA = {
    "owner": "User%3Aalice",
    "tokenRequester": "User%3ACN%3Dbob%2C%20O%3D%C3%B6",
    "renewers": ["User%3ACN%3Dbob%2C%20O%3D%C3%B6", "User%3Aalice"],
    "issueTimestamp": 100,
    "maxTimestamp": 700,
    "expiryTimestamp": 200,
    "tokenId": "id-1",
    "version": 3,
}


def test_a_token_is_written_and_read_as_kafka_does():
    assert json.loads(encode(TOKEN)) == AS_KAFKA
    assert decode("id-1", json.dumps(AS_KAFKA).encode()) == TOKEN
    assert decode("id-1", encode(TOKEN)) == TOKEN


@pytest.mark.parametrize("version", [1, 2])
def test_before_version_3_the_owner_has_asked_for_it(version):
    old = {name: value for name, value in AS_KAFKA.items() if name != "tokenRequester"}
    assert decode("id-1", json.dumps(old | {"version": version}).encode()) == replace(TOKEN, requester=ALICE)


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 0},
        {"version": 4},
        {"owner": "alice"},
        {"owner": None},
        {"tokenRequester": 1},
        {"renewers": [3]},
        {"renewers": None},
        {"maxTimestamp": "7"},
        {"tokenId": "id-2"},
    ],
    ids=str,
)
def test_what_is_not_that_is_malformed(wrong):
    with pytest.raises(MalformedZnode, match=token_path("id-1")):
        decode("id-1", json.dumps(AS_KAFKA | wrong).encode())


@given(st.binary(max_size=60) | st.recursive(st.none() | st.integers(), st.lists).map(lambda each: str(each).encode()))
def test_other_data_is_malformed_and_nothing_else(data):
    with suppress(MalformedZnode):
        decode("id-1", data)


def test_a_token_that_zookeeper_would_not_take_is_refused():
    with pytest.raises(ApiError, match="100000 renewers") as refused:
        encode(replace(TOKEN, renewers=(ALICE,) * 100_000))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.fixture
def zk(chroot):
    client = ZkClient(chroot, session_timeout=10.0, on_session=queue.Queue().put)
    yield client
    client.close()


@pytest.fixture
def store(zk):
    store = TokenStore(zk)
    store.ensure_tree()
    return store


@pytest.mark.integration
def test_a_token_comes_changes_and_goes_and_each_is_told_of(store, zk):
    assert store.read("id-1") is None
    told = queue.Queue()
    assert store.changes.numbers(lambda: told.put(1)) == []
    assert store.change("id-1", lambda _: TOKEN) == TOKEN
    told.get(timeout=60)
    assert zk.data(f"{TOKENS}/id-1") == encode(TOKEN)
    assert zk.data(f"{CHANGES}/token_change_0000000000") == b"id-1"
    later = replace(TOKEN, expires_ms=300)
    assert store.change("id-1", lambda found: replace(found, expires_ms=300)) == store.read("id-1") == later
    assert store.change("id-1", lambda found: found) == later
    assert store.change("id-1", lambda _: None) is None
    assert store.read("id-1") is None
    assert store.changes.numbers() == [0, 1, 2]
    assert {store.changes.name(number) for number in (0, 1, 2)} == {"id-1"}
    assert store.changes.name(7) is None


@pytest.mark.integration
def test_a_renewal_does_not_bring_back_what_another_broker_has_ended(store, zk):
    def renewed(found):
        if found is None:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        if not seen:
            TokenStore(zk).change("id-1", lambda _: None)  # meanwhile
        seen.append(found)
        return replace(found, expires_ms=300)

    seen = []
    store.change("id-1", lambda _: TOKEN)
    with pytest.raises(ApiError):
        store.change("id-1", renewed)
    assert seen == [TOKEN]
    assert store.read("id-1") is None


@pytest.mark.integration
def test_all_are_read_and_those_that_cannot_be_are_named(store, zk):
    second = replace(TOKEN, id="id-2", owner=BOB)
    for each in (TOKEN, second):
        store.change(each.id, lambda _, each=each: each)
    zk.ensure([token_path("broken")])
    found = store.read_all()
    assert found.tokens == {"id-1": TOKEN, "id-2": second}
    assert found.malformed.keys() == {"broken"}
    with pytest.raises(MalformedZnode):
        store.change("broken", lambda _: TOKEN)


@pytest.mark.integration
def test_what_strangers_say_has_changed_is_no_token(store, zk):
    said = (b"", b".", b"..", b"a/b", b"../../config/users/admin", b"\xff\0", b"a\nb")
    paths = [zk.kazoo.create(f"{CHANGES}/token_change_", each, sequence=True) for each in said]
    others = [make_acl("ip", "192.0.2.1", all=True)]
    paths.append(zk.kazoo.create(f"{CHANGES}/token_change_", b"id-1", others, sequence=True))
    for each in paths:
        with pytest.raises(MalformedZnode):
            store.changes.name(int(each[-10:]))


@pytest.mark.integration
def test_changes_are_forgotten_when_they_are_old(store):
    for number in range(3):
        store.change("id-1", lambda _, number=number: replace(TOKEN, expires_ms=number))
    store.changes.forget(60_000)
    assert len(store.changes.numbers()) == 3
    eventually(lambda: store.changes.forget(-1) or store.changes.numbers() == [])
