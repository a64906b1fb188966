"""Kafka 1.1's old consumer and ours in one group in ZooKeeper, on a broker of Kafka's and on one of ours."""

import json
import uuid
from contextlib import contextmanager

import pytest

from sparklog.client import Admin, NewTopic, Producer
from sparklog.client.zookeeper.consumer import ZooKeeperConsumer
from sparklog.errors import ConfigError
from sparklog.local.jars import jar_set
from sparklog.local.process import ChildProcess
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import KafkaBroker, kafka_command
from sparklog.zk.client import ZkClient

pytestmark = pytest.mark.peer
JARS = "kafka-1.1"
SMALL = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
SETTINGS = {"zookeeper.session.timeout.ms": 6000, "rebalance.backoff.ms": 200, "rebalance.max.retries": 200}
PARTITIONS = 5


@pytest.fixture(scope="module", params=["kafka", "sparklog"])
def connect(zookeeper, request):
    return f"{zookeeper.connect_string}/old-consumer-{request.param}"


@pytest.fixture(scope="module")
def servers(connect, tmp_path_factory):
    try:
        jar_set(JARS)
    except ConfigError as error:
        pytest.skip(str(error))
    directory = tmp_path_factory.mktemp("broker")
    if connect.endswith("-kafka"):
        with KafkaBroker(directory, connect, java=SMALL) as kafka:
            yield kafka.bootstrap_servers
    else:
        with BrokerHarness(directory, connect) as broker:
            yield broker.address


@pytest.fixture
def name(servers):
    """A topic, and a group."""
    found = f"t{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(found, PARTITIONS, 1, {})])
    return found


@pytest.fixture
def theirs(connect, name, tmp_path):
    """``with theirs(number, "--topic", name) as process``: Kafka's console consumer, which prints values."""

    @contextmanager
    def running(number, *what):
        log4j = tmp_path / "log4j.properties"
        log4j.write_text("log4j.rootLogger=OFF\n")
        settings = [f"--consumer-property={key}={value}" for key, value in {**SETTINGS, "group.id": name}.items()]
        process = ChildProcess(f"Kafka's consumer {number}", tmp_path / f"theirs-{number}")
        process.spawn(
            kafka_command(
                "kafka.tools.ConsoleConsumer",
                *("--zookeeper", connect),
                *settings,
                *what,
                options=(*SMALL, f"-Dlog4j.configuration=file:{log4j}"),
                jars=JARS,
            )
        )
        try:
            yield process
            process.stop(60)
        finally:
            process.kill()

    return running


@pytest.fixture
def ours(connect, name):
    """A consumer of ours, not subscribed yet; its id comes before theirs."""
    settings = {"zookeeper.connect": connect, "group.id": name, "consumer.id": f"{name}-ours"}
    with ZooKeeperConsumer(
        settings, sparklog_registry_layout="kafka", auto_offset_reset="smallest", rebalance_backoff_ms=200
    ) as consumer:
        yield consumer


@pytest.fixture(scope="module")
def zk(connect, servers):
    client = ZkClient(connect, session_timeout=6.0, on_session=lambda _: None, makes_chroot=False)
    yield client
    client.close()


def produce(servers, topic, numbers):
    with Producer(bootstrap_servers=servers) as producer:
        for number in numbers:
            producer.send(topic, str(number).encode(), partition=number % PARTITIONS)


def numbers_of(process):
    return [int(line) for line in process.output().split("\n") if line.isdigit()]


def owners(zk, name):
    return {int(each): zk.data(f"/consumers/{name}/owners/{name}/{each}").decode()
            for each in zk.names(f"/consumers/{name}/owners/{name}")}  # fmt: skip


def test_they_share_a_topic_and_lose_nothing(servers, name, theirs, ours, zk):
    produce(servers, name, range(50))
    found = []
    with theirs(1, "--topic", name, "--from-beginning") as process:
        eventually(lambda: len(numbers_of(process)) == 50, what="Kafka's consumer reads all")
        ours.subscribe({name: 1})
        eventually(lambda: found.extend(ours.poll(0.1)) or len(ours.assignment) == 3, what="our share")
        eventually(lambda: len(owners(zk, name)) == PARTITIONS, what="all is owned")
        assert list(owners(zk, name).values()).count(f"{ours.id}-0") == 3
        produce(servers, name, range(50, 100))
        eventually(
            lambda: found.extend(ours.poll(0.1)) or len(found) + len(numbers_of(process)) >= 100, what="the second half"
        )
        read_by_them = numbers_of(process)
    assert sorted([*read_by_them, *(int(each.value) for each in found)]) == list(range(100))
    eventually(lambda: ours.poll(0.1) == [] and len(ours.assignment) == PARTITIONS, what="all is ours")
    ours.commit()
    folder = f"/consumers/{name}/offsets/{name}"
    assert {zk.data(f"{folder}/{each}") for each in zk.names(folder)} == {b"20"}


def test_what_one_registers_the_other_reads(servers, name, theirs, ours, zk):
    with theirs(1, "--whitelist", f"{name}|none") as process:
        eventually(lambda: len(owners(zk, name)) == PARTITIONS, what="Kafka's consumer owns all")
        ours.subscribe_filter(white_list=f"{name}.*", streams=2)
        eventually(lambda: ours.poll(0.1) == [] and len(ours.assignment) == 4, what="our share")
        kinds = [json.loads(zk.data(f"/consumers/{name}/ids/{each}")) for each in zk.names(f"/consumers/{name}/ids")]
        assert [set(each) for each in kinds] == [{"version", "subscription", "pattern", "timestamp"}] * 2
        assert {each["pattern"] for each in kinds} == {"white_list"}
        assert process.alive


def test_they_begin_where_ours_left_off(servers, name, theirs, ours):
    produce(servers, name, range(20))
    ours.subscribe({name: 1})
    found = []
    eventually(lambda: found.extend(ours.poll(0.5)) or len(found) >= 20, what="all records")
    ours.close()
    produce(servers, name, range(20, 30))
    with theirs(1, "--topic", name) as process:
        eventually(lambda: sorted(numbers_of(process)) == list(range(20, 30)), what="the rest, and only that")
