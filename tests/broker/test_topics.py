"""Which topics may be made, and how they are laid out."""

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from sparklog.broker.topics import TopicMaker
from sparklog.config.broker import parse_broker_config
from sparklog.config.dynamic import Layers
from sparklog.errors import ApiError, ErrorCode
from sparklog.structs import Endpoint
from sparklog.zk.znodes import BrokerInfo

BROKERS = {number: BrokerInfo(number, Endpoint("localhost", 9092)) for number in (3, 1, 2)}


@pytest.fixture
def maker():
    metadata = SimpleNamespace(brokers=BROKERS, topics=lambda: [SimpleNamespace(name="a.b_c")])
    return TopicMaker(settings({"num.partitions": "4"}), metadata, None, None)


def settings(static, **dynamic):
    layers = Layers(parse_broker_config(static), dynamic)
    return SimpleNamespace(layers=layers, topic_defaults=layers.topic_defaults)


def test_defaults_are_the_brokers(maker):
    assignment, config = maker.plan("t", -1, -1, {"retention.ms": "5"})
    assert list(assignment.partitions) == [0, 1, 2, 3]
    assert {len(replicas) for replicas in assignment.partitions.values()} == {1}
    assert {replicas[0] for replicas in assignment.partitions.values()} == {1, 2, 3}
    assert config == {"retention.ms": "5"}
    assert maker.plan("t", -1, -1, {})[0].topic_id != assignment.topic_id


def test_leaders_begin_anywhere(maker):
    firsts = {maker.plan("t", 1, 1, {})[0].partitions[0][0] for _ in range(200)}
    assert firsts == {1, 2, 3}


def test_replicas_of_a_partition_lie_in_different_racks():
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    brokers = {id_: BrokerInfo(id_, Endpoint("localhost", 9092), rack) for id_, rack in racks.items()}
    maker = TopicMaker(settings({}), SimpleNamespace(brokers=brokers, topics=list), None, None)
    partitions = maker.plan("t", 8, 2, {})[0].partitions  # as many as two rounds over the brokers, wherever they begin
    assert [{racks[each] for each in replicas} for replicas in partitions.values()] == [{"a", "b"}] * 8


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("", 1, 1, {}), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (("..", 1, 1, {}), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (("a b", 1, 1, {}), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (("x" * 250, 1, 1, {}), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (("t", 0, 1, {}), ErrorCode.INVALID_PARTITIONS),
        (("t", -2, 1, {}), ErrorCode.INVALID_PARTITIONS),
        (("t", 1_000_000_000, 1, {}), ErrorCode.INVALID_PARTITIONS),
        (("t", 1, 0, {}), ErrorCode.INVALID_REPLICATION_FACTOR),
        (("t", 1, 4, {}), ErrorCode.INVALID_REPLICATION_FACTOR),
        (("t", 1, 1, {"no.such": "1"}), ErrorCode.INVALID_CONFIG),
        (("t", 1, 1, {"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (("t", 1, 1, {"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (("t", 1, 1, {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}), ErrorCode.INVALID_CONFIG),
        (("a_b.c", 1, 1, {}), ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(maker, arguments, code):
    with pytest.raises(ApiError) as caught:
        maker.plan(*arguments)
    assert caught.value.code is code


def test_settings_must_go_together_with_those_of_the_broker_in_force():
    metadata = SimpleNamespace(brokers={1: BROKERS[1]}, topics=list)
    own = {"min.compaction.lag.ms": "40"}
    for of_broker, fits in (("40", True), ("39", False)):
        in_force = settings({}, **{"log.cleaner.max.compaction.lag.ms": of_broker})
        with nullcontext() if fits else pytest.raises(ApiError, match=r"max\.compaction\.lag\.ms=39"):
            assert TopicMaker(in_force, metadata, None, None).plan("t", 1, 1, own)[1] == own


def test_a_topic_does_not_collide_with_itself(maker):
    assert maker.plan("a.b_c", 1, 1, {})[0].topic == "a.b_c"


def test_a_cluster_without_brokers_makes_no_topics():
    maker = TopicMaker(settings({}), SimpleNamespace(brokers={}), None, None)
    with pytest.raises(ApiError) as caught:
        maker.plan("t", 1, 1, {})
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_topic_that_is_asked_for_before_any_broker_is_known_may_exist():
    maker = TopicMaker(settings({}), SimpleNamespace(brokers={}), None, None)
    assert asyncio.run(maker.ensure("t")) is ErrorCode.LEADER_NOT_AVAILABLE


def test_a_topic_that_takes_long_is_made_once_and_nobody_waits_for_long():
    async def body():
        asked, answered = [], asyncio.get_running_loop().create_future()

        def run_zk(create, assignment, config):
            asked.append(assignment.topic)
            return answered

        metadata = SimpleNamespace(brokers={1: BROKERS[1]}, topics=list, wait_for=at_once)
        maker = TopicMaker(settings({}), metadata, SimpleNamespace(topics=SimpleNamespace(create=None)), run_zk)
        for _ in range(2):
            assert await maker.ensure("t", 0.001) is ErrorCode.LEADER_NOT_AVAILABLE
        assert asked == ["t"]
        answered.set_result(True)
        assert await maker.ensure("t") is ErrorCode.NONE

    async def at_once(condition, timeout):
        return True

    asyncio.run(body())
