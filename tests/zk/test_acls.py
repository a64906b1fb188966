"""Access control lists in a real ZooKeeper: no change is lost, and each is told of with the list."""

import queue
import threading

import pytest

from sparklog.errors import ApiError, ErrorCode, MalformedZnode
from sparklog.security.access import Operation, ResourceType
from sparklog.security.acl.entry import AclEntry
from sparklog.security.acl.pattern import SPECIFIC, PatternType, ResourcePattern
from sparklog.testing.eventually import eventually
from sparklog.testing.zookeeper import CuttingProxy
from sparklog.zk import znode_client
from sparklog.zk.acls import AclStore
from sparklog.zk.client import ZkClient

pytestmark = pytest.mark.integration

LITERAL = ResourcePattern(ResourceType.TOPIC, "t")
PREFIXED = ResourcePattern(ResourceType.GROUP, "g-", PatternType.PREFIXED)
ENTRY = AclEntry("User:alice", "*", Operation.READ)


def entries(*names):
    return frozenset(ENTRY._replace(principal=f"User:{each}") for each in names)


@pytest.fixture
def connect(chroot):
    sessions = []

    def open_session(at=chroot):
        sessions.append(ZkClient(at, session_timeout=10.0, on_session=queue.Queue().put))
        return sessions[-1]

    yield open_session
    for each in sessions:
        each.close()


@pytest.fixture
def zk(connect):
    return connect()


@pytest.fixture
def store(zk):
    store = AclStore(zk)
    store.ensure_tree()
    return store


def folder(store, type_):
    return dict(zip(SPECIFIC, store.changes, strict=True))[type_]


def test_the_tree_is_the_one_that_kafka_makes(store, zk):
    types = ["Cluster", "DelegationToken", "Group", "Topic", "TransactionalId", "User"]
    assert zk.names("/kafka-acl") == zk.names("/kafka-acl-extended/prefixed") == types
    assert zk.data("/kafka-acl-changes") == zk.data("/kafka-acl-extended-changes") == b""


@pytest.mark.parametrize("pattern", [LITERAL, PREFIXED], ids=str)
def test_a_list_comes_changes_and_goes_and_each_is_told_of(store, pattern):
    told = threading.Event()
    assert folder(store, pattern.type).numbers(told.set) == []
    assert store.change(pattern, entries("a").union) == frozenset()
    assert told.wait(60)
    assert store.change(pattern, entries("b").union) == entries("a")
    assert store.read_all() == ({pattern: entries("a", "b")}, {})
    assert store.change(pattern, lambda _: frozenset()) == entries("a", "b")
    assert store.read(pattern) == frozenset()
    assert store.read_all() == ({}, {})
    numbers = folder(store, pattern.type).numbers()
    assert [folder(store, pattern.type).name(each) for each in numbers] == [pattern] * 3
    assert folder(store, pattern.type).name(99) is None


def test_what_changes_nothing_is_not_told_of(store):
    store.change(LITERAL, entries("a").union)
    assert store.change(LITERAL, entries("a").union) == entries("a")
    assert store.change(PREFIXED, lambda before: before - entries("a")) == frozenset()
    assert (folder(store, PatternType.LITERAL).numbers(), folder(store, PatternType.PREFIXED).numbers()) == ([0], [])


def test_two_administrators_lose_nothing_of_each_other(store, connect):
    def administer(own, numbers):
        for number in numbers:
            own.change(LITERAL, entries(number).union)
        for number in numbers[::2]:
            own.change(LITERAL, entries(number).__rsub__)

    stores = [AclStore(connect()) for _ in range(3)]
    threads = [
        threading.Thread(target=administer, args=(each, range(start, start + 12)))
        for start, each in zip((0, 100, 200), stores, strict=True)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    left = entries(*(start + each for start in (0, 100, 200) for each in range(1, 12, 2)))
    eventually(lambda: store.read(LITERAL) == left)
    assert len(folder(store, PatternType.LITERAL).numbers()) == 3 * (12 + 6)


def test_a_change_whose_answer_was_lost_is_made_once(store, chroot, zookeeper, connect):
    with CuttingProxy(zookeeper.connect_string) as proxy:
        own = connect(f"{proxy.connect_string}/{chroot.partition('/')[2]}")
        proxy.cut(b"kafka-acl-changes/acl_changes_", answered=True)
        assert own.guarded(AclStore(own).change, LITERAL, entries("a").union) == frozenset()
        assert proxy.cuts == 1
    assert store.read(LITERAL) == entries("a")
    assert folder(store, PatternType.LITERAL).numbers() == [0]


def test_a_list_that_cannot_be_read_is_kept_apart_and_not_written_over(store, zk):
    store.change(LITERAL, entries("a").union)
    zk.kazoo.set("/kafka-acl/Topic/t", b"nonsense")
    zk.kazoo.ensure_path("/kafka-acl/Thing/of-a-newer-kafka")
    found = store.read_all()
    assert (found.lists, list(found.malformed)) == ({}, [LITERAL])
    for attempt in (lambda: store.read(LITERAL), lambda: store.change(LITERAL, entries("b").union)):
        with pytest.raises(MalformedZnode, match="/kafka-acl/Topic/t"):
            attempt()
    assert zk.data("/kafka-acl/Topic/t") == b"nonsense"


def test_notifications_are_kept_for_a_while(store):
    for name in "ab":
        store.change(LITERAL, entries(name).union)
    folder(store, PatternType.LITERAL).forget(60_000)
    assert folder(store, PatternType.LITERAL).numbers() == [0, 1]
    folder(store, PatternType.LITERAL).forget(-1)
    assert folder(store, PatternType.LITERAL).numbers() == []


def test_a_list_that_no_znode_can_hold_is_refused_and_the_session_goes_on(connect):
    """ZooKeeper hung up on the broker, and who had asked was told to ask again."""
    zk = connect()
    store, few, many = AclStore(zk), entries("bob"), entries(*(f"{number:0100}" for number in range(10_000)))
    store.change(LITERAL, few.union)
    session = zk.kazoo.client_id
    with pytest.raises(ApiError, match="a znode has 900000 at most: set less of it") as refused:
        store.change(LITERAL, many.union)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert zk.kazoo.client_id == session
    assert store.read(LITERAL) == few


def test_a_list_that_is_too_large_already_can_become_smaller(connect, monkeypatch):
    store = AclStore(connect())
    store.change(LITERAL, entries("a", "b", "c").union)
    monkeypatch.setattr(znode_client, "MOST_BYTES", 10)
    with pytest.raises(ApiError):
        store.change(LITERAL, entries("d").union)
    store.change(LITERAL, lambda before: before - entries("a"))
    assert store.read(LITERAL) == entries("b", "c")
