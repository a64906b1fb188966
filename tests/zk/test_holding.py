"""Ephemeral znodes of a session, many at a time: what is its own, and what a lost answer leaves."""

import pytest

from sparklog.config.zookeeper_security import OPEN
from sparklog.testing.eventually import eventually
from sparklog.testing.zookeeper import CuttingProxy
from sparklog.zk.holding import HoldingClient, Write

pytestmark = pytest.mark.integration


@pytest.fixture
def connect(chroot):
    """Clients of one tree: ``connect()``."""
    made = []

    def client(at=chroot):
        found = HoldingClient(at, session_timeout=6.0, on_session=lambda _: None, security=OPEN)
        made.append(found)
        return found

    yield client
    for each in made:
        each.close()


def test_a_znode_is_held_by_the_session_that_made_it(connect):
    one, other = connect(), connect()
    assert set(one.hold_each({"/a/1": b"x", "/a/2": b"x"})) == {"/a/1", "/a/2"}
    assert set(one.hold_each({"/a/1": b"x", "/a/3": b"x"})) == {"/a/1", "/a/3"}
    assert other.hold_each({"/a/1": b"x"}) == {}
    assert one.hold_each({"/a/1": b"y"}) == {}
    other.let_go(["/a/1", "/none"])
    assert one.names("/a") == ["1", "2", "3"]
    one.let_go(["/a/1"])
    assert one.names("/a") == ["2", "3"]
    one.close()
    assert other.names("/a") == []


def test_nothing_is_made_where_there_is_no_parent(connect):
    one = connect()
    assert one.hold_each({"/none/1": b"x"}, makes_parents=False) == {}
    assert one.names("/none") == []


@pytest.mark.parametrize("answered", [False, True])
def test_what_a_lost_answer_told_of_is_found(zookeeper, connect, chroot, answered):
    connect()  # makes the chroot
    with CuttingProxy(zookeeper.connect_string) as proxy:
        one = connect(chroot.replace(zookeeper.connect_string, proxy.connect_string))
        proxy.cut(b"/a/held", answered=answered)
        assert set(one.lasting(one.hold_each, {"/a/held": b"x"})) == {"/a/held"}
        assert proxy.cuts == 1
        proxy.cut(b"/a/held", answered=answered)
        one.lasting(one.let_go, ["/a/held"])
        assert proxy.cuts == 2
        assert one.lasting(one.names, "/a") == []
        one.close()


def test_a_write_is_over_the_version_that_is_known(connect):
    one = connect()
    assert one.write_each([Write("/o/1", b"1", -1), Write("/o/2", b"1", -1)]) == [0, 0]
    assert one.write_each([Write("/o/1", b"2", 0), Write("/o/2", b"2", 5), Write("/o/3", b"2", 0)]) == [1, None, None]
    assert one.write_each([Write("/o/1", b"3", -1)]) == [None]
    assert [each.data for each in one.seen_each(["/o/1", "/o/2"])] == [b"2", b"1"]
    one.remove_each(["/o/1", "/none"])
    assert one.seen_each(["/o/1"]) == [None]


def test_a_znode_is_watched_before_it_is_there(connect):
    one, events = connect(), []
    assert one.watched("/w", lambda: events.append(1)) is None
    one.write_each([Write("/w", b"x", -1)])
    eventually(lambda: events, what="it came")
    assert one.watched("/w", lambda: events.append(2)) == b"x"
    one.remove_each(["/w"])
    eventually(lambda: 2 in events, what="it went")
