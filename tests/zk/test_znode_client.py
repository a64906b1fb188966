"""A session with a real ZooKeeper: who answers, what a watch tells, what goes with the session, what cannot be read."""

import queue
import socket
import threading

import pytest
from kazoo.security import make_acl
from zk.tree import HERE, expire

from sparklog.errors import CoordinationError, MalformedZnode
from sparklog.security.acl.znode import decode_list
from sparklog.testing.eventually import eventually
from sparklog.zk import znodes
from sparklog.zk.client import ZkClient
from sparklog.zk.notifications import config_changes
from sparklog.zk.znodes import (
    TopicAssignment,
    topic_config_path,
    topic_entity,
    topic_path,
)

pytestmark = pytest.mark.integration


def test_nobody_there_is_said_with_the_setting():
    with pytest.raises(CoordinationError, match=r"no ZooKeeper answers at 127\.0\.0\.1:1 .*zookeeper\.connect"):
        ZkClient("127.0.0.1:1", session_timeout=1.0, connect_timeout=0.3, on_session=lambda _: None)


@pytest.fixture
def hole():
    """``host:port`` that lets nobody in and refuses nobody, as a machine that has lost power."""
    with socket.socket() as server, socket.socket() as first, socket.socket() as second:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for each in (first, second):  # these fill the queue of connections that nobody accepts
            each.setblocking(False)
            each.connect_ex(server.getsockname())
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_member_that_is_silent_costs_its_share_of_the_time_only(chroot, hole, monkeypatch):
    monkeypatch.setattr("sparklog.zk.znode_client.random.sample", lambda members, count: list(members))
    zk = ZkClient(f"{hole}, {chroot}", session_timeout=6.0, connect_timeout=5.5, on_session=lambda _: None)
    assert zk.session_id
    zk.close()


def test_members_are_tried_again_every_second_however_long_they_have_been_away(connect):
    zk, _ = connect()
    assert zk.kazoo._conn_retry.max_delay == 1.0
    assert zk.kazoo._conn_retry.max_tries == -1


def test_a_member_may_be_named_twice(zookeeper):
    twice = f"{zookeeper.connect_string}, {zookeeper.connect_string},/twice/"
    zk = ZkClient(twice, session_timeout=10.0, on_session=lambda _: None)
    zk.ensure_tree()
    assert zk.topics.names() == []
    zk.close()


def test_an_expired_session_takes_its_ephemerals_and_is_told(connect, zookeeper):
    (one, events), (two, _) = connect(), connect()
    assert events.get(timeout=60) == "connected"
    one.brokers.register(HERE, 5)
    gone = threading.Event()
    assert 1 in two.brokers.live(gone.set)
    expire(one, zookeeper)
    assert gone.wait(60)
    assert two.brokers.live() == {}
    told = [events.get(timeout=60)]
    while told[-1] != "connected":
        told.append(events.get(timeout=60))
    assert "expired" in told
    one.brokers.register(HERE, 6)
    assert 1 in two.brokers.live()


def test_a_watch_fires_once_and_tells_of_what_was_asked(connect):
    (one, _), (two, _) = connect(), connect()
    fired = queue.Queue()
    two.topics.names(lambda: fired.put("topics"))
    two.topics.to_delete(lambda: fired.put("deletions"))
    one.topics.create(TopicAssignment("t", {0: (1,)}), {})
    assert fired.get(timeout=60) == "topics"
    one.topics.create(TopicAssignment("u", {0: (1,)}), {})
    one.topics.request_deletion("t")
    assert fired.get(timeout=60) == "deletions"


def test_a_watch_set_again_is_told_once(zk):
    told = queue.Queue()

    def changed():
        told.put("changed")

    for _ in range(3):
        zk.topics.names(changed)
    zk.topics.to_delete(lambda: told.put("last"))
    zk.topics.create(TopicAssignment("t", {0: (1,)}), {})
    zk.topics.request_deletion("t")
    assert [told.get(timeout=60) for _ in range(2)] == ["changed", "last"]


def test_a_failure_of_zookeeper_is_a_coordination_error(zk):
    zk.kazoo.create("/brokers/topics/bad", b"{}")
    with pytest.raises(CoordinationError, match="/brokers/topics/bad"):
        zk.topics.assignment("bad")
    zk.close()
    with pytest.raises(CoordinationError, match="ZooKeeper: "):
        zk.guarded(zk.topics.names)


def test_a_lost_connection_is_found_again(connect, zookeeper):
    zk, events = connect()
    zk.kazoo._connection._socket.shutdown(2)
    seen = []
    eventually(lambda: seen.append(events.get(timeout=60)) or seen[-2:] == ["suspended", "connected"])
    assert zk.topics.names() == []


def test_a_path_that_cannot_be_is_malformed(zk):
    for entity in ("users/../x", "users/.", "users//x", "", "/", "topics/a\0b", "users/\ud800", "a/b/"):
        told = znodes.encode_config_change(entity)
        path = zk.kazoo.create("/config/changes/config_change_", told, sequence=True)
        with pytest.raises(MalformedZnode):
            config_changes(zk).name(int(path[-10:]))


def test_a_znode_that_is_anothers_is_one_that_cannot_be_read(zk):
    nobodys = [make_acl("ip", "192.0.2.1", all=True)]
    for path in ("/config/users/alice", "/config/changes/config_change_0000000000", "/kafka-acl/Topic/t"):
        zk.ensure([path.rpartition("/")[0]])
        zk.kazoo.create(path, b"{}", nobodys)
    zk.configs.change("users/bob", lambda stored: {"a": "1"})
    for read in (
        lambda: zk.configs.of("users/alice"),
        lambda: config_changes(zk).name(0),
        lambda: zk.stored("/kafka-acl/Topic/t"),
    ):
        with pytest.raises(MalformedZnode, match="another's"):
            zk.guarded(read)
    assert zk.configs.of_kind("users") == {"users/alice": None, "users/bob": {"a": "1"}}
    (found,) = zk.stored_each(["/kafka-acl/Topic/t"])
    with pytest.raises(MalformedZnode):
        decode_list("/kafka-acl/Topic/t", found.data)


def test_no_level_of_logging_writes_what_znodes_hold(connect, caplog):
    caplog.set_level(1, "kazoo.client")
    zk, _ = connect()
    zk.configs.change("users/alice", lambda _: {"SCRAM-SHA-256": "stored_key=secret"})
    assert zk.configs.of("users/alice") == {"SCRAM-SHA-256": "stored_key=secret"}
    assert "GetData" in caplog.text
    assert "secret" not in caplog.text
    assert zk.kazoo.client_id[1].hex() not in caplog.text


@pytest.mark.parametrize("read", ["topics", "settings"])
def test_a_znode_without_any_data_is_malformed(zk, read):
    topic = "without"
    path = topic_path(topic) if read == "topics" else topic_config_path(topic)
    zk.kazoo.create(path, None, makepath=True)
    with pytest.raises(MalformedZnode, match=path):
        zk.topics.assignment(topic) if read == "topics" else zk.configs.of(topic_entity(topic))
