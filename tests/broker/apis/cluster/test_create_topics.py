"""CreateTopics: how many partitions one request makes."""

import asyncio
from types import SimpleNamespace

import pytest

from sparklog.broker.apis.cluster import create_topics
from sparklog.broker.client_quotas import ClientQuotas
from sparklog.broker.context import ApiRequest
from sparklog.broker.topics import TopicMaker
from sparklog.config.broker import BrokerConfig, parse_broker_config
from sparklog.config.dynamic import Layers
from sparklog.errors import ErrorCode
from sparklog.net.turns import Turns
from sparklog.protocol.messages import CreateTopicsRequest
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.structs import Endpoint
from sparklog.testing.clock import ManualClock
from sparklog.zk.znodes import BrokerInfo

_Topic = CreateTopicsRequest.CreatableTopic


def topic(name, partitions, *chosen):
    assignments = [
        _Topic.CreatableReplicaAssignment(
            partition_index=number, broker_ids=brokers if isinstance(brokers, list) else [brokers]
        )
        for number, brokers in enumerate(chosen)
    ]
    factor = -1 if chosen else 1
    return _Topic(name=name, num_partitions=partitions, replication_factor=factor, assignments=assignments, configs=[])


def codes(*topics, validate_only=True, num_partitions=1):
    """What each topic is answered by a broker whose topics have so many partitions by default, and those made."""
    made = []

    async def run_zk(create, assignment, config):
        made.append(assignment.topic)
        return True

    async def handled():
        layers = Layers(parse_broker_config({"num.partitions": str(num_partitions)}), {})
        settings = SimpleNamespace(layers=layers, topic_defaults=layers.topic_defaults)
        metadata = SimpleNamespace(
            brokers={id_: BrokerInfo(id_, Endpoint("localhost", 9091 + id_)) for id_ in (1, 2)},
            topics=lambda: [],
            topic=lambda name: None,
        )
        broker = SimpleNamespace(
            authorizer=AllowEverything(),
            metadata=metadata,
            settings=settings,
            quotas=ClientQuotas(BrokerConfig(), ManualClock()),
            controller=SimpleNamespace(is_active=True),
            turns=Turns(asyncio.get_running_loop()),
            topics=TopicMaker(settings, metadata, SimpleNamespace(topics=SimpleNamespace(create=None)), run_zk),
        )
        message = CreateTopicsRequest(topics=[*topics], timeout_ms=0, validate_only=validate_only)
        return await create_topics.handle(broker, ApiRequest(create_topics.API, 7, "c", Caller("h"), message))

    answer = asyncio.run(handled())
    return {each.name: each.error_code for each in answer.topics}, made


@pytest.mark.parametrize("validate_only", [True, False])
def test_one_request_makes_a_bounded_number_of_partitions(monkeypatch, validate_only):
    monkeypatch.setattr(create_topics, "_MOST_PARTITIONS", 100)
    made = ErrorCode.NONE if validate_only else ErrorCode.REQUEST_TIMED_OUT  # made, and not waited for
    topics = [topic("a", 60), topic("b", 41), topic("c", 30), topic("d", -1), topic("e", -1, *[1] * 11), topic("f", 4)]
    told, written = codes(*topics, validate_only=validate_only, num_partitions=7)
    assert told == {
        "a": made,
        "b": ErrorCode.POLICY_VIOLATION,
        "c": made,
        "d": made,
        "e": ErrorCode.POLICY_VIOLATION,
        "f": ErrorCode.POLICY_VIOLATION,
    }
    assert written == ([] if validate_only else ["a", "c", "d"])


def test_as_many_topics_as_a_request_may_name_have_a_partition_each():
    told, _ = codes(*(topic(f"t{number}", 1) for number in range(300)), topic("large", 10_000), topic("next", 10_000))
    assert told.pop("next") == ErrorCode.POLICY_VIOLATION
    assert set(told.values()) == {ErrorCode.NONE}


def test_a_topic_that_is_too_large_by_itself_is_told_so():
    told, _ = codes(topic("t", 10_000), topic("u", 10_001), topic("v", 0))
    assert told == {"t": ErrorCode.NONE, "u": ErrorCode.INVALID_PARTITIONS, "v": ErrorCode.INVALID_PARTITIONS}
    assert codes(topic("w", -1, *[1] * 10_001))[0] == {"w": ErrorCode.INVALID_PARTITIONS}


@pytest.mark.parametrize(
    ("chosen", "code"),
    [
        ([[1, 2], [2, 1]], ErrorCode.NONE),
        ([[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([[1], [1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([[1, 3]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
    ids=["two each", "one broker twice", "unlike", "none", "a broker that is not there"],
)
def test_a_partition_has_as_many_replicas_as_the_others_each_on_another_broker(chosen, code):
    assert codes(topic("t", -1, *chosen))[0] == {"t": code}
    assert codes(topic("t", -1, *chosen), validate_only=False)[1] == (["t"] if code is ErrorCode.NONE else [])
