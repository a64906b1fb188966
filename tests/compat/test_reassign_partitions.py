"""Kafka's own kafka-reassign-partitions, moving replicas of our brokers."""

import json
from itertools import count

import pytest

from sparklog.client import Producer
from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = [pytest.mark.peer, pytest.mark.slow]

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
MOVED_S = 60.0
numbers = count()


@pytest.fixture(scope="module")
def trio(tmp_path_factory):
    settings = {"replication.quota.window.num": 1000}  # what is throttled to a byte a second does not go on by itself
    with ClusterHarness(tmp_path_factory.mktemp("reassigned"), brokers=3, settings=settings) as harness:
        yield harness


@pytest.fixture
def admin(trio):
    with Admin(bootstrap_servers=trio.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def reassign(java, trio, tmp_path):
    """Run the tool with a plan: what it says."""

    def run(*arguments, plan=None):
        if plan is not None:
            path = tmp_path / "plan.json"
            partitions = [
                {"topic": tp.topic, "partition": tp.partition, "replicas": replicas} for tp, replicas in plan.items()
            ]
            path.write_text(json.dumps({"version": 1, "partitions": partitions}))
            arguments = (*arguments, "--reassignment-json-file", str(path))
        return java(REASSIGN, "--bootstrap-server", trio.bootstrap_servers, *arguments)

    return run


@pytest.fixture
def tp(trio, admin):
    """A partition with some megabytes, with one replica."""
    topic = f"moved-{next(numbers)}"
    admin.create_topics([NewTopic(topic, 1, 1)])
    with Producer(bootstrap_servers=trio.bootstrap_servers) as producer:
        for _ in range(40):
            producer.send(topic, bytes(100_000))
    return TopicPartition(topic, 0)


def replicas(admin, tp):
    return admin.describe_topics([tp.topic])[tp.topic].partitions[0].replicas


def settings(admin, tp):
    return {each.name: each.value for each in admin.topic_configs(tp.topic)}


def test_execute_and_verify(reassign, admin, tp):
    plan = {tp: [2, 1]}
    assert "Successfully started partition reassignment" in reassign("--execute", plan=plan)
    eventually(lambda: not admin.list_partition_reassignments(), MOVED_S, "it has moved")
    said = reassign("--verify", plan=plan)
    assert f"Reassignment of partition {tp} is completed." in said
    assert replicas(admin, tp) == (2, 1)


def test_a_throttled_move_is_listed_and_given_up(reassign, admin, tp):
    (before,) = replicas(admin, tp)
    plan = {tp: [(before + 1) % 3, (before + 2) % 3]}
    said = reassign("--execute", "--throttle", "1", plan=plan)
    assert "The inter-broker throttle limit was set to 1 B/s" in said
    throttled = settings(admin, tp)
    assert throttled["leader.replication.throttled.replicas"] == f"0:{before}"
    assert set(throttled["follower.replication.throttled.replicas"].split(",")) == {f"0:{each}" for each in plan[tp]}
    assert f"{tp}: replicas: " in reassign("--list")
    assert f"Reassignment of partition {tp} is still in progress." in reassign("--verify", plan=plan)
    assert f"Successfully cancelled partition reassignment for: {tp}" in reassign("--cancel", plan=plan)
    assert "No partition reassignments found" in reassign("--list")
    assert replicas(admin, tp) == (before,)
    assert not settings(admin, tp)["leader.replication.throttled.replicas"]


def test_a_plan_that_the_tool_made_is_carried_out_faster_when_it_says_so(reassign, admin, tp, tmp_path):
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": tp.topic}]}))
    said = reassign("--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "0,1,2")
    assert "Proposed partition reassignment configuration" in said
    plan = {tp: [0, 1, 2]}
    reassign("--execute", "--throttle", "1", plan=plan)
    assert f"Reassignment of partition {tp} is still in progress." in reassign("--verify", plan=plan)
    reassign("--execute", "--additional", "--throttle", "100000000", plan=plan)
    eventually(lambda: not admin.list_partition_reassignments(), MOVED_S, "it has moved")
    said = reassign("--verify", plan=plan)
    assert f"Reassignment of partition {tp} is completed." in said
    assert "Clearing topic-level throttles" in said
    assert not settings(admin, tp)["follower.replication.throttled.replicas"]
