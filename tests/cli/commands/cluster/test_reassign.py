"""``sparklog cluster reassign`` and ``drain``, on three real brokers."""

import json
import re
from itertools import count

import pytest

from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.client.admin.reassignments import PartitionReassignment
from sparklog.errors import ApiError, ErrorCode
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually
from sparklog.testing.secured import ADMIN

pytestmark = pytest.mark.integration
numbers = count()


@pytest.fixture(scope="module")
def trio(tmp_path_factory):
    with ClusterHarness(tmp_path_factory.mktemp("trio"), brokers=3) as harness:
        yield harness


@pytest.fixture
def admin(trio, monkeypatch):
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP", trio.bootstrap_servers)
    with Admin(bootstrap_servers=trio.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def topic(admin):
    name = f"clicks-{next(numbers)}"
    admin.create_topics([NewTopic(name, 4, 1)])
    yield name
    admin.delete_topics([name])


@pytest.fixture
def topic_of_others(secured):
    name = f"secret-{next(numbers)}"
    with Admin(secured.client(ADMIN)) as admin:
        admin.create_topics([NewTopic(name, 1)])
        yield name
        admin.delete_topics([name])


def replicas(admin, topic):
    return [each.replicas for each in admin.describe_topics([topic])[topic].partitions]


def reassign(run, *arguments, status=0):
    done = run("cluster", "reassign", *arguments)
    assert done.status == status, done.err
    return done


def test_a_topic_is_spread_over_brokers_with_a_throttle_that_is_gone_at_the_end(run, admin, topic):
    done = reassign(run, "--topic", topic, "--brokers", "1,2", "--replication", "2", "--throttle", "50")
    assert "moved 4 partitions" in done.out
    found = replicas(admin, topic)
    assert {frozenset(each) for each in found} == {frozenset({1, 2})}
    assert sorted(each[0] for each in found) == [1, 1, 2, 2]
    names = {each.name: each.value for each in admin.topic_configs(topic)}
    assert not names["leader.replication.throttled.replicas"]
    rates = {each.name: each for each in admin.broker_configs(1)}
    assert rates["leader.replication.throttled.rate"].value == str((1 << 63) - 1)
    assert "nothing is to be moved" in reassign(run, "--topic", topic, "--brokers", "1,2").out


def test_a_plan_is_printed_and_carried_out(run, admin, topic, tmp_path):
    before = replicas(admin, topic)
    plan = reassign(run, "--topic", topic, "--replication", "3", "--dry-run").out
    assert replicas(admin, topic) == before
    assert {len(each["replicas"]) for each in json.loads(plan)["partitions"]} == {3}
    path = tmp_path / "plan.json"
    path.write_text(plan)
    reassign(run, "--plan", str(path))
    assert [list(each) for each in replicas(admin, topic)] == [
        each["replicas"] for each in json.loads(plan)["partitions"]
    ]


def test_a_broker_is_drained(run, admin, topic):
    done = run("cluster", "drain", "0")
    assert done.status == 0, done.err
    assert not [each for each in replicas(admin, topic) if 0 in each]
    assert "nothing is to be moved" in run("cluster", "drain", "0").out


@pytest.mark.parametrize("arguments", [("reassign", "--topic", "TOPIC", "--replication", "3"), ("drain", "BROKER")])
def test_how_far_moves_have_come_is_told_on_standard_error(run, admin, topic, arguments, monkeypatch):
    listed, looks = Admin.list_partition_reassignments, count()

    def slowly(self, partitions=None):
        """All are on the move, then all but one, then as it is."""
        if partitions is None:  # nothing is, before it begins
            return {}
        there = dict.fromkeys(partitions)
        look = next(looks)
        if look > 1:
            return listed(self, partitions)
        return there if look == 0 else dict(list(there.items())[1:])

    brokers = [each[0] for each in replicas(admin, topic)]  # of four partitions one of three brokers has two
    given = {"TOPIC": topic, "BROKER": str(max(brokers, key=brokers.count))}
    monkeypatch.setattr(Admin, "list_partition_reassignments", slowly)
    done = run("cluster", *(given.get(each, each) for each in arguments))
    assert done.status == 0, done.err
    moved = int(re.fullmatch(r"moved (\d+) partitions\n", done.out)[1])
    told = [line for line in done.err.splitlines() if line.endswith(" partitions moved")]
    assert (told[0], told[-1]) == (f"1 of {moved} partitions moved", f"{moved} of {moved} partitions moved")
    assert len(told) == len(set(told)), "only what is new"


@pytest.mark.parametrize("command", ["reassign", "drain"])
def test_a_move_that_somebody_else_gives_up_is_not_told_as_done(run, admin, topic, command, monkeypatch):
    """The moves are begun and given up at once: the partitions stay where they were.

    None is begun here, for brokers may be done with it before it can be given up.
    """
    before = replicas(admin, topic)
    monkeypatch.setattr("sparklog.cli.commands.cluster.reassign._LOOKS", 2)
    monkeypatch.setattr(Admin, "alter_partition_reassignments", lambda _, wanted: dict.fromkeys(wanted))
    broker = before[0][0]
    arguments = ("drain", broker) if command == "drain" else ("reassign", "--topic", topic, "--replication", "3")
    done = run("cluster", *arguments)
    assert (done.status, done.out) == (1, "moved 0 partitions\n")
    assert f"{topic}-0" in done.err
    assert "not where the move was to end" in done.err
    assert replicas(admin, topic) == before


def test_throttles_that_were_set_in_part_are_told_of(run, admin, topic, monkeypatch):
    def refuse(*_, **__):
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    before = replicas(admin, topic)
    with monkeypatch.context() as patch:
        patch.setattr(Admin, "alter_broker_configs", refuse)
        done = reassign(run, "--topic", topic, "--replication", "2", "--throttle", "50", status=1)
    assert 'the throttles stay; "sparklog cluster reassign --follow" removes them' in done.err
    assert replicas(admin, topic) == before
    reassign(run, "--follow")
    assert not {each.name: each.value for each in admin.topic_configs(topic)}["leader.replication.throttled.replicas"]


@pytest.mark.parametrize("command", ["reassign", "drain"])
def test_what_is_on_the_move_is_not_planned_anew(run, admin, topic, command, monkeypatch):
    """Its replicas are the old ones and the new: a plan of these would give it more than it is to have."""
    tp, before = TopicPartition(topic, 0), replicas(admin, topic)
    broker = before[0][0]
    moving = {tp: PartitionReassignment((9, broker), (9,), (broker,))}
    monkeypatch.setattr(Admin, "list_partition_reassignments", lambda *_: moving)
    arguments = ("drain", broker) if command == "drain" else ("reassign", "--topic", topic, "--brokers", "0,1,2")
    done = run("cluster", *arguments)
    assert (done.status, done.out) == (1, "")
    assert f"{tp} is on the move: nothing was begun" in done.err
    assert replicas(admin, topic) == before


def test_a_topic_whose_partitions_have_as_many_replicas_as_they_like_is_asked_about(run, admin, topic):
    alone, broker = replicas(admin, topic)[0], replicas(admin, topic)[1][0]
    both = (broker, next(each for each in range(3) if each != broker))
    assert admin.alter_partition_reassignments({TopicPartition(topic, 1): both})[TopicPartition(topic, 1)] is None
    eventually(lambda: not admin.list_partition_reassignments() and replicas(admin, topic)[1] == both)
    done = reassign(run, "--topic", topic, "--brokers", "0,1,2", status=2)
    assert f"partitions of topic '{topic}' have 1, 2 replicas" in done.err
    assert replicas(admin, topic)[:2] == [alone, both]


def test_a_broker_that_gets_a_replica_meanwhile_is_not_told_to_be_drained(run, admin, topic, monkeypatch):
    broker = replicas(admin, topic)[0][0]

    def late(self):
        """The first look is from before the topic was made."""
        info = described(self)
        return info._replace(topics={}) if next(looks) == 0 else info

    described, looks = Admin.describe_cluster, count()
    monkeypatch.setattr("sparklog.cli.commands.cluster.reassign._LOOKS", 1)
    monkeypatch.setattr(Admin, "describe_cluster", late)
    done = run("cluster", "drain", broker)
    assert done.status == 1
    assert f"broker {broker} has replicas of" in done.err
    assert "made meanwhile: drain it again" in done.err


def test_a_broker_that_never_was_is_not_drained(run, admin):
    done = run("cluster", "drain", "5")
    assert (done.status, done.out) == (1, "")
    assert "there is no broker 5, only 0, 1, 2" in done.err


def test_a_move_of_what_the_user_may_not_describe_is_not_told_to_have_been_given_up(run, admin, topic, monkeypatch):
    """All moves are listed to whoever may describe the cluster; where a topic is, only to whoever may describe it."""

    def as_user(self):
        info = described(self)
        return info._replace(topics={name: each for name, each in info.topics.items() if name != topic})

    described, moving = Admin.describe_cluster, [{TopicPartition(topic, 0): PartitionReassignment((0, 1), (0,), (1,))}]
    monkeypatch.setattr(Admin, "describe_cluster", as_user)
    monkeypatch.setattr(Admin, "sees_all_topics", lambda _: False)
    monkeypatch.setattr(Admin, "list_partition_reassignments", lambda *_: moving.pop() if moving else {})
    monkeypatch.setattr("sparklog.cli.commands.cluster.reassign._LOOKS", 1)
    assert "only topics that this user may describe are looked at" in reassign(run, "--follow").err


@pytest.mark.parametrize("arguments", [(), ("--dry-run",)])
def test_a_broker_with_a_replica_that_the_user_may_not_describe_is_not_drained(
    run, admin, topic, arguments, monkeypatch
):
    def as_user(self):
        info = described(self)
        return info._replace(topics={name: each for name, each in info.topics.items() if name != topic})

    described, before = Admin.describe_cluster, replicas(admin, topic)
    monkeypatch.setattr(Admin, "describe_cluster", as_user)
    monkeypatch.setattr("sparklog.cli.commands.cluster.reassign._LOOKS", 1)
    broker = before[1][0]
    done = run("cluster", "drain", str(broker), *arguments)
    assert (done.status, done.out) == (1, "")
    assert f"broker {broker} has replicas of what this user may not describe ({topic}-1" in done.err
    assert replicas(admin, topic) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("--list", "--cancel"),
        ("--cancel", "--follow"),
        ("--cancel", "--dry-run"),
        ("--follow", "--dry-run"),
        ("--list", "--throttle", "5"),
        ("--cancel", "--topic", "TOPIC", "--brokers", "1"),
        ("--plan", "PLAN", "--brokers", "1"),
        ("--plan", "PLAN", "--replication", "2"),
    ],
)
def test_what_does_not_go_together_changes_nothing(run, admin, topic, arguments, tmp_path):
    (tmp_path / "plan.json").write_text('{"partitions": []}')
    names = {"TOPIC": topic, "PLAN": str(tmp_path / "plan.json")}
    done = reassign(run, *(names.get(each, each) for each in arguments), status=2)
    assert done.out == ""
    assert arguments[-1 if arguments[-1].startswith("--") else -2] in done.err


def test_nothing_is_on_the_move(run, admin):
    assert "nothing is on the move" in reassign(run, "--list").err
    assert "gave up the moves of 0 partitions" in reassign(run, "--cancel").out
    assert "nothing is throttled" in reassign(run, "--follow").out


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ((), 2, "say what to do"),
        (("--topic", "no-such"), 2, "there is no topic"),
        (("--topic", "TOPIC", "--brokers", "x"), 2, "not a list"),
        (("--topic", "TOPIC", "--brokers", ""), 2, "not a list"),
        (("--cancel", "--topic", "no-such"), 1, "topic 'no-such'"),
        (("--topic", "TOPIC", "--brokers", "1,9"), 1, r"brokers [9]"),
        (("--topic", "TOPIC", "--replication", "9"), 1, "replication factor 9"),
    ],
)
def test_what_cannot_be_is_said(run, admin, topic, arguments, status, said):
    found = reassign(run, *(topic if each == "TOPIC" else each for each in arguments), status=status)
    assert said in found.err
    assert admin.list_partition_reassignments([TopicPartition(topic, 0)]) == {}


def test_a_refused_user_is_not_told_that_nothing_is_there(run, secured, operator, topic_of_others, tmp_path):
    plan = {"partitions": [{"topic": topic_of_others, "partition": 0, "replicas": [0]}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    for command in (("drain", "0"), ("reassign", "--topic", topic_of_others), ("reassign", "--plan", "plan.json")):
        arguments = [tmp_path / each if each == "plan.json" else each for each in command]
        done = run("cluster", *arguments, "--command-config", secured.client_file(operator))
        assert (done.status, done.out) == (1, ""), command
        assert "AUTHORIZATION_FAILED" in done.err, command
        assert " needs " in done.err, command
