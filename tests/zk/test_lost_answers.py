"""Writes whose connection is cut before they arrive, or before their answer is back: what was done is known."""

import queue
from uuid import UUID

import pytest

from sparklog.errors import CoordinationError
from sparklog.structs import Endpoint
from sparklog.testing.zookeeper import CuttingProxy
from sparklog.zk.client import ZkClient
from sparklog.zk.notifications import config_changes
from sparklog.zk.office import Term
from sparklog.zk.znodes import BrokerInfo, TopicAssignment

pytestmark = pytest.mark.integration

TOPIC = TopicAssignment("t", {0: (1,)}, UUID(int=5))


@pytest.fixture
def proxy(zookeeper):
    with CuttingProxy(zookeeper.connect_string) as proxy:
        yield proxy


@pytest.fixture
def zk(proxy, chroot):
    path = chroot.partition("/")[2]
    client = ZkClient(f"{proxy.connect_string}/{path}", session_timeout=10.0, on_session=queue.Queue().put)
    client.ensure_tree()
    yield client
    client.close()


def test_a_topic_that_was_made_though_the_answer_was_lost_is_ours(proxy, zk):
    proxy.cut(b"/brokers/topics/t", answered=True)
    assert zk.guarded(zk.topics.create, TOPIC, {"retention.ms": "5"})
    assert proxy.cuts == 1
    assert (zk.topics.assignment("t"), zk.configs.of_topic("t")) == (TOPIC, {"retention.ms": "5"})
    assert not zk.topics.create(TopicAssignment("t", {0: (1,)}, UUID(int=6)), {})


def test_a_topic_that_was_not_made_may_be_made_again(proxy, zk):
    proxy.cut(b"/brokers/topics/t", answered=False)
    with pytest.raises(CoordinationError):
        zk.guarded(zk.topics.create, TOPIC, {})
    assert zk.topics.names() == []
    assert zk.guarded(zk.topics.create, TOPIC, {})


def test_an_office_that_was_taken_though_the_answer_was_lost_is_held(proxy, zk):
    proxy.cut(b"brokerid", answered=True)
    epoch, version = zk.guarded(zk.office.take, 1, 5)
    assert zk.office.read() == Term(1, epoch)
    assert zk.topics.create(TOPIC, {})
    grown = TopicAssignment("t", {0: (1,), 1: (1,)}, UUID(int=5))
    proxy.cut(b"adding_replicas", answered=True)
    zk.guarded(zk.topics.add_partitions, grown, version)
    assert zk.topics.assignment("t") == grown
    assert proxy.cuts == 2


def test_an_office_that_was_not_taken_is_vacant(proxy, zk):
    proxy.cut(b"brokerid", answered=False)
    with pytest.raises(CoordinationError):
        zk.guarded(zk.office.take, 1, 5)
    assert zk.office.read().holder == -1


@pytest.mark.parametrize("answered", [True, False])
def test_settings_are_changed_and_told_of_or_neither(proxy, zk, answered):
    proxy.cut(b"config_change_", answered=answered)
    change = (zk.configs.change, "topics/t", lambda stored: stored | {"a": "1"})
    if answered:
        zk.guarded(*change)
        assert (zk.configs.of("topics/t"), len(config_changes(zk).numbers())) == ({"a": "1"}, 1)
    else:
        with pytest.raises(CoordinationError):
            zk.guarded(*change)
        assert (zk.configs.of("topics/t"), config_changes(zk).numbers()) == ({}, [])


@pytest.mark.parametrize("answered", [True, False])
def test_a_registration_is_found_when_it_is_made_again(proxy, zk, answered):
    info = BrokerInfo(1, Endpoint("127.0.0.1", 9092))
    proxy.cut(b"/brokers/ids/1", answered=answered)
    with pytest.raises(CoordinationError):
        zk.guarded(zk.brokers.register, info, 5)
    assert (1 in zk.brokers.live()) == answered
    epoch = zk.brokers.register(info, 6)
    assert zk.brokers.live() == {1: info._replace(epoch=epoch)}
