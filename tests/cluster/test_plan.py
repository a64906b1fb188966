"""Plans: as Kafka's tool writes them, and as they are made here."""

import json
import re
from uuid import UUID

import pytest

from sparklog.cluster.info import ClusterInfo, PartitionInfo, TopicInfo
from sparklog.cluster.plan import changed, drained, format_plan, newcomers, parse_plan, sources, throttled
from sparklog.errors import ConfigError
from sparklog.structs import BrokerId, Endpoint, LeaderEpoch, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def cluster(*replicas, live=(1, 2, 3, 4), racks=None):
    partitions = tuple(
        PartitionInfo(number, BrokerId(each[0]), LeaderEpoch(0), each, each) for number, each in enumerate(replicas)
    )
    brokers = {BrokerId(each): Endpoint("h", each) for each in live}
    topics = {"t": TopicInfo("t", UUID(int=1), False, partitions)}
    return ClusterInfo("c", BrokerId(1), brokers, topics, {}, racks or {})


def test_a_plan_is_read_as_kafkas_tool_writes_it():
    text = (
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,1],"log_dirs":["any","any"]},'
        '{"topic":"t","partition":1,"replicas":[3],"log_dirs":["any"]}]}'
    )
    plan = parse_plan(text)
    assert plan == {T0: (2, 1), T1: (3,)}
    assert parse_plan(format_plan(plan)) == plan
    assert json.loads(format_plan(plan))["version"] == 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (" \n", "not a plan: there is nothing in it; one looks like"),
        ("{}", "the plan lacks 'partitions'; one looks like"),
        ("{", "not a plan: it is not JSON from line 1, column 2 on; one looks like"),
        ("9" * 5000, "it is not JSON that can be read"),
        ("[" * 100_000, "it is not JSON that can be read"),
        ("[1]", "'[1]' stands where an object with 'partitions' should"),
        ('{"partitions": 7}', "its 'partitions' is 7, and not a list"),
        ('{"partitions": [7]}', "'7' stands where an object with 'topic' should"),
        ('{"partitions": [{"topic": "t"}]}', "the plan lacks 'partition'; one looks like"),
        (
            '{"partitions": [{"topic": "t", "partition": "x", "replicas": [1]}]}',
            "its 'partition' is 'x', and not a whole",
        ),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": 1}]}', "its 'replicas' is 1, and not a list"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": ["b"]}]}',
            "gives t-0 the replica 'b', which is not",
        ),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "one or more"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "each once"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
            ' {"topic": "t", "partition": 0, "replicas": [2]}]}',
            "twice",
        ),
    ],
)
def test_what_is_no_plan_is_refused(text, complaint):
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        parse_plan(text)


def test_only_what_changes_is_moved():
    info = cluster((1, 2), (2, 3))
    assert changed(info, {T0: (1, 2), T1: (3, 2)}) == {T1: (3, 2)}
    with pytest.raises(ConfigError, match="no partition"):
        changed(info, {TopicPartition("u", 0): (1,)})
    with pytest.raises(ConfigError, match=r"\[7\]"):
        changed(info, {T0: (7, 1)})
    assert changed(cluster((1, 2), live=(2, 3)), {T0: (3, 1)}), "one that is a replica already need not live"


def test_a_broker_is_drained_to_those_that_have_the_least():
    info = cluster((1, 2), (2, 1), (1, 3), (3, 2))
    plan = drained(info, 1)
    assert plan == {T0: (4, 2), T1: (2, 4), TopicPartition("t", 2): (4, 3)}
    assert all(1 not in replicas for replicas in plan.values())
    assert drained(info, 4) == {}


def test_a_dead_broker_is_drained_too():
    assert drained(cluster((1, 2), live=(2, 3)), 1) == {T0: (3, 2)}


def test_a_broker_that_never_was_is_not_drained():
    with pytest.raises(ConfigError, match="there is no broker 5, only 1, 2, 3"):
        drained(cluster((1, 2), live=(2, 3)), 5)


def test_a_drained_replica_goes_to_a_rack_without_another():
    racks = {BrokerId(2): "a", BrokerId(3): "a", BrokerId(4): "b"}
    assert drained(cluster((1, 2), (4,), (4,), (4,), racks=racks), 1) == {T0: (4, 2)}


def test_a_broker_whose_replicas_nobody_can_take_is_not_drained():
    with pytest.raises(ConfigError, match="t-0 has a replica on every live broker"):
        drained(cluster((1, 2), live=(1, 2)), 1)


def test_those_who_send_and_those_who_copy_are_throttled():
    info = cluster((1, 2), (2, 3))
    plan = {T0: (3, 1), T1: (3, 2)}
    assert throttled(sources(info, plan)) == {"t": "0:1,0:2,1:2,1:3"}
    assert throttled(newcomers(info, plan)) == {"t": "0:3"}
