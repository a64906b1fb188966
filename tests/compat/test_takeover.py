"""Brokers of both kinds in one cluster: each follows, leads, obeys and controls the other, and takes its place."""

import subprocess

import pytest
from compat.dumped import same_in_all
from compat.kafka_tools import TOPICS
from compat.mixed import MixedCluster
from compat.rolling import Takeover
from compat.traffic import Traffic
from histories.checker import check
from histories.drill import COPIERS, SOURCE, TARGET
from histories.history import load

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
        cluster.start_again(id_)
        cluster.wait_until_whole("clicks", [2, 2])
    for id_ in (1, 2):
        cluster.brokers[id_].stop()
    assert same_in_all(map(cluster.log_dir, (1, 2)), "clicks", 2) == [written, written]


@pytest.mark.parametrize(
    "kinds", ["kafka-kafka-ours", "ours-kafka-kafka", "ours-ours-kafka", "kafka-ours-ours"]
)  # the first is the controller
def test_transactions_and_groups_go_on_while_each_broker_dies_in_turn(cluster, kinds):
    for id_, kind in enumerate(kinds.split("-"), 1):
        getattr(cluster, kind)(id_)
    assert cluster.controller() == 1
    cluster.create("clicks", [[1, 2], [2, 3], [3, 1]])
    with Traffic(cluster.bootstrap, "clicks", 3) as traffic:
        traffic.moves_on()
        for id_ in (1, 2, 3):
            cluster.brokers[id_].kill()
            traffic.moves_on()
            cluster.start_again(id_)
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
    same_in_all(map(cluster.log_dir, (1, 2)), "clicks", 2)


@pytest.mark.timeout(1500)
def test_three_are_taken_over_and_given_back_and_the_history_holds(tmp_path):
    drill = Takeover(tmp_path, 1)
    drill.run()
    assert not drill.crashes()
    assert not drill.restarted
    breaches = check(load(drill.history), {COPIERS: (SOURCE, TARGET)})
    assert not breaches, "\n".join(str(each)[:1000] for each in breaches[:20])
    values = same_in_all([drill.cluster.log_dir(each) for each in range(3)], SOURCE, 3)
    assert all(values)


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
