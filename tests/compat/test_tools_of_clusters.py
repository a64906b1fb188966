"""Kafka 3.9's tools on three brokers of ours: what they say of replicas, and leaders that they elect."""

import json
import re
import subprocess

import pytest
from compat.dumped import same_in_all
from compat.kafka_tools import TOPICS
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import kafka_command, run_kafka_tool

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(400)]

ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
VERIFICATION = "org.apache.kafka.tools.ReplicaVerificationTool"
IDS = (0, 1, 2)
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
LACKS = {
    "--under-replicated-partitions",
    "--under-min-isr-partitions",
    "--at-min-isr-partitions",
    "--unavailable-partitions",
}
NOTHING = {option: set() for option in LACKS}


@pytest.fixture
def trio(tmp_path):
    with ClusterHarness(tmp_path, brokers=3, settings={"auto.leader.rebalance.enable": "false"}) as harness:
        yield harness


@pytest.fixture
def admin(trio):
    return AdminClient({"bootstrap.servers": trio.bootstrap_servers, "log_level": 0})


@pytest.fixture
def tool(trio):
    return lambda main_class, *arguments: run_kafka_tool(
        main_class, "--bootstrap-server", trio.bootstrap_servers, *arguments
    )


def create(admin, topic, assignment, **config):
    new = NewTopic(topic, len(assignment), replica_assignment=assignment, config=config)
    admin.create_topics([new])[topic].result(30)
    wait_for(admin, topic, lambda each: len(each.isrs) == len(each.replicas))


def wait_for(admin, topic, holds):
    """Return when it holds of every partition."""
    eventually(
        lambda: all(map(holds, admin.list_topics(topic, timeout=30).topics[topic].partitions.values())),
        what=f"the partitions of {topic}",
    )


def produce(trio, topic, partitions, count, **settings):
    common = {"bootstrap.servers": trio.bootstrap_servers, "acks": "all", "log_level": 0}
    producer = Producer({**common, **settings})
    if "transactional.id" in settings:
        producer.init_transactions(30)
        producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, f"{settings} {number}", f"{number}", partition=number % partitions)
    if "transactional.id" in settings:
        producer.commit_transaction(30)
    assert producer.flush(30) == 0


def lacking(tool):
    """By option, the partitions that it lists."""
    said = {option: tool(TOPICS, "--describe", "--topic", "[ab]", option) for option in LACKS}
    return {option: set(re.findall(r"Topic: (\w)\s+Partition: (\d)", text)) for option, text in said.items()}


def test_topics_lists_the_partitions_that_lack_replicas(trio, admin, tool):
    create(admin, "a", [[0, 1, 2], [1, 2, 0]], **{"min.insync.replicas": "2"})
    create(admin, "b", [[2]])
    both, single = {("a", "0"), ("a", "1")}, {("b", "0")}
    assert lacking(tool) == {**NOTHING, "--at-min-isr-partitions": single}

    trio.stop_broker(2)
    wait_for(admin, "a", lambda each: len(each.isrs) == 2)
    wait_for(admin, "b", lambda each: each.leader < 0)
    assert lacking(tool) == {
        "--under-replicated-partitions": both,
        "--under-min-isr-partitions": single,  # no leader is too little, to the tool
        "--at-min-isr-partitions": both | single,  # the last one in sync stays in the ISR
        "--unavailable-partitions": single,
    }

    trio.stop_broker(1)
    wait_for(admin, "a", lambda each: len(each.isrs) == 1)
    found = lacking(tool)
    assert found["--under-replicated-partitions"] == both
    assert found["--under-min-isr-partitions"] == both | single
    assert found["--unavailable-partitions"] == single

    for id_ in (1, 2):
        trio.start_broker(id_)
    for topic in "ab":
        wait_for(admin, topic, lambda each: each.leader >= 0 and len(each.isrs) == len(each.replicas))
    assert lacking(tool) == {**NOTHING, "--at-min-isr-partitions": single}


def test_leader_election_brings_leaders_back(trio, admin, tool):
    create(admin, "a", [[1, 0, 2], [2, 1, 0]])
    trio.stop_broker(1)
    wait_for(admin, "a", lambda each: each.leader != 1)
    trio.start_broker(1)
    wait_for(admin, "a", lambda each: len(each.isrs) == 3)
    which = ("--election-type", "preferred", "--topic", "a", "--partition", "0")
    assert "Successfully completed leader election (PREFERRED) for partitions a-0" in tool(ELECTION, *which)
    wait_for(admin, "a", lambda each: each.leader == each.replicas[0])
    assert "Valid replica already elected for partitions a-0" in tool(ELECTION, *which)


def test_leader_election_elects_an_unclean_leader(trio, admin, tool):
    create(admin, "a", [[0, 1]])
    trio.stop_broker(1)
    wait_for(admin, "a", lambda each: each.isrs == [0])
    produce(trio, "a", 1, 10)
    trio.stop_broker(0)
    trio.start_broker(1)
    wait_for(admin, "a", lambda each: each.leader < 0)
    which = ("--topic", "a", "--partition", "0")
    said = tool(ELECTION, "--election-type", "unclean", *which)
    assert "Successfully completed leader election (UNCLEAN) for partitions a-0" in said
    wait_for(admin, "a", lambda each: each.leader == 1)
    trio.start_broker(0)
    wait_for(admin, "a", lambda each: sorted(each.isrs) == [0, 1])
    said = tool(ELECTION, "--election-type", "unclean", *which)
    assert "Valid replica already elected for partitions a-0" in said


def test_log_dirs_describes_each_replica_alike(trio, admin, tool):
    create(admin, "a", [[0, 1, 2], [2, 0, 1]])
    produce(trio, "a", 2, 100)
    said = tool(LOG_DIRS, "--describe", "--topic-list", "a", "--broker-list", "0,1,2")
    (line,) = [line for line in said.splitlines() if line.startswith("{")]
    found = {}
    for broker in json.loads(line)["brokers"]:
        (home,) = broker["logDirs"]
        assert home["error"] is None
        found[broker["broker"]] = sorted((each["partition"], each["size"]) for each in home["partitions"])
        assert {(each["offsetLag"], each["isFuture"]) for each in home["partitions"]} == {(0, False)}
    assert sorted(found) == list(IDS)
    assert found[0] == found[1] == found[2]
    assert all(size > 0 for _, size in found[0])


def test_replica_verification_finds_all_replicas_equal(trio, admin, tmp_path):
    create(admin, "a", [[0, 1, 2]])
    for compression in COMPRESSIONS:
        produce(trio, "a", 1, 40, **{"compression.type": compression})
    options = ("--topics-include", "a", "--time", "-2", "--report-interval-ms", "200")
    said = tmp_path / "verification"
    with said.open("wb") as out:
        command = kafka_command(VERIFICATION, "--broker-list", trio.bootstrap_servers, *options)
        verification = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            caught_up = f"max lag is 0 for partition a-0 at offset {40 * len(COMPRESSIONS)} among 1 partitions"
            eventually(lambda: caught_up in said.read_text(), 120, "it to have compared all")
        finally:
            verification.kill()
            verification.wait()
    assert not re.search("match|Error|Exception", said.read_text()), said.read_text()


def test_dump_log_segments_prints_the_same_of_all_replicas(trio, admin):
    create(admin, "a", [[0, 1, 2], [1, 2, 0], [2, 0, 1]], **{"segment.bytes": "4000"})
    for id_ in IDS:
        for compression in COMPRESSIONS:
            produce(trio, "a", 3, 30, **{"compression.type": compression})
        produce(trio, "a", 3, 30, **{"transactional.id": "writer"})
        trio.stop_broker(id_)
        wait_for(admin, "a", lambda each, id_=id_: each.leader != id_)
        produce(trio, "a", 3, 30)
        trio.start_broker(id_)
        wait_for(admin, "a", lambda each: len(each.isrs) == 3)
    for id_ in IDS:
        trio.stop_broker(id_)
    values = same_in_all([trio.broker(id_).spec.data_dir for id_ in IDS], "a", 3)
    assert [len(each) for each in values] == [len(IDS) * 10 * (len(COMPRESSIONS) + 2)] * 3
