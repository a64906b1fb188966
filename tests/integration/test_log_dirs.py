"""A broker on two disks, of which one or both fail. They are real: ext4 on loop devices, told to shut down."""

import fcntl
import os
import struct
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, NewTopic
from fix_programs import lack_of
from integration import wire

from sparklog.cli.main import cli
from sparklog.client.admin.admin import Admin, Replica
from sparklog.errors import ApiError, ConnectionFailed, ErrorCode
from sparklog.structs import TopicPartition
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually, wait_for_death
from sparklog.zk.client import ZkClient

pytestmark = pytest.mark.integration

TOPIC = "t"
PARTITIONS = [TopicPartition(TOPIC, number) for number in range(4)]
DISK_BYTES = 48 << 20
EXT4_SHUTDOWN = 0x8004587D
"""Everything is written out, and from then on every operation is an input/output error."""


class Disk:
    """A file system in a file. A remount read-only would do, but the kernel refuses one while files are open."""

    def __init__(self, path):
        self.path = path
        self._image = path.with_name(f"{path.name}.img")
        path.mkdir()
        with open(self._image, "wb") as image:
            image.truncate(DISK_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", self._image], check=True, capture_output=True)
        self.mount()

    def mount(self):
        subprocess.run(["mount", "-o", "loop", self._image, self.path], check=True, capture_output=True)

    def unmount(self):
        if self.path.is_mount():
            subprocess.run(["umount", self.path], check=True, capture_output=True)

    def fail(self):
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, EXT4_SHUTDOWN, struct.pack("I", 0))
        finally:
            os.close(descriptor)

    def repair(self):
        self.unmount()
        self.mount()


@pytest.fixture
def disks(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root may make a disk that fails (mount a loop device)")
    if lack := lack_of("mkfs.ext4"):
        pytest.skip(lack)
    made = []
    try:
        for name in ("disk-a", "disk-b"):
            made.append(Disk(tmp_path / name))
    except (OSError, subprocess.CalledProcessError) as error:
        unmount_all(made)
        pytest.skip(f"no disk that fails can be made here: {error}")
    yield made
    unmount_all(made)


def unmount_all(disks):
    for disk in disks:
        disk.unmount()


def broker_on(tmp_path, chroot, directories, **settings):
    broker = BrokerHarness(
        tmp_path, chroot, settings={name.replace("_", "."): value for name, value in settings.items()}
    )
    broker.spec = replace(broker.spec, data_dir=Path(",".join(map(str, directories))))
    return broker


@pytest.fixture
def broker(disks, tmp_path, chroot):
    """It looks after its checkpoints so seldom that only clients notice a failing disk."""
    with broker_on(
        tmp_path,
        chroot,
        [disk.path / "logs" for disk in disks],
        log_flush_offset_checkpoint_interval_ms=3_600_000,
        log_flush_start_offset_checkpoint_interval_ms=3_600_000,
    ) as running:
        yield running


@pytest.fixture
def connection(broker):
    with wire.connect(broker.address) as opened:
        yield opened


def fill(connection, start=0, partitions=PARTITIONS):
    """A few batches for each partition; the values that were acknowledged."""
    acknowledged = {}
    for tp in partitions:
        acknowledged[tp] = [b"%d of %s" % (number, str(tp).encode()) for number in range(start, start + 20)]
        for value in acknowledged[tp]:
            assert wire.produce(connection, tp, wire.batch_of(value))[0] is ErrorCode.NONE
    return acknowledged


def make_topic(connection):
    assert wire.create_topic(connection, TOPIC, len(PARTITIONS))[0] is ErrorCode.NONE
    return fill(connection)


def partitions_on(directory):
    return [tp for tp in PARTITIONS if (directory / str(tp)).is_dir()]


def contents(broker):
    """Every value of every partition, once all are led."""
    with wire.connect(broker.address) as connection:
        for tp in PARTITIONS:
            eventually(lambda tp=tp: wire.fetch(connection, tp, 0).error is ErrorCode.NONE, what=f"{tp} to be served")
        return {tp: wire.read_all(connection, tp) for tp in PARTITIONS}


@pytest.fixture
def zk(chroot):
    """A session that looks on."""
    client = ZkClient(chroot, session_timeout=10.0, on_session=lambda _: None)
    yield client
    client.close()


def leaders(zk, partitions):
    return {state.leader for state in zk.states.read(partitions).values()}


def test_a_failed_disk_takes_its_partitions_and_no_others(broker, disks, connection, zk):
    acknowledged = make_topic(connection)
    failing, healthy = disks
    lost, served = partitions_on(failing.path / "logs"), partitions_on(healthy.path / "logs")
    assert (len(lost), len(served)) == (2, 2)
    failing.fail()
    for _ in range(3):
        for tp in lost:
            code, _, message = wire.produce(connection, tp, wire.batch_of(b"refused"))
            assert code is ErrorCode.KAFKA_STORAGE_ERROR
            assert str(failing.path) in message
            assert wire.fetch(connection, tp, 0).error is ErrorCode.KAFKA_STORAGE_ERROR
        for tp, values in fill(connection, len(acknowledged[served[0]]), served).items():
            acknowledged[tp] += values
            assert wire.read_all(connection, tp) == acknowledged[tp]
    said = [line for line in broker.output().splitlines() if "out of service" in line]
    assert len(said) == 1
    assert f"log directory {failing.path / 'logs'} is out of service until the broker is started again" in said[0]
    eventually(lambda: leaders(zk, lost) == {-1}, what="the controller hears of it")
    assert leaders(zk, served) == {0}
    assert wire.create_topic(connection, "made-later", 3)[0] is ErrorCode.NONE
    assert len(list((healthy.path / "logs").glob("made-later-*"))) == 3
    broker.stop()
    assert broker.fate == "exited with status 0"
    assert "Traceback" not in broker.output()
    failing.repair()
    broker.start()
    assert contents(broker) == acknowledged
    with wire.connect(broker.address) as again:
        for tp, values in fill(again, 1000).items():
            acknowledged[tp] += values
    assert contents(broker) == acknowledged


def test_a_disk_that_fails_unnoticed_is_found_by_the_next_checkpoint(disks, tmp_path, chroot):
    directories = [disk.path / "logs" for disk in disks]
    with (
        broker_on(tmp_path, chroot, directories, log_flush_offset_checkpoint_interval_ms=100) as broker,
        wire.connect(broker.address) as connection,
    ):
        make_topic(connection)
        disks[1].fail()
        eventually(lambda: f"log directory {directories[1]} is out of service" in broker.output())
        for tp in partitions_on(directories[0]):
            assert wire.produce(connection, tp, wire.batch_of(b"served"))[0] is ErrorCode.NONE
        assert "Traceback" not in broker.output()


def test_without_any_disk_the_broker_stops_and_says_so(broker, disks, connection):
    acknowledged = make_topic(connection)
    for disk in disks:
        disk.fail()
    for disk in disks:
        tp = partitions_on(disk.path / "logs")[0]
        assert wire.produce(connection, tp, wire.batch_of(b"refused"))[0] is ErrorCode.KAFKA_STORAGE_ERROR
    wait_for_death(broker.pid)
    assert broker.fate == "exited with status 1"
    assert "Traceback" not in broker.output()
    last = broker.output().splitlines()[-1]
    assert last.startswith("sparklog: no log directory is left in service")
    for disk in disks:
        assert f"log directory {disk.path / 'logs'} is out of service" in broker.output()
        disk.repair()
    broker.start()
    assert contents(broker) == acknowledged


@pytest.fixture
def filled(tmp_path, chroot):
    """A stopped broker on two directories, the directories, and what it acknowledged."""
    homes = [tmp_path / "a", tmp_path / "b"]
    with broker_on(tmp_path, chroot, homes) as broker:
        with wire.connect(broker.address) as connection:
            acknowledged = make_topic(connection)
        broker.stop()
        yield broker, homes, acknowledged


def in_its_place(home, content):
    aside = home.rename(home.with_name("aside"))
    home.write_bytes(content)
    return aside


def test_a_broker_serves_what_is_left_when_a_directory_is_missing_at_the_start(filled):
    broker, homes, acknowledged = filled
    kept, lost = (partitions_on(home) for home in homes)
    aside = in_its_place(homes[1], b"a file")
    broker.start()
    with wire.connect(broker.address) as connection:
        for tp in kept:
            eventually(lambda tp=tp: wire.fetch(connection, tp, 0).error is ErrorCode.NONE)
            assert wire.read_all(connection, tp) == acknowledged[tp]
            assert wire.produce(connection, tp, wire.batch_of(b"served"))[0] is ErrorCode.NONE
            acknowledged[tp].append(b"served")
        for tp in lost:
            code, _, message = wire.produce(connection, tp, wire.batch_of(b"refused"))
            assert code is ErrorCode.KAFKA_STORAGE_ERROR
            assert str(homes[1]) in message
            assert not (homes[0] / str(tp)).exists(), "it must not begin anew elsewhere"
    assert f"log directory {homes[1]} is out of service until the broker is started again" in broker.output()
    broker.stop()
    assert broker.fate == "exited with status 0"
    assert "Traceback" not in broker.output()
    homes[1].unlink()
    aside.rename(homes[1])
    broker.start()
    assert contents(broker) == acknowledged


def test_a_broker_with_no_directory_at_the_start_says_what_is_wrong_with_each(filled):
    broker, homes, _ = filled
    for home in homes:
        home.rename(home.with_name(f"{home.name}-aside"))
        home.touch()
    with pytest.raises(ConnectionFailed, match="exited with status 1"):
        broker.start()
    assert "Traceback" not in broker.output()
    (line,) = (line for line in broker.output().splitlines() if line.startswith("sparklog: "))
    assert "no log directory can be used" in line
    assert all(f"{home}: File exists" in line for home in homes)


def test_a_topic_that_finds_no_room_is_told_of_with_the_broker_and_the_disk(broker, disks):
    for disk in disks:
        with open(disk.path / "filler", "wb", buffering=0) as filler, suppress(OSError):
            while filler.write(bytes(1 << 16)):
                pass
    result = CliRunner().invoke(cli, ["topic", "create", TOPIC, "-p", "4", "-b", str(broker.address)])
    assert isinstance(result.exception, ApiError)
    assert result.exception.code is ErrorCode.REQUEST_TIMED_OUT
    assert "broker 0 cannot hold all of it (KAFKA_STORAGE_ERROR: a log directory of it is full" in str(result.exception)
    for disk in disks:
        assert f"broker 0: {disk.path / 'logs'}: " in result.output


ALL = (0, 1, 2)
REPLICATED = [TopicPartition("r", number) for number in range(4)]


@pytest.fixture
def trio(disks, tmp_path, chroot):
    """Three brokers, the first on two disks that may fail; two partitions of three replicas on each of these."""
    brokers = []
    for number in ALL:
        settings = {"replica.lag.time.max.ms": 3000, "min.insync.replicas": 2}
        broker = BrokerHarness(tmp_path, chroot, number, settings=settings)
        if number == 0:
            directories = ",".join(str(disk.path / "logs") for disk in disks)
            broker.spec = replace(broker.spec, data_dir=Path(directories))
        brokers.append(broker)
    try:
        for broker in brokers:
            broker.start()
        with Admin({"bootstrap.servers": brokers[1].address}) as admin:
            wishes = {Replica(tp, 0): str(disks[tp.partition // 2].path / "logs") for tp in REPLICATED}
            admin.alter_replica_log_dirs(wishes)
            replicas = [[0, 1, 2], [1, 2, 0]] * 2  # of each disk it leads one and follows one
            other = AdminClient({"bootstrap.servers": brokers[1].address, "log_level": 0})
            other.create_topics([NewTopic("r", 4, replica_assignment=replicas)])["r"].result(60)
            yield brokers, admin
    finally:
        for broker in brokers:
            broker.stop()


def described(admin):
    return {each.partition: each for each in admin.describe_topics(["r"])["r"].partitions}


def in_sync(admin, number):
    return set(described(admin)[number].isr)


def send(brokers, tp, value):
    """Through whoever leads it, until it is taken by all in sync."""

    def sent():
        leader = described_leader(brokers, tp)
        if leader is None:
            return False
        with wire.connect(brokers[leader].address) as connection:
            return wire.produce(connection, tp, wire.batch_of(value), acks=-1)[0] is ErrorCode.NONE

    eventually(sent, what=f"{tp} to take a record")


def described_leader(brokers, tp):
    with Admin({"bootstrap.servers": brokers[1].address}) as admin:
        leader = described(admin)[tp.partition].leader
    return leader if leader >= 0 else None


def test_a_failed_disk_of_replicas_stops_those_alone_and_catches_up_when_it_is_repaired(trio, disks):
    """Among them one that is led there, one that is followed there, and one whose copy was on its way there."""
    brokers, admin = trio
    for tp in REPLICATED:
        eventually(lambda tp=tp: in_sync(admin, tp.partition) == set(ALL))
        for _ in range(3):
            send(brokers, tp, b"." * 900_000 if tp.partition == 2 else b"before")
    admin.alter_broker_configs(0, {"replica.alter.log.dirs.io.max.bytes.per.second": "1"})
    moving = Replica(REPLICATED[2], 0)
    admin.alter_replica_log_dirs({moving: str(disks[0].path / "logs")})
    assert admin.describe_replica_log_dirs([moving])[moving].future_path == str(disks[0].path / "logs")
    disks[0].fail()
    for tp in REPLICATED[:2]:
        with wire.connect(brokers[0].address) as connection:
            wire.produce(connection, tp, wire.batch_of(b"unseen"))
    eventually(lambda: "is out of service" in brokers[0].output())
    for tp in REPLICATED[:2]:
        eventually(lambda tp=tp: 0 not in in_sync(admin, tp.partition), what=f"{tp} to be without broker 0")
        send(brokers, tp, b"meanwhile")
    assert described(admin)[2].leader == 0, "what is on the other disk is led on"
    for tp in REPLICATED[2:]:
        send(brokers, tp, b"meanwhile")
        assert in_sync(admin, tp.partition) == set(ALL)
    assert admin.describe_replica_log_dirs([moving])[moving].future_path is None
    brokers[0].stop()
    assert "Traceback" not in brokers[0].output()
    disks[0].repair()
    brokers[0].start()
    for tp in REPLICATED:
        eventually(lambda tp=tp: in_sync(admin, tp.partition) == set(ALL), what=f"{tp} to catch up")
        send(brokers, tp, b"after")
