"""Replicas that are moved between the log directories of their brokers, while clients write and read."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from integration import wire

from sparklog.cli.main import cli
from sparklog.client.admin.admin import Admin, Replica
from sparklog.errors import ErrorCode
from sparklog.structs import TopicPartition
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

TP = TopicPartition("t", 0)
MINE = Replica(TP, 0)
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture
def homes(tmp_path):
    return [tmp_path / "a", tmp_path / "b"]


@pytest.fixture
def broker(tmp_path, chroot, homes):
    harness = BrokerHarness(tmp_path, chroot)
    harness.spec = replace(harness.spec, data_dir=Path(",".join(map(str, homes))))
    with harness as running:
        yield running


@pytest.fixture
def connection(broker):
    with wire.connect(broker.address) as opened:
        yield opened


def admin_of(broker):
    return Admin({"bootstrap.servers": broker.address})


def write(connection, count, start=0, size=0):
    values = [b"%d" % number + b"." * size for number in range(start, start + count)]
    for value in values:
        assert wire.produce(connection, TP, wire.batch_of(value))[0] is ErrorCode.NONE
    return values


def place(admin, replica=MINE):
    return admin.describe_replica_log_dirs([replica])[replica]


def other(homes, path):
    return str(next(each for each in homes if str(each) != path))


def wait_for(admin, path, replica=MINE):
    eventually(lambda: place(admin, replica).path == path, what=f"{replica} to lie in {path}")


def test_a_partition_is_moved_while_it_is_written(broker, connection, homes):
    assert wire.create_topic(connection, TP.topic)[0] is ErrorCode.NONE
    values = write(connection, 50, size=20_000)
    more, done = [], threading.Event()

    def go_on_writing():
        with wire.connect(broker.address) as mine:
            while not done.is_set():
                more.extend(write(mine, 1, 1000 + len(more)))

    writer = threading.Thread(target=go_on_writing)
    writer.start()
    try:
        with admin_of(broker) as admin:
            for _ in range(3):
                path = other(homes, place(admin).path)
                assert admin.alter_replica_log_dirs({MINE: path}) == {MINE: None}
                wait_for(admin, path)
    finally:
        done.set()
        writer.join()
    assert wire.read_all(connection, TP) == values + more
    broker.stop()
    assert "Traceback" not in broker.output()
    broker.start()
    with wire.connect(broker.address) as again:
        eventually(lambda: wire.fetch(again, TP, 0).error is ErrorCode.NONE)
        assert wire.read_all(again, TP) == values + more


def test_a_throttled_move_is_seen_goes_on_behind_a_restart_and_is_cancelled(broker, connection, homes):
    assert wire.create_topic(connection, TP.topic)[0] is ErrorCode.NONE
    values = write(connection, 120, size=20_000)
    with admin_of(broker) as admin:
        admin.alter_broker_configs(0, {RATE: "1"})
        path = place(admin).path
        aim = other(homes, path)
        assert admin.alter_replica_log_dirs({MINE: aim}) == {MINE: None}
        eventually(lambda: 0 < place(admin).future_lag < 120, what="some of it to be copied")
        assert place(admin).future_path == aim
    broker.kill()
    broker.start()
    with admin_of(broker) as admin:
        eventually(lambda: 0 < place(admin).future_lag < 120, what="the copy to be gone on with")
        assert place(admin)[::2] == (path, aim)
        assert admin.alter_replica_log_dirs({MINE: path}) == {MINE: None}
        assert place(admin).future_path is None
        assert admin.alter_replica_log_dirs({MINE: aim}) == {MINE: None}
        admin.alter_broker_configs(0, {RATE: None})
        wait_for(admin, aim)
    with wire.connect(broker.address) as again:
        assert wire.read_all(again, TP) == values


def test_what_cannot_be_is_refused_as_kafka_does(broker, connection, homes):
    assert wire.create_topic(connection, TP.topic)[0] is ErrorCode.NONE
    nobody = Replica(TopicPartition("nobody", 0), 0)
    with admin_of(broker) as admin:
        wishes = {MINE: "/nowhere", nobody: str(homes[0])}
        errors = {each: error.code for each, error in admin.alter_replica_log_dirs(wishes).items()}
    assert errors == {MINE: ErrorCode.LOG_DIR_NOT_FOUND, nobody: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_topic_that_is_yet_to_come_is_made_where_it_was_wished(broker, connection, homes):
    with admin_of(broker) as admin:
        wished = {Replica(TopicPartition("later", number), 0): str(homes[1]) for number in range(3)}
        admin.alter_replica_log_dirs(wished)
        assert wire.create_topic(connection, "later", 3)[0] is ErrorCode.NONE
        assert {each.path for each in admin.describe_replica_log_dirs(wished).values()} == {str(homes[1])}


def command(broker, *words):
    return CliRunner().invoke(cli, ["log", *words, "--bootstrap", broker.address])


def test_the_command_line_shows_directories_and_moves_partitions(broker, connection, homes):
    assert wire.create_topic(connection, TP.topic, 2)[0] is ErrorCode.NONE
    values = write(connection, 20, size=1000)
    aim = str(homes[1])
    moved = command(broker, "move", TP.topic, "--broker", "0", "--to", aim)
    assert (moved.exit_code, moved.output) == (0, f"2 replicas of broker 0 in {aim} now\n")
    lines = [line.split("\t") for line in command(broker, "dirs").output.splitlines()]
    assert [(line[1], line[2], line[5]) for line in lines[1:]] == [(str(homes[0]), "0", "-"), (aim, "2", "-")]
    assert wire.read_all(connection, TP) == values
    begun = command(broker, "move", TP.topic, "-p", "1", "--broker", "0", "--to", str(homes[0]), "--no-wait")
    assert begun.output == f"moving 1 replica to {homes[0]}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--to", "/nowhere", "--broker", "0"), 'LOG_DIR_NOT_FOUND; "sparklog log dirs" shows its directories'),
        (("--to", "/nowhere", "--broker", "7"), "broker 7 has no replica of t"),
        (("--to", "/nowhere", "--broker", "0", "-p", "9"), "broker 0 has no replica of t 9"),
    ],
)
def test_the_command_line_says_why_it_cannot_move(broker, connection, words, said):
    assert wire.create_topic(connection, TP.topic)[0] is ErrorCode.NONE
    assert said in str(command(broker, "move", TP.topic, *words).exception)
