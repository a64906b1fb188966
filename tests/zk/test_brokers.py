"""Brokers in a real ZooKeeper: what goes with a session, and what the controller alone may write."""

import threading

import pytest
from zk.tree import HERE, controller_of

from sparklog.errors import CoordinationError
from sparklog.structs import Endpoint
from sparklog.zk import znodes
from sparklog.zk.znode_client import Session

pytestmark = pytest.mark.integration


def test_a_broker_is_known_while_its_session_lives(connect):
    (one, _), (two, _) = connect(), connect()
    epoch = one.brokers.register(HERE, 5)
    assert two.brokers.live() == {1: HERE._replace(epoch=epoch)}
    assert one.brokers.register(HERE, 6) == epoch, "registering again is no change"
    one.close()
    assert two.brokers.live() == {}
    assert two.brokers.register(HERE, 7) > epoch


def test_a_duplicate_broker_id_is_refused(connect):
    (one, _), (two, _) = connect(), connect()
    one.brokers.register(HERE, 5)
    with pytest.raises(CoordinationError, match=r"broker id 1 is already registered .* another session"):
        two.brokers.register(HERE._replace(endpoint=Endpoint("127.0.0.1", 9093)), 5)
    assert two.brokers.live()[1].endpoint == HERE.endpoint


def test_the_session_of_a_dead_broker_is_ended_with_all_that_it_held(connect):
    (dead, _), (here, _) = connect(), connect()
    dead.brokers.register(HERE, 5)
    dead.office.take(1, 5)
    assert here.brokers.owner(1) == dead.session_id
    here.end_session(dead.session)
    assert (here.brokers.live(), here.office.holder(), here.brokers.owner(1)) == ({}, None, None)
    here.end_session(dead.session)  # ended already
    here.brokers.register(HERE, 6)
    here.end_session(Session(here.session_id, b"not its password"))
    assert 1 in here.brokers.live()


def test_lives_are_noted_by_the_controller_in_office(zk):
    version = controller_of(zk)
    assert zk.brokers.lives() == {}
    zk.brokers.write_lives({2: 70, 1: 5}, version)
    assert zk.brokers.lives() == {1: 5, 2: 70}
    with pytest.raises(CoordinationError, match="epoch is stale"):
        zk.brokers.write_lives({1: 6}, version + 1)
    zk.kazoo.set(znodes.LIVES, b"[]")
    assert zk.brokers.lives() == {}


def test_a_failed_log_directory_is_reported_until_a_controller_has_taken_it_up(connect):
    (broker, _), (controller, _) = connect(), connect()
    version = controller_of(controller)
    told = threading.Event()
    assert controller.brokers.log_dir_events(told.set) == {}
    broker.brokers.report_log_dir_failure(7)
    assert told.wait(60)
    broker.kazoo.create("/log_dir_event_notification/log_dir_event_x", b"?")
    events = controller.brokers.log_dir_events()
    assert sorted(events.values()) == [-1, 7]
    controller.brokers.forget_log_dir_events(events, version)
    assert controller.brokers.log_dir_events() == {}
