"""Settings in a real ZooKeeper: nobody's change is lost, and each is told of."""

import json
import queue
import threading

import pytest

from sparklog.errors import CoordinationError
from sparklog.zk import znodes
from sparklog.zk.notifications import config_changes
from sparklog.zk.znodes import (
    TopicAssignment,
)

pytestmark = pytest.mark.integration


def test_the_settings_of_many_topics_are_read_at_once(zk):
    zk.topics.create(TopicAssignment("t", {0: (1,)}), {"retention.ms": "7"})
    zk.topics.create(TopicAssignment("bad", {0: (1,)}), {})
    zk.kazoo.set(znodes.topic_config_path("bad"), b"{")
    assert zk.configs.of_topics(["t", "bad", "none"]) == {"t": {"retention.ms": "7"}, "none": {}}


def test_a_changed_setting_is_kept_with_the_others_and_told_of(zk):
    fired = queue.Queue()
    assert config_changes(zk).numbers(lambda: fired.put("told")) == []
    zk.configs.change("topics/t", lambda stored: stored | {"a": "1"})
    assert fired.get(timeout=60) == "told"
    zk.configs.change("topics/t", lambda stored: stored | {"b": "2"})
    zk.configs.change("brokers/<default>", lambda stored: {})
    assert zk.configs.of("topics/t") == zk.configs.of_topic("t") == {"a": "1", "b": "2"}
    assert zk.configs.of("brokers/<default>") == zk.configs.of("brokers/7") == {}
    numbers = config_changes(zk).numbers()
    assert [config_changes(zk).name(number) for number in numbers] == ["topics/t", "topics/t", "brokers/<default>"]
    config_changes(zk).forget(3_600_000)
    assert config_changes(zk).numbers() == numbers
    config_changes(zk).forget(-1)
    assert (config_changes(zk).numbers(), config_changes(zk).name(numbers[0])) == ([], None)
    zk.configs.change("topics/t", lambda stored: stored)
    assert config_changes(zk).numbers() == [numbers[-1] + 1]
    config_changes(zk).forget(-1)
    config_changes(zk).forget(-1)  # there is none


def test_settings_of_users_clients_and_addresses_are_read_together(zk):
    for entity in ("users/a", "users/<default>", "users/b/clients/c", "users/<default>/clients/<default>", "ips/::1"):
        zk.configs.update(entity, {"x": entity})
    zk.kazoo.create("/config/users/bad", b"{")
    users = zk.configs.of_kind("users")
    assert users.pop("users/bad") is None
    assert users.pop("users/b") == {}  # it stands there for its client id alone
    assert users == {
        entity: {"x": entity}
        for entity in ("users/a", "users/<default>", "users/b/clients/c", "users/<default>/clients/<default>")
    }
    assert zk.configs.of_kind("clients") == {}
    assert zk.configs.of_kind("ips") == {"ips/::1": {"x": "ips/::1"}}
    assert zk.configs.of("users/b") == {}


def test_a_change_of_some_settings_leaves_those_of_others_and_tells_of_itself(zk):
    zk.configs.update("users/a", {"x": "1", "y": "2"})
    zk.configs.update("users/a", {"x": None, "z": "3", "none": None})
    assert zk.configs.of("users/a") == {"y": "2", "z": "3"}
    assert json.loads(zk.data("/config/users/a")) == {"version": 1, "config": {"y": "2", "z": "3"}}
    numbers = config_changes(zk).numbers()
    assert len(numbers) == 2
    assert json.loads(zk.data(f"/config/changes/config_change_{numbers[1]:010d}")) == {
        "version": 2,
        "entity_path": "users/a",
    }


def test_administrators_of_one_user_do_not_lose_each_others_settings(connect):
    clients = [connect()[0] for _ in range(4)]

    def change(client, number):
        for _ in range(10):
            client.configs.update("users/a", {f"x{number}": "1"})
            client.configs.update("users/a", {f"x{number}": None, f"y{number}": "2"})

    threads = [threading.Thread(target=change, args=(each, number)) for number, each in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clients[0].configs.of("users/a") == {f"y{number}": "2" for number in range(4)}


def test_an_entity_without_settings_goes_with_what_stood_there_for_it_alone(zk):
    zk.configs.update("users/a", {"x": "1"})
    zk.configs.update("users/a/clients/c", {"x": "1"})
    zk.configs.update("users/a", {"x": None})
    assert json.loads(zk.data("/config/users/a")) == {"version": 1, "config": {}}
    zk.configs.update("users/a/clients/c", {"x": None})
    assert zk.names("/config/users") == []
    zk.configs.update("users/b", {"x": "1"})
    zk.configs.update("users/b/clients/c", {"x": "1"})
    zk.configs.update("users/b/clients/c", {"x": None})
    assert (zk.names("/config/users"), zk.names("/config/users/b")) == (["b"], [])
    numbers = config_changes(zk).numbers()
    zk.configs.update("users/none", {"x": None})
    assert config_changes(zk).numbers() == numbers
    assert len(numbers) == 7


@pytest.mark.parametrize("there_before", [True, False])
def test_a_setting_changed_by_another_meanwhile_is_not_lost(connect, there_before):
    (one, _), (two, _) = connect(), connect()
    if there_before:
        one.configs.change("topics/t", lambda stored: {"a": "1"})
    others = [{"theirs": "2"}]

    def change(stored):
        if others:
            theirs = others.pop()
            two.configs.change("topics/t", lambda stored: stored | theirs)
        return stored | {"ours": "3"}

    one.configs.change("topics/t", change)
    assert one.configs.of("topics/t") == ({"a": "1"} if there_before else {}) | {"theirs": "2", "ours": "3"}
    numbers = config_changes(one).numbers()
    assert numbers == [*range(len(numbers))], "a number that is missing would mean a change that was missed"


def test_a_change_that_is_refused_leaves_no_trace(zk):
    def refuse(stored):
        raise CoordinationError("no")

    with pytest.raises(CoordinationError):
        zk.configs.change("topics/t", refuse)
    assert (zk.configs.of("topics/t"), config_changes(zk).numbers()) == ({}, [])
