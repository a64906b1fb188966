"""Brokers of both kinds in one cluster: each follows, leads, obeys and controls the other, and takes its place."""

import re
import subprocess
from itertools import chain
from pathlib import Path

import pytest
from compat.dumped import dump
from compat.kafka_tools import TOPICS
from compat.mixed import MixedCluster
from compat.traffic import Traffic

from sparklog.local.broker import PROGRAM
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import run_kafka_tool

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]
_INTERNAL = ("__consumer_offsets", "__transaction_state")


@pytest.fixture
def cluster(tmp_path):
    with MixedCluster(tmp_path, {"default.replication.factor": 2}) as cluster:
        yield cluster


def whole(cluster, topic, partitions):
    cluster.wait_until_whole(topic, [2] * partitions)
    for each in _INTERNAL:
        cluster.wait_until_whole(each, [2] * 4)


def stored(cluster, topic, partitions):
    """By partition the values in the replicas of brokers 1 and 2, whose batches and records are the same."""
    directories = {
        (number, id_): cluster.log_dir(id_) / f"{topic}-{number}" for number in range(partitions) for id_ in (1, 2)
    }
    text, complaints = dump(chain.from_iterable(map(segments, directories.values())), "--print-data-log")
    assert not complaints
    printed = {which: printed_of(directory, text) for which, directory in directories.items()}
    for number in range(partitions):
        assert printed[number, 1] == printed[number, 2] != []
    return [re.findall(r" payload: (.*)", "\n".join(printed[number, 1])) for number in range(partitions)]


def segments(directory):
    return sorted(directory.glob("*.log"))


def printed_of(directory, text):
    """What was printed of the batches and records in a directory, without their places in the files."""
    lines = []
    for each in re.split(r"^Dumping ", text, flags=re.MULTILINE)[1:]:
        file, *content = each.splitlines()
        if Path(file).parent == directory:
            lines += [re.sub(r" position: \d+", "", line) for line in content if line.startswith(("base", "| offset"))]
    return lines


@pytest.mark.parametrize("controller", ["kafka", "ours"])
def test_each_follows_and_leads_the_other_and_outlives_it(cluster, controller):
    kafka, ours = (1, 2) if controller == "kafka" else (2, 1)
    starts = {kafka: cluster.kafka, ours: cluster.ours}
    for id_ in (1, 2):
        starts[id_](id_)
    cluster.create("clicks", [[1, 2], [2, 1]])
    assert cluster.controller() == 1
    written = []
    for number, id_ in enumerate((1, 2)):
        for partition in (0, 1):
            cluster.produce("clicks", partition, [f"{number}-{each}" for each in range(20)])
        written += [f"{number}-{each}" for each in range(20)]
        cluster.brokers[id_].kill()
        cluster.wait_until_led("clicks", [3 - id_] * 2)
        for partition in (0, 1):
            cluster.produce("clicks", partition, [f"{number}-alone"])
        written.append(f"{number}-alone")
        cluster.brokers[id_].start()
        cluster.wait_until_whole("clicks", [2, 2])
    for id_ in (1, 2):
        cluster.brokers[id_].stop()
    assert stored(cluster, "clicks", 2) == [written, written]


@pytest.mark.parametrize("controller", ["kafka", "ours"])
def test_transactions_and_groups_go_on_while_each_broker_dies_in_turn(cluster, controller):
    for id_ in (2, 3):
        cluster.kafka(id_) if controller == "kafka" else None
    cluster.ours(1)
    for id_ in (2, 3):
        cluster.kafka(id_) if controller == "ours" else None
    cluster.create("clicks", [[1, 2], [2, 3], [3, 1]])
    with Traffic(cluster.bootstrap, "clicks", 3) as traffic:
        traffic.moves_on()
        for id_ in (1, 2, 3):
            cluster.brokers[id_].kill()
            traffic.moves_on()
            cluster.brokers[id_].start()
            whole(cluster, "clicks", 3)
            traffic.moves_on()
    traffic.check()


def test_a_running_cluster_is_taken_over_broker_by_broker_and_given_back(cluster):
    for id_ in (1, 2):
        cluster.kafka(id_)
    cluster.create("clicks", [[1, 2], [2, 1]])
    checked = subprocess.run(
        [*PROGRAM, "takeover", "check", "--zookeeper", cluster.zookeeper], timeout=120, check=False
    )
    assert checked.returncode == 0
    with Traffic(cluster.bootstrap, "clicks", 2) as traffic:
        traffic.moves_on()
        for start in (cluster.ours, cluster.kafka):
            for id_ in (1, 2):
                cluster.brokers[id_].stop()
                traffic.moves_on()
                start(id_)
                whole(cluster, "clicks", 2)
                traffic.moves_on()
    traffic.check()
    assert not traffic.unclear  # every stop was an orderly one
    whole(cluster, "clicks", 2)
    for id_ in (1, 2):
        cluster.brokers[id_].stop()
    stored(cluster, "clicks", 2)


def test_ours_controls_what_kafkas_tools_ask_of_kafkas_broker(cluster):
    cluster.ours(1)
    cluster.kafka(2)
    at = ("--bootstrap-server", f"127.0.0.1:{cluster.brokers[2].port}")
    run_kafka_tool(TOPICS, *at, "--create", "--topic", "made", "--partitions", "2", "--replication-factor", "2")
    cluster.wait_until_whole("made", [2, 2])
    run_kafka_tool(TOPICS, *at, "--alter", "--topic", "made", "--partitions", "4")
    cluster.wait_until_whole("made", [2] * 4)
    for partition in range(4):
        cluster.produce("made", partition, [b"x"], **{"enable.idempotence": True})  # its id is given by the controller
    run_kafka_tool(TOPICS, *at, "--delete", "--topic", "made")
    eventually(lambda: "made" not in run_kafka_tool(TOPICS, *at, "--list").split(), what="the topic to go")
    for id_ in (1, 2):
        directory = cluster.log_dir(id_)
        eventually(lambda held=directory: not list(held.glob("made-?")), what=f"its files to go from {directory}")
