"""Brokers, controllers and partitions that are not as they should be."""

from cli.doctor.clusters import cluster, partition

from sparklog.cli.doctor.finding import Severity
from sparklog.cli.doctor.partitions import (
    broker_findings,
    controller_findings,
    partition_findings,
    zookeeper_findings,
)
from sparklog.client.admin.reassignments import PartitionReassignment
from sparklog.errors import ConnectionFailed, ErrorCode
from sparklog.structs import BrokerId, TopicPartition


def told(findings):
    return [(each.severity, each.where, each.advice) for each in findings]


def test_a_cluster_that_is_well_has_no_finding():
    found = cluster({"a": [partition(0, 0, [0, 1, 2]), partition(1, 1, [1, 2, 0])]})
    assert [
        *broker_findings(found, {}),
        *controller_findings(found, {0: 0, 1: 0}),
        *partition_findings(found, {"a": 2}, {}),
    ] == []


def test_a_partition_is_told_of_once_by_the_worst():
    parts = [
        partition(0, -1, [2], [2]),
        partition(1, 0, [0, 2], [0]),
        partition(2, 0, [0, 1, 2], [0, 1]),
        partition(3, 1, [0, 1], [0, 1]),
        partition(4, 1, [1, 0], [0, 1]),
    ]
    found = cluster({"a": parts}, live=(0, 1))
    assert told(partition_findings(found, {"a": 2}, {})) == [
        (
            Severity.ERROR, ("a-0",),
            "start broker 2; if it will not come back, give up records that it alone has:"
            " sparklog cluster elect --unclean --topic a --partition 0",
        ),
        (Severity.ERROR, ("a-1",), "start broker 2; sparklog topic describe a"),
        (Severity.WARNING, ("a-2",), "start broker 2; sparklog topic describe a"),
        (Severity.WARNING, ("a-3",), "sparklog cluster elect"),
    ]  # fmt: skip


def test_brokers_ask_for_no_more_replicas_in_sync_than_there_are():
    found = cluster({"a": [partition(0, 0, [0]), partition(1, 0, [0, 1]), partition(2, 0, [0, 1], [0])]})
    assert told(partition_findings(found, {"a": 3}, {})) == [
        (Severity.ERROR, ("a-2",), "see the logs and disks of broker 1; sparklog topic describe a")
    ]


def test_a_replica_behind_on_a_broker_that_lives_is_for_its_log():
    found = cluster({"a": [partition(0, 0, [0, 1], [0])]})
    assert told(partition_findings(found, {}, {})) == [
        (Severity.WARNING, ("a-0",), "see the logs and disks of broker 1; sparklog topic describe a")
    ]


def test_a_broker_that_has_replicas_and_is_gone_and_one_that_is_silent():
    found = cluster({"a": [partition(0, 0, [0, 3])]})
    findings = list(broker_findings(found, {1: ConnectionFailed("broker 1 has not answered within 5 s")}))
    assert [(each.severity, each.where) for each in findings] == [
        (Severity.ERROR, ("broker 3",)),
        (Severity.ERROR, ("broker 1",)),
    ]
    assert "sparklog cluster drain 3" in findings[0].advice
    assert "has not answered" in findings[1].what


def test_no_controller_and_two():
    (none,) = controller_findings(cluster({}, controller=-1), {0: -1})
    assert "no broker is the controller" in none.what
    (two,) = controller_findings(cluster({}), {0: 0, 1: 0, 2: 1})
    assert two.where == ("broker 0 says 0", "broker 1 says 0", "broker 2 says 1")
    assert {none.severity, two.severity} == {Severity.ERROR}


def test_a_topic_that_cannot_be_described():
    found = cluster({}, errors={"a": ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    assert [(each.where, each.what) for each in partition_findings(found, {}, {})] == [
        (("a",), "a topic cannot be described: TOPIC_AUTHORIZATION_FAILED")
    ]


def test_brokers_without_zookeeper_are_one_error():
    (found,) = zookeeper_findings({BrokerId(1): ConnectionFailed("no"), BrokerId(0): ConnectionFailed("no")})
    assert (found.severity, found.where) == (Severity.ERROR, ("broker 0", "broker 1"))
    assert "ZooKeeper" in found.what
    assert list(zookeeper_findings({})) == []


def moving(replicas, adding, removing=()):
    return PartitionReassignment(tuple(replicas), tuple(adding), tuple(removing))


def test_a_move_to_a_broker_that_is_gone_waits_for_it():
    found = cluster({"a": [partition(0, 0, [1, 2, 0], [1, 0])]}, live=(0, 1))
    (told_of,) = partition_findings(found, {"a": 2}, {TopicPartition("a", 0): moving([1, 2, 0], [2], [0])})
    assert (told_of.severity, told_of.where) == (Severity.WARNING, ("a-0",))
    assert "does not go on" in told_of.what
    assert told_of.advice == "start broker 2; or give the move up: sparklog cluster reassign --cancel --topic a"


def test_a_move_to_a_log_directory_that_is_gone_waits_for_it():
    offline = partition(0, 0, [1, 2, 0], [1, 0])._replace(offline=(2,))
    (told_of,) = partition_findings(
        cluster({"a": [offline]}), {}, {TopicPartition("a", 0): moving([1, 2, 0], [2], [0])}
    )
    assert (told_of.severity, told_of.where) == (Severity.WARNING, ("a-0",))
    assert told_of.advice.startswith("mend the log directory of broker 2 (sparklog log dirs); ")


def test_a_move_under_way_is_no_replica_that_is_behind():
    found = cluster({"a": [partition(0, 0, [2, 1, 0], [1, 0])]})
    (told_of,) = partition_findings(found, {"a": 2}, {TopicPartition("a", 0): moving([2, 1, 0], [2], [0])})
    assert (told_of.severity, told_of.where) == (Severity.NOTE, ("a-0",))
    assert told_of.advice.startswith("sparklog cluster reassign --list; ")


def test_a_replica_behind_that_does_not_move_is_told_of_before_the_move():
    found = cluster({"a": [partition(0, 0, [2, 1, 0], [0])]})
    (told_of,) = partition_findings(found, {"a": 1}, {TopicPartition("a", 0): moving([2, 1, 0], [2], [0])})
    assert told_of.advice == "see the logs and disks of broker 1; sparklog topic describe a"


def test_a_replica_that_a_move_takes_away_need_not_be_in_sync():
    found = cluster({"a": [partition(0, 0, [2, 0, 1], [0])]}, live=(0, 2))
    (told_of,) = partition_findings(found, {}, {TopicPartition("a", 0): moving([2, 0, 1], [2], [1])})
    assert told_of.what == "replicas are being moved to other brokers"
