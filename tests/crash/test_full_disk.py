"""A disk that is full: the producer is told, nothing acknowledged is lost, and it goes on when there is room."""

import contextlib
import os
import subprocess
import sys

import pytest
from integration import wire

from sparklog.errors import ErrorCode
from sparklog.log.indexes.offset_index import OffsetIndex
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DeleteRecordsRequest
from sparklog.structs import TopicPartition
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

TP = TopicPartition("full", 0)
EARLIEST = -2
# An index entry for nearly every batch, so that an index meets the full disk too.
CONFIGS = {"index.interval.bytes": "1", "segment.bytes": "400000"}


@pytest.fixture
def small_disk(disk_of):
    """Where the broker keeps its logs: 3 MB, 2 MB of it taken by ``ballast``."""
    disk = disk_of("3m")
    (disk / "ballast").write_bytes(b"x" * (2 << 20))
    return disk


@pytest.fixture
def broker(small_disk, tmp_path, chroot):
    with BrokerHarness(tmp_path, chroot) as running:
        yield running


def fill(connection, size):
    """Produce until the disk refuses; the values that were acknowledged."""
    acknowledged = []
    for number in range(30_000):
        value = b"%06d" % number + os.urandom(size)
        code, _, message = wire.produce(connection, TP, wire.batch_of(value))
        if code is not ErrorCode.NONE:
            assert code is ErrorCode.KAFKA_STORAGE_ERROR
            assert "No space left" in message
            return acknowledged
        acknowledged.append(value)
    raise AssertionError("the disk never filled up")


def use_up(disk):
    """Leave not a page of it."""
    with contextlib.suppress(OSError), open(disk / "more", "wb", buffering=0) as file:
        while True:
            file.write(b"x" * 512)


@pytest.mark.parametrize("size", [200, 60_000])
def test_a_full_disk_loses_nothing_and_ends_when_there_is_room(broker, small_disk, size):
    with wire.connect(broker.address) as connection:
        assert wire.create_topic(connection, TP.topic, configs=CONFIGS)[0] is ErrorCode.NONE
        acknowledged = fill(connection, size)
        for _ in range(5):
            code, _, _ = wire.produce(connection, TP, wire.batch_of(os.urandom(100_000)))
            assert code is ErrorCode.KAFKA_STORAGE_ERROR
        assert wire.read_all(connection, TP) == acknowledged
        assert broker.alive
        assert [f"log directory {small_disk} has no room (" in line for line in broker.news()][:1] == [True]
        assert "has room again" not in broker.output()
        (small_disk / "ballast").unlink()
        assert wire.produce(connection, TP, wire.batch_of(b"room at last"))[0] is ErrorCode.NONE
        assert f"log directory {small_disk} has room again (" in broker.output()
        acknowledged.append(b"room at last")
        assert wire.read_all(connection, TP) == acknowledged
    broker.kill()
    broker.start()
    with wire.connect(broker.address) as connection:
        eventually(lambda: wire.fetch(connection, TP, 0).error is ErrorCode.NONE)
        assert wire.read_all(connection, TP) == acknowledged


def test_the_command_that_produces_says_so_at_once_and_goes_on_when_there_is_room(broker, small_disk):
    with wire.connect(broker.address) as connection:
        assert wire.create_topic(connection, TP.topic, configs=CONFIGS)[0] is ErrorCode.NONE
        use_up(small_disk)
        program = [sys.executable, "-P", "-m", "sparklog.cli.main", "produce"]
        command = [*program, TP.topic, "--bootstrap-server", broker.address]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as producing:
            producing.stdin.write("x" * 2000)
            producing.stdin.close()
            said = producing.stderr.readline()
            assert said.startswith("waiting, for up to")
            assert "no room" in said or "No space left" in said
            assert str(small_disk) in said
            (small_disk / "ballast").unlink()
            rest = producing.stderr.read()
        assert (producing.returncode, "produced 1 record" in rest) == (0, True), rest
        assert wire.read_all(connection, TP) == [b"x" * 2000]


def test_a_stop_on_a_full_disk_loses_nothing(broker, small_disk):
    with wire.connect(broker.address) as connection:
        assert wire.create_topic(connection, TP.topic, configs=CONFIGS)[0] is ErrorCode.NONE
        acknowledged = fill(connection, 200)
    use_up(small_disk)
    broker.stop()
    assert "Traceback" not in broker.output()
    (small_disk / "ballast").unlink()
    broker.start()
    with wire.connect(broker.address) as connection:
        eventually(lambda: wire.fetch(connection, TP, 0).error is ErrorCode.NONE)
        assert wire.read_all(connection, TP) == acknowledged


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_start_on_a_full_disk_serves_all_when_there_is_room(broker, small_disk, end):
    with wire.connect(broker.address) as connection:
        assert wire.create_topic(connection, TP.topic)[0] is ErrorCode.NONE
        assert wire.produce(connection, TP, wire.batch_of(b"kept"))[0] is ErrorCode.NONE
    use_up(small_disk)
    getattr(broker, end)()
    use_up(small_disk)
    broker.start()

    def serves():
        with wire.connect(broker.address) as connection:
            return wire.produce(connection, TP, wire.batch_of(b"more"))[0] is ErrorCode.NONE

    assert not serves()
    assert f"log directory {small_disk} has no room (" in broker.output()
    (small_disk / "more").unlink()
    eventually(serves, 60)
    with wire.connect(broker.address) as connection:
        assert wire.read_all(connection, TP) == [b"kept", b"more"]


@pytest.mark.parametrize("restart", [False, True])
def test_a_topic_deleted_on_a_full_disk_is_gone_for_good(broker, small_disk, restart):
    with wire.connect(broker.address) as connection:
        assert wire.create_topic(connection, TP.topic, configs=CONFIGS)[0] is ErrorCode.NONE
        fill(connection, 60_000)
        use_up(small_disk)
        assert wire.delete_topic(connection, TP.topic) is ErrorCode.NONE
        eventually(lambda: TP.topic not in wire.topic_names(connection))
        eventually(lambda: not list(small_disk.glob("full-0*")))
    (small_disk / "more").unlink()
    if restart:
        broker.kill()
        broker.start()
    with wire.connect(broker.address) as connection:
        assert wire.create_topic(connection, TP.topic, configs=CONFIGS)[0] is ErrorCode.NONE
        assert wire.read_all(connection, TP) == []
        assert wire.produce(connection, TP, wire.batch_of(b"new"))[1] == 0
        assert wire.read_all(connection, TP) == [b"new"]
    assert not broker.has_reported_errors()


def test_an_index_entry_on_a_full_disk_is_refused_and_written_when_there_is_room(small_disk):
    index = OffsetIndex(small_disk / "x.index", 0, 8000)
    use_up(small_disk)
    with pytest.raises(OSError, match="No space left"):
        index.append(1, 1)
    assert index.entries == 0
    (small_disk / "more").unlink()
    index.append(1, 1)
    assert (index.entries, index.lookup(1)) == (1, (1, 1))


def test_what_could_not_be_made_durable_is_not_said_to_be_deleted(broker, small_disk):
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    asked = topic(name=TP.topic, partitions=[topic.DeleteRecordsPartition(partition_index=0, offset=3)])

    def delete(connection):
        request = DeleteRecordsRequest(topics=[asked], timeout_ms=20_000)
        answer = connection.request(ApiKey.DELETE_RECORDS, lambda _: request)
        (result,) = answer.topics[0].partitions
        return ErrorCode(result.error_code), result.low_watermark

    with wire.connect(broker.address) as connection:
        assert wire.create_topic(connection, TP.topic)[0] is ErrorCode.NONE
        for _ in range(5):
            assert wire.produce(connection, TP, wire.batch_of(b"value"))[0] is ErrorCode.NONE
        use_up(small_disk)
        assert delete(connection) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        (small_disk / "ballast").unlink()
        assert delete(connection) == (ErrorCode.NONE, 3)
    broker.kill()
    broker.start()
    with wire.connect(broker.address) as connection:
        eventually(lambda: wire.list_offset(connection, TP, EARLIEST)[1] == 3)
