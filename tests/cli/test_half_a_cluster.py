"""What commands show of a cluster of which one broker is dead, or frozen: all the rest, and what is missing."""

import json
import os
import signal
import subprocess

import pytest

from sparklog.cli.extents import find_extents
from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.client.cluster.session import Session
from sparklog.protocol.api_key import ApiKey
from sparklog.structs import TopicPartition
from sparklog.testing.cluster import ClusterHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration
TOPIC = "spread"


@pytest.fixture
def half(run, monkeypatch, tmp_path):
    """Two brokers; a topic with two partitions on each, and 10 records in every one."""
    with ClusterHarness(tmp_path / "two", brokers=2) as harness:
        monkeypatch.setenv("SPARKLOG_BOOTSTRAP", harness.bootstrap_servers)
        with Admin(bootstrap_servers=harness.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(TOPIC, 4, 1)])
        for partition in range(4):
            lines = b"".join(b"%d.%d\n" % (partition, number) for number in range(10))
            assert run("produce", TOPIC, "--partition", partition, stdin=lines).status == 0
        yield harness


def led_by(harness, broker):
    with Admin(bootstrap_servers=harness.bootstrap_servers) as admin:
        return [each.partition for each in admin.describe_topics([TOPIC])[TOPIC].partitions if each.leader == broker]


@pytest.fixture(params=["dead", "frozen"])
def alive(half, request):
    """The partitions that can be asked: the others' broker is dead, and known to be, or frozen, and not known to be."""
    left = led_by(half, 0)
    if request.param == "dead":
        half.kill_broker(1)
        eventually(lambda: led_by(half, 1) == [], 60)
        yield left
    else:
        os.kill(half.broker(1).pid, signal.SIGSTOP)
        yield left
        os.kill(half.broker(1).pid, signal.SIGCONT)


def test_lists_show_what_there_is_and_mark_the_rest(run, alive):
    missing = [number for number in range(4) if number not in alive]
    listed = run("topic", "list", "--output", "json")
    assert listed.status == 0
    (row,) = json.loads(listed.out)
    assert row == {"topic": TOPIC, "partitions": 4, "copies": 1, "records": 20, "not_counted": missing}
    told = " ".join(listed.err.split())
    assert f"{TOPIC}-{missing[0]}, {TOPIC}-{missing[1]} are not counted: " in told
    assert "broker 1" in told

    described = run("topic", "describe", TOPIC, "--output", "json")
    assert described.status == 0
    ends = {each["partition"]: each["end_offset"] for each in json.loads(described.out)["partitions"]}
    assert ends == {number: 10 if number in alive else None for number in range(4)}


def test_a_frozen_broker_is_asked_once_what_its_partitions_hold(tmp_path, monkeypatch):
    """So a list waits for it once, for as long as for any broker, although it asks for what is first and for what is
    last. Its session is long: meanwhile nobody knows that it is frozen.
    """
    asked, ask = [], Session.request

    async def noted(self, broker, api, *rest, **how):
        asked.append((broker, api))
        return await ask(self, broker, api, *rest, **how)

    settings = {"zookeeper.session.timeout.ms": "60000"}
    with (
        ClusterHarness(tmp_path / "two", brokers=2, settings=settings) as harness,
        Admin(bootstrap_servers=harness.broker(0).address) as admin,
    ):
        admin.create_topics([NewTopic(TOPIC, 4, 1)])
        monkeypatch.setattr(Session, "request", noted)
        os.kill(harness.broker(1).pid, signal.SIGSTOP)
        try:
            extents = find_extents(admin, [TopicPartition(TOPIC, number) for number in range(4)])
        finally:
            os.kill(harness.broker(1).pid, signal.SIGCONT)
    assert asked.count((0, ApiKey.LIST_OFFSETS)) == 2
    assert asked.count((1, ApiKey.LIST_OFFSETS)) == 1
    assert len(extents.end) == len(extents.failures) == 2


def test_groups_are_listed_but_for_those_that_a_frozen_broker_coordinates(run, half):
    os.kill(half.broker(1).pid, signal.SIGSTOP)
    try:
        listed = run("group", "list")
    finally:
        os.kill(half.broker(1).pid, signal.SIGCONT)
    assert (listed.status, listed.out) == (0, "group\tstate\ttype\tprotocol\n")
    assert listed.err == "" or listed.err.endswith("the groups that it coordinates are not listed\n")


@pytest.mark.parametrize(
    ("command", "lines", "said"),
    [
        (("txn", "list"), 1, "the transactional ids that it coordinates are not listed\n"),
        (("log", "dirs"), 2, "its directories are not shown\n"),
    ],
)
def test_what_all_brokers_tell_is_shown_but_for_that_of_a_frozen_one(run, half, command, lines, said):
    os.kill(half.broker(1).pid, signal.SIGSTOP)
    try:
        shown = run(*command)
    finally:
        os.kill(half.broker(1).pid, signal.SIGCONT)
    assert (shown.status, len(shown.out.splitlines())) == (0, lines)
    assert shown.err == "" or shown.err.endswith(said)


def test_consume_prints_what_can_be_read_and_names_the_rest(run, alive):
    read = run("consume", TOPIC)
    assert read.status == 1
    assert sorted(read.out.split()) == sorted(f"{each}.{number}" for each in alive for number in range(10))
    missing = [f"{TOPIC}-{number}" for number in range(4) if number not in alive]
    assert f"{', '.join(missing)} are not read: " in " ".join(read.err.split())
    only = run("consume", TOPIC, "--partition", alive[0], "--from", "8")
    assert only == (0, f"{alive[0]}.8\n{alive[0]}.9\n", "")


def test_produce_writes_lines_without_keys_to_what_has_a_leader(run, half):
    led = led_by(half, 0)
    half.kill_broker(1)
    eventually(lambda: led_by(half, 1) == [], 60)
    lines = b"".join(b"%d\n" % number for number in range(1000))
    written = run("produce", TOPIC, stdin=lines)
    assert (written.status, written.out) == (0, "")
    assert "waiting" not in written.err
    read = [json.loads(line) for line in run("consume", TOPIC, "--from", "10", "--json").out.splitlines()]
    assert sorted(int(each["value"]) for each in read) == list(range(1000))
    assert {each["partition"] for each in read} == set(led)


def test_produce_says_at_once_what_it_waits_for(half, spawn, run):
    (missing, *_) = led_by(half, 1)
    half.kill_broker(1)
    eventually(lambda: led_by(half, 1) == [], 60)
    writer = spawn("produce", TOPIC, "-p", missing, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    writer.stdin.write("a\n")
    writer.stdin.close()
    said = writer.stderr.readline()
    assert said.startswith(
        f"waiting, for up to 120 s: LEADER_NOT_AVAILABLE: partition {TOPIC}-{missing} has no leader; "
    )
    assert "start the broker" in said
    half.start_broker(1)
    assert writer.wait(60) == 0
    assert run("consume", TOPIC, "-p", missing, "--from", "10").out == "a\n"


def test_erase_names_a_partition_without_a_leader_when_its_time_to_wait_is_over(run, half, tmp_path):
    (missing, *_) = led_by(half, 1)
    half.kill_broker(1)
    eventually(lambda: led_by(half, 1) == [], 60)
    keys = tmp_path / "keys"
    keys.write_text("k\n")
    erased = run("erase", TOPIC, "--keys", keys, "--dry-run", "--wait", "0")
    assert (erased.status, erased.out) == (1, "")
    told = " ".join(erased.err.split())
    assert f"no broker leads partition {TOPIC}-{missing}" in told
    assert "start the broker that has it" in told
    others = [each for number in led_by(half, 0) for each in ("--partition", number)]
    assert run("erase", TOPIC, "--keys", keys, "--dry-run", *others).status == 0


def test_follow_goes_on_with_what_has_a_leader(run, half, spawn):
    (alive, *_) = led_by(half, 0)
    follower = spawn("consume", TOPIC, "--from", "10", "--follow", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert run("produce", TOPIC, "-p", alive, stdin=b"before\n").status == 0
    assert follower.stdout.readline() == b"before\n"
    half.kill_broker(1)
    eventually(lambda: led_by(half, 1) == [], 60)
    assert run("produce", TOPIC, "-p", alive, stdin=b"after\n").status == 0
    assert follower.stdout.readline() == b"after\n"
    follower.send_signal(signal.SIGINT)
    assert follower.wait(60) == 130
