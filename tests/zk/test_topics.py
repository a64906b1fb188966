"""Topics in a real ZooKeeper: made once, grown and deleted by the controller in office."""

import json
import threading
from uuid import UUID

import pytest
from zk.tree import controller_of

from sparklog.errors import CoordinationError
from sparklog.zk.znodes import (
    TopicAssignment,
    delete_topic_path,
    topic_path,
)

pytestmark = pytest.mark.integration


def test_a_topics_life(zk):
    topic = TopicAssignment("t", {0: (1,), 1: (2,)}, UUID(int=5))
    assert zk.topics.create(topic, {"retention.ms": "5"})
    assert not zk.topics.create(TopicAssignment("t", {0: (9,)}), {"retention.ms": "6"})
    assert zk.topics.names() == ["t"]
    assert zk.topics.assignment("t") == topic
    assert zk.configs.of_topic("t") == {"retention.ms": "5"}
    zk.topics.request_deletion("t")
    zk.topics.request_deletion("t")
    assert zk.topics.to_delete() == {"t": None}
    _, version = zk.office.take(1, 5)
    zk.topics.forget("t", version)
    zk.topics.forget("t", version)
    assert (zk.topics.names(), zk.topics.to_delete(), zk.topics.assignment("t"), zk.configs.of_topic("t")) == (
        [],
        {},
        None,
        {},
    )


def test_a_request_to_delete_what_was_never_there_is_dropped_and_a_topic_made_since_kept(zk):
    version = controller_of(zk)
    for name in ("never", "t"):
        zk.topics.request_deletion(name)
        zk.topics.forget_deletion(name, version)
    assert zk.topics.to_delete() == {"t": None}
    assert zk.topics.names() == ["t"]


def test_a_broker_keeps_its_replicas_but_of_a_topic_that_goes_and_where_a_move_takes_them_away(zk):
    controller_of(zk)
    moving = {"removing": {2: (2,)}, "adding": {2: (3,)}}
    zk.topics.create(TopicAssignment("u", {0: (1, 2), 1: (1, 3), 2: (1, 2, 3)}, UUID(int=5), **moving), {})
    assert [zk.topics.kept_by(broker_id, "u") for broker_id in range(1, 5)] == [{0, 1, 2}, {0}, {1, 2}, set()]
    zk.topics.request_deletion("u", UUID(int=6))
    assert zk.topics.kept_by(2, "u") == {0}, "another topic of that name is meant"
    zk.topics.request_deletion("u")
    assert zk.topics.kept_by(2, "u") == set()
    assert zk.topics.kept_by(2, "never") == set()


def test_a_request_to_delete_by_id_is_of_that_topic_alone(zk):
    version = controller_of(zk)
    assert zk.topics.create(TopicAssignment("u", {0: (1,)}, UUID(int=5)), {})
    zk.topics.request_deletion("u", UUID(int=5))
    zk.topics.forget_deletion("u", version)
    assert zk.topics.to_delete() == {"u": UUID(int=5)}
    zk.topics.forget("u", version)
    assert zk.topics.create(TopicAssignment("u", {0: (1,)}, UUID(int=6)), {})
    zk.topics.request_deletion("u", UUID(int=5))
    zk.topics.forget_deletion("u", version)
    assert zk.topics.to_delete() == {}
    zk.topics.request_deletion("u", UUID(int=5))
    zk.topics.request_deletion("u")
    assert zk.topics.to_delete() == {"u": None}, "whichever it is"


def test_a_request_to_delete_by_id_takes_the_place_of_one_for_another_topic_of_the_name(zk):
    zk.topics.request_deletion("t", UUID(int=5))
    zk.topics.request_deletion("t", UUID(int=6))
    assert zk.topics.to_delete() == {"t": UUID(int=6)}
    zk.topics.request_deletion("t")
    zk.topics.request_deletion("t", UUID(int=6))
    assert zk.topics.to_delete() == {"t": None}, "whichever it is, and so that one too"


@pytest.mark.parametrize("after", ["the request", "the topic"])
def test_a_request_to_delete_that_comes_while_another_is_forgotten_stays(zk, monkeypatch, after):
    """Whichever of the two was read when it came."""
    version = controller_of(zk)
    zk.topics.request_deletion("u", UUID(int=5))
    path, get = {"the request": delete_topic_path("u"), "the topic": topic_path("u")}[after], zk.topics._zk.get

    def get_and_ask(asked, *arguments):
        found = get(asked, *arguments)
        if asked == path:
            monkeypatch.undo()
            assert zk.topics.create(TopicAssignment("u", {0: (1,)}, UUID(int=6)), {})
            zk.topics.request_deletion("u", UUID(int=6))
        return found

    monkeypatch.setattr(zk.topics._zk, "get", get_and_ask)
    zk.topics.forget_deletion("u", version)
    assert zk.topics.to_delete() == {"u": UUID(int=6)}


def test_a_request_to_delete_as_kafka_makes_it_has_no_data_at_all(zk):
    zk.kazoo.create(delete_topic_path("t"), None, makepath=True)
    assert zk.kazoo.get(delete_topic_path("t"))[0] is None
    assert zk.topics.to_delete() == {"t": None}
    zk.topics.forget_deletion("t", controller_of(zk))
    assert zk.topics.to_delete() == {"t": None}


def test_of_many_who_make_a_topic_one_does_and_its_settings_are_in_force(connect):
    clients = [connect()[0] for _ in range(4)]
    for round_ in range(5):
        name, start, made = f"t{round_}", threading.Barrier(4), {}

        def make(number, name=name, start=start, made=made):
            topic = TopicAssignment(name, {0: (number,)}, UUID(int=number + 1))
            start.wait()
            made[number] = clients[number].topics.create(topic, {"retention.ms": str(number)})

        threads = [threading.Thread(target=make, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        [winner] = [number for number, done in made.items() if done]
        assert clients[0].topics.assignment(name).partitions == {0: (winner,)}
        assert clients[0].configs.of_topic(name) == {"retention.ms": str(winner)}


def test_settings_that_are_left_of_another_topic_are_replaced(zk):
    zk.configs.change("topics/t", lambda _: {"retention.ms": "1"})
    assert zk.topics.create(TopicAssignment("t", {0: (1,)}), {})
    assert zk.configs.of_topic("t") == {}


def test_partitions_are_added_beside_all_else_that_the_topic_has(zk):
    version = controller_of(zk)
    path = topic_path("t")
    raw = json.loads(zk.kazoo.get(path)[0])
    zk.kazoo.set(path, json.dumps(raw | {"topic_id": "AAAAAAAAAAAAAAAAAAAABQ", "foreign": 1}).encode())
    zk.topics.add_partitions(TopicAssignment("t", dict.fromkeys(range(5), (1,))), version)
    grown = json.loads(zk.kazoo.get(path)[0])
    assert grown == raw | {
        "topic_id": "AAAAAAAAAAAAAAAAAAAABQ",
        "foreign": 1,
        "partitions": {str(number): [1] for number in range(5)},
    }


def test_partitions_are_added_by_the_controller_only_and_never_in_place_of_others(zk):
    version = controller_of(zk)
    grown = TopicAssignment("t", dict.fromkeys(range(5), (1,)))
    with pytest.raises(CoordinationError, match="another controller"):
        zk.topics.add_partitions(grown, version + 1)
    for other in ({0: (1,)}, dict.fromkeys(range(5), (2,))):
        with pytest.raises(CoordinationError, match="changed meanwhile"):
            zk.topics.add_partitions(TopicAssignment("t", other), version)
    assert len(zk.topics.assignment("t").partitions) == 3
