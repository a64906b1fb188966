"""What DescribeRetention tells of partitions that wait, of those whose policies fail, and of the rest."""

from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.broker.apis.cleaning import describe_retention
from sparklog.broker.context import ApiRequest
from sparklog.config.topic import TopicConfig
from sparklog.errors import ErrorCode
from sparklog.protocol.messages import DescribeRetentionRequest, decode_response, encode
from sparklog.replica.retention import Holding
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.structs import TopicPartition
from sparklog.testing.authorizer import ListedRights
from sparklog.testing.steps import counted, finish

WAITING, NEW, FOLLOWED, FAILING, PLAIN = (TopicPartition("clicks", number) for number in range(5))
WAITS = TopicConfig(offload_required=True, offload_max_bytes=900)


def partition(tp, config=WAITS, is_leader=True):
    return SimpleNamespace(tp=tp, config=config, is_leader=is_leader)


@pytest.fixture
def broker():
    served = [
        partition(WAITING),
        partition(NEW),
        partition(FOLLOWED, is_leader=False),
        partition(FAILING, TopicConfig(), is_leader=False),
        partition(PLAIN, TopicConfig()),
    ]
    holding = Holding(7, 500, 20, 900, 3, 6, 1234)
    retention = SimpleNamespace(refusals={FAILING: "so it is"}, holdings={WAITING: holding})
    return SimpleNamespace(authorizer=AllowEverything(), replicas=SimpleNamespace(served=served, retention=retention))


def steps(broker, topics):
    api = describe_retention.API
    return describe_retention.handle(
        broker, ApiRequest(api, 0, "me", Caller("h"), DescribeRetentionRequest(version=0, topics=topics))
    )


def ask(broker, topics=None):
    """What a client is told of each partition."""
    answer: Any = decode_response(describe_retention.API, 0, memoryview(encode(finish(steps(broker, topics)), 0)))
    return {
        TopicPartition(topic.name, each.partition_index): each for topic in answer.topics for each in topic.partitions
    }


def figures(each):
    return (each.offloaded_offset, each.held_bytes, each.held_records, each.lost_records, each.lost_until)


def test_leaders_tell_what_waits_and_every_replica_why_nothing_is_deleted(broker):
    told = ask(broker)
    assert list(told) == [WAITING, NEW, FAILING]
    assert figures(told[WAITING]) == (7, 500, 20, 3, 6)
    assert (told[WAITING].limit_bytes, told[WAITING].checked_ms, told[WAITING].refusal) == (900, 1234, None)
    assert [each.offload_group for each in told.values()] == ["sparklog-offload.clicks"] * 2 + [None]
    assert (told[FAILING].refusal, told[FAILING].limit_bytes) == ("so it is", -1)


def test_before_the_first_round_there_are_no_figures(broker):
    told = ask(broker, ["clicks"])[NEW]
    assert (*figures(told), told.checked_ms) == (-1,) * 6


def test_topics_that_are_not_asked_for_are_left_out(broker):
    assert ask(broker, ["users"]) == {}
    assert ask(broker, []) == {}


def test_many_partitions_are_many_steps(broker):
    broker.replicas.served = [partition(TopicPartition("t", number)) for number in range(5000)]
    assert counted(steps(broker, None))[0] == 5000


def test_each_of_many_names_is_asked_about_in_a_step_of_its_own(broker):
    names = [f"t{number}" for number in range(500)]
    broker.authorizer = rights = ListedRights(*(f"DESCRIBE topic {name}" for name in names))
    taken = steps(broker, names)
    for number, _ in enumerate(names, 1):
        next(taken)
        assert len(rights.questions) == number
    assert finish(taken).error_code == ErrorCode.NONE
