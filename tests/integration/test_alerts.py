"""A real Prometheus raises each alert of one broker while its cause lasts; ``test_prometheus.py`` has the others."""

import os
import resource
import signal
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from fix_programs import lack_of
from integration import wire
from integration.prometheus import Prometheus
from integration.raw_producer import RawProducer
from kazoo.client import KazooClient

from sparklog.cli.main import cli
from sparklog.client import Admin, NewTopic, Producer
from sparklog.errors import ErrorCode
from sparklog.local.ports import free_port
from sparklog.local.zookeeper import EmbeddedZooKeeper
from sparklog.structs import TopicPartition
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually

LACK = lack_of("prometheus")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,  # Prometheus looks once a second
    pytest.mark.skipif(bool(LACK), reason=LACK),
]

LIMITS = {"sparklog_transaction_oldest_seconds > 3600": "sparklog_transaction_oldest_seconds > 0.1"}
SETTINGS = {
    "log.cleaner.backoff.ms": 3_600_000,
    "log.retention.check.interval.ms": 500,
    "sparklog.metrics.partitions.max": 40,
}
"""The cleaner works when it is told to; more than 40 partitions are too many for series of their own."""
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "400", "max.compaction.lag.ms": "60000"}
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def zookeeper_of_broker(tmp_path_factory):
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper"), tick_time_ms=500, fsync=False) as server:
        yield server


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    return [tmp_path_factory.mktemp(name) for name in ("first", "second")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory, zookeeper_of_broker, directories):
    settings = SETTINGS | {"sparklog.metrics.port": free_port()}
    made = BrokerHarness(tmp_path_factory.mktemp("broker"), zookeeper_of_broker.connect_string, settings=settings)
    made.spec = replace(made.spec, data_dir=Path(",".join(map(str, directories))))
    with made as running:
        yield running


@pytest.fixture(scope="module")
def small_port():
    """That of the metrics of the broker on a small disk."""
    return free_port()


@pytest.fixture(scope="module")
def prometheus(broker, small_port, tmp_path_factory):
    targets = [broker.metrics_url.removeprefix("http://"), f"127.0.0.1:{small_port}"]
    with Prometheus(tmp_path_factory.mktemp("prometheus"), targets, LIMITS) as server:
        eventually(lambda: server.number('sum(up{job="sparklog"})') == 1)
        yield server


@pytest.fixture
def admin(broker):
    with Admin(bootstrap_servers=broker.address) as found:
        yield found


@pytest.fixture
def raised(prometheus):
    """``with raised(NAME, …):`` it is not raised before, it is within, and it ends after."""

    @contextmanager
    def within(*names):
        eventually(lambda: not {*names} & prometheus.alerts().keys(), what=f"nothing of {names} is raised")
        yield lambda: eventually(lambda: {*names} <= prometheus.alerts().keys(), what=f"{names} are raised")
        eventually(lambda: not {*names} & prometheus.alerts().keys(), what=f"{names} have ended")

    return within


def compact(broker, topic):
    return (
        CliRunner().invoke(cli, ["compact", "run", topic, "--by", "brokers", "--bootstrap", broker.address]).exit_code
    )


def write(broker, topic, *, age_ms=0):
    """Some segments of a partition."""
    made_ms = int(time.time() * 1000) - age_ms  # Prometheus and the broker have no other clock
    with Producer(bootstrap_servers=broker.address, linger_ms=0) as producer:
        for number in range(20):
            producer.send(topic, b"x" * 50, key=b"%d" % (number % 3), timestamp=made_ms).result()


def test_a_log_that_cannot_be_cleaned(broker, admin, directories, raised, topic):
    admin.create_topics([NewTopic(topic, 1, 1, COMPACTED)])
    write(broker, topic)
    (home,) = (each / f"{topic}-0" for each in directories if (each / f"{topic}-0").is_dir())
    segment = home / f"{0:020}.log"
    sound = segment.read_bytes()
    with raised("SparklogLogsNotCleaned") as is_raised:
        segment.write_bytes(bytes([*sound[:100], sound[100] ^ 1, *sound[101:]]))
        assert compact(broker, topic) == 1
        is_raised()
        segment.write_bytes(sound)
        assert compact(broker, topic) == 0
    admin.delete_topics([topic])


def test_cleaning_that_is_late(broker, admin, raised, topic):
    admin.create_topics([NewTopic(topic, 1, 1, COMPACTED)])
    with raised("SparklogCleaningBehind") as is_raised:
        write(broker, topic, age_ms=2 * HOUR_MS)
        is_raised()
        assert compact(broker, topic) == 0
    admin.delete_topics([topic])


WAITING = {
    "segment.bytes": "400",
    "retention.ms": "3600000",
    "sparklog.offload.required": "true",
    "sparklog.offload.max.bytes": "1000000",
}


def test_an_offload_that_falls_behind(broker, admin, raised, topic):
    """The rule for lost records looks back over an hour; with the topic its numbers are gone."""
    admin.create_topics([NewTopic(topic, 1, 1, WAITING)])
    write(broker, topic, age_ms=2 * HOUR_MS)
    written_ms = int(time.time() * 1000)
    (waiting,) = eventually(
        lambda: [each for each in admin.describe_retention([topic]).values() if (each.checked_ms or 0) > written_ms]
    )
    nearly_full = str(waiting.held_bytes * 10 // 9)
    with raised("SparklogOffloadBehind") as is_raised:
        admin.alter_topic_configs(topic, {"sparklog.offload.max.bytes": nearly_full})
        is_raised()
        admin.alter_topic_configs(topic, {"sparklog.offload.max.bytes": "1000000"})
    with raised("SparklogOffloadLost") as is_raised:
        admin.alter_topic_configs(topic, {"sparklog.offload.max.bytes": "500"})
        is_raised()
        admin.delete_topics([topic])


def test_a_transaction_that_stays_open(broker, admin, raised, topic):
    admin.create_topics([NewTopic(topic, 1, 1)])
    with raised("SparklogTransactionOpen") as is_raised:
        producer = RawProducer(broker.address, topic)
        assert producer.init() is ErrorCode.NONE
        assert producer.write(TopicPartition(topic, 0), b"x") is ErrorCode.NONE
        is_raised()
        assert producer.end(commit=True) is ErrorCode.NONE


def test_files_that_run_short(broker, raised):
    before = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    with raised("SparklogFilesShort") as is_raised:
        opened = len(os.listdir(f"/proc/{broker.pid}/fd"))
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (opened + opened // 8, before[1]))
        try:
            is_raised()
        finally:
            resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, before)


def test_more_partitions_than_have_series(broker, admin, raised, topic):
    with raised("SparklogSeriesLeftOut") as is_raised:
        admin.create_topics([NewTopic(topic, 50, 1)])
        is_raised()
        admin.delete_topics([topic])


def test_a_loop_that_comes_late(broker, prometheus):
    """It is held up from outside; the alert ends when five minutes were well, which a test does not wait for."""

    def stall():
        os.kill(broker.pid, signal.SIGSTOP)
        time.sleep(0.6)
        os.kill(broker.pid, signal.SIGCONT)
        return "SparklogLoopSlow" in prometheus.alerts()

    eventually(stall)


def test_a_broker_that_is_frozen_and_whose_id_is_taken_meanwhile(broker, zookeeper_of_broker, prometheus, raised):
    with raised("SparklogNotRegistered"):
        with raised("SparklogNoController") as is_raised:
            os.kill(broker.pid, signal.SIGSTOP)
            try:
                is_raised()
                thief = Thief(zookeeper_of_broker.connect_string)
                eventually(thief.take, what="ZooKeeper ends the broker's session")
            finally:
                os.kill(broker.pid, signal.SIGCONT)
        eventually(lambda: thief.take() and "SparklogNotRegistered" in prometheus.alerts())
        thief.close()


class Thief:
    """Holds the broker's id, under one session after another: for one that lasted the broker would give up."""

    def __init__(self, connect_string):
        self._connect_string = connect_string
        self._holding = None
        self._is_held = False

    def take(self):
        """True when it is held, by another session than before; from that one it is taken in one step, so that the
        broker does not come between.
        """
        before, self._holding = self._holding, KazooClient(self._connect_string)
        self._holding.start(60)
        taking = self._holding.transaction()
        if self._is_held:
            taking.delete("/brokers/ids/0")
        taking.create("/brokers/ids/0", b"{}", ephemeral=True)
        self._is_held = not any(isinstance(each, Exception) for each in taking.commit())
        if before is not None:
            before.stop()
            before.close()
        return self._is_held

    def close(self):
        self._holding.stop()
        self._holding.close()


def test_zookeeper_that_is_lost(broker, zookeeper_of_broker, raised):
    with raised("SparklogZooKeeperLost") as is_raised:
        zookeeper_of_broker.kill()
        try:
            is_raised()
        finally:
            zookeeper_of_broker.start()


def test_a_directory_that_has_failed(broker, admin, directories, raised, topic):
    admin.create_topics([NewTopic(topic, 4, 1)])
    second = directories[1]
    with raised("SparklogLogDirectoryFailed", "SparklogOfflineReplicas") as is_raised:
        broker.stop()
        kept = second.with_name("kept")
        second.rename(kept)
        second.write_bytes(b"no directory")
        try:
            broker.start()
            is_raised()
            broker.stop()
        finally:
            second.unlink()
            kept.rename(second)
        broker.start()


def test_a_disk_that_is_full(prometheus, tmp_path, disk_of, small_port, zookeeper_of_broker):
    """The rule for refused appends looks back over five minutes, so only the disk's alert ends within the test.

    The disk on which the tests run may be nearly full too: only what is told of this broker counts.
    """
    disk, instance = disk_of("3m"), f"127.0.0.1:{small_port}"

    def alerts():
        return prometheus.alerts(instance=instance)

    zookeeper = f"{zookeeper_of_broker.connect_string}/small"
    with BrokerHarness(tmp_path, zookeeper, settings={"sparklog.metrics.port": small_port}) as small:
        with Admin(bootstrap_servers=small.address) as admin:
            admin.create_topics([NewTopic("full", 1, 1)])
        eventually(lambda: prometheus.number(f'up{{instance="{instance}"}}') == 1)
        assert not {"SparklogDiskFills", "SparklogProducesFail"} & alerts().keys()
        with suppress(OSError), open(disk / "ballast", "wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        with wire.connect(small.address) as connection:
            for _ in range(100):
                code, *_ = wire.produce(connection, TopicPartition("full", 0), wire.batch_of(b"x" * 1000))
            assert code is ErrorCode.KAFKA_STORAGE_ERROR
        eventually(lambda: {"SparklogDiskFills", "SparklogProducesFail"} <= alerts().keys())
        assert alerts()["SparklogDiskFills"]["directory"] == str(disk)
        (disk / "ballast").unlink()
        eventually(lambda: "SparklogDiskFills" not in alerts())
