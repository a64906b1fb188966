"""What a broker keeps over stops and crashes, and what it refuses to start on."""

import random
import sys
import threading
from contextlib import suppress

import pytest
from integration import wire

from sparklog.errors import ConnectionFailed, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch as fetch_wire
from sparklog.protocol.messages import decode_response
from sparklog.structs import TopicPartition
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually

pytestmark = pytest.mark.integration

TP = TopicPartition("t", 0)
SMALL_SEGMENTS = {"segment.bytes": "20000", "index.interval.bytes": "500"}
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


@pytest.fixture
def broker(tmp_path, chroot):
    """A broker of this test's own."""
    with BrokerHarness(tmp_path, chroot) as harness:
        yield harness


def make_topic(broker, partitions=1, **configs):
    with wire.connect(broker.address) as connection:
        assert wire.create_topic(connection, TP.topic, partitions, configs)[0] is ErrorCode.NONE


def send(broker, values):
    with wire.connect(broker.address) as connection:
        for value in values:
            assert wire.produce(connection, TP, wire.batch_of(value))[0] is ErrorCode.NONE


def stored(broker, tp=TP):
    with wire.connect(broker.address) as connection:
        return wire.read_all(connection, tp)


def numbered(start, end):
    return [b"%06d" % number * 20 for number in range(start, end)]


def refusal(broker):
    """The one line in which a broker that exits with status 1 says why."""
    with pytest.raises(ConnectionFailed, match="exited with status 1"):
        broker.start()
    assert "Traceback" not in broker.output()
    (line,) = (line for line in broker.output().splitlines() if line.startswith("sparklog: "))
    return line


def test_a_clean_restart_keeps_everything_and_leaves_indexes_of_whole_entries(broker):
    make_topic(broker, **SMALL_SEGMENTS)
    send(broker, numbered(0, 300))
    directory = broker.spec.data_dir
    assert not (directory / CLEAN_SHUTDOWN).exists()
    broker.stop()
    assert broker.fate == "exited with status 0"
    assert (directory / CLEAN_SHUTDOWN).exists()
    assert len(wire.files_of(directory, TP, ".log")) > 2
    for suffix, entry in ((".index", 8), (".timeindex", 12)):
        for file in wire.files_of(directory, TP, suffix):
            assert 0 < file.stat().st_size < 20_000
            assert file.stat().st_size % entry == 0
    broker.start()
    assert "rebuilding" not in broker.output()
    assert stored(broker) == numbered(0, 300)
    send(broker, numbered(300, 310))
    assert stored(broker) == numbered(0, 310)


def test_a_restart_forgets_no_topic_setting_and_no_id(broker):
    make_topic(broker, partitions=3, **SMALL_SEGMENTS)
    with wire.connect(broker.address) as connection:
        (before,) = wire.metadata(connection, TP.topic).topics
    broker.restart()
    with wire.connect(broker.address) as connection:
        eventually(lambda: wire.leaders(connection, TP.topic) == {0: 0, 1: 0, 2: 0}, 60)
        (after,) = wire.metadata(connection, TP.topic).topics
        assert after.topic_id == before.topic_id
    send(broker, numbered(0, 300))
    assert len(wire.files_of(broker.spec.data_dir, TP, ".log")) > 2


class Sender(threading.Thread):
    """Sends one numbered batch after another, four in flight, until the connection breaks; counts what is known."""

    def __init__(self, broker, start):
        super().__init__()
        self._connection = wire.connect(broker.address)
        self._next = start
        self._in_flight = []
        self.acknowledged = {}
        self.sent = start

    def run(self):
        with self._connection, suppress(ConnectionFailed):
            while True:
                while len(self._in_flight) < 4:
                    (value,) = numbered(self._next, self._next + 1)
                    self._in_flight.append(value)
                    self._next += 1
                    wire.send_produce(self._connection, TP, wire.batch_of(value))
                _, version, body = self._connection.receive()
                answer = decode_response(ApiKey.PRODUCE, version, body)
                result = answer.responses[0].partition_responses[0]
                assert result.error_code == ErrorCode.NONE
                self.acknowledged[result.base_offset] = self._in_flight.pop(0)


def test_a_killed_broker_keeps_every_acknowledged_record(broker):
    chance = random.Random(4)
    make_topic(broker, **SMALL_SEGMENTS)
    acknowledged = {}
    count = 0
    for _ in range(4):
        sender = Sender(broker, count)
        sender.start()
        wanted = chance.randrange(50, 400)
        eventually(lambda: len(sender.acknowledged) >= wanted, 60, f"{wanted} acknowledged")  # noqa: B023
        broker.kill()
        sender.join(20)
        assert not sender.is_alive()
        acknowledged.update(sender.acknowledged)
        broker.start()
        kept = stored(broker)
        assert {offset: kept[offset] for offset in acknowledged} == acknowledged
        assert len(kept) - len(acknowledged) <= 4, "only what was in flight may be there besides"
        assert all(kept.count(value) == 1 for value in sender.acknowledged.values())
        count = len(kept)
        acknowledged = dict(enumerate(kept))


def test_a_torn_write_is_cut_off_after_a_crash(broker):
    make_topic(broker)
    send(broker, numbered(0, 10))
    broker.kill()
    (segment,) = wire.files_of(broker.spec.data_dir, TP, ".log")
    with segment.open("ab") as file:
        file.write(bytes(wire.batch_of(b"half of a batch"))[:50])
    broker.start()
    assert f"{segment}: torn tail: 50 bytes" in broker.output()
    assert stored(broker) == numbered(0, 10)
    send(broker, numbered(10, 12))
    assert stored(broker) == numbered(0, 12)


def test_a_killed_broker_is_back_before_its_session_has_ended(tmp_path, chroot):
    settings = {"zookeeper.session.timeout.ms": "10000"}
    with BrokerHarness(tmp_path, chroot, settings=settings) as broker:
        make_topic(broker)
        send(broker, numbered(0, 3))
        broker.kill()
        broker.start()
        assert stored(broker) == numbered(0, 3)


_IN_A_HURRY = """
from sparklog.broker.lifecycle import registration
from sparklog.cli.main import main
registration._TIMEOUTS_TO_WAIT = 0
main()
"""


class _Hasty(BrokerHarness):
    """It asks twice for its id, and does not go on for as long as ZooKeeper may keep the session of a dead process."""

    program = (sys.executable, "-P", "-c", _IN_A_HURRY)


def test_a_duplicate_broker_id_is_refused(broker, tmp_path, chroot):
    make_topic(broker)
    twin = _Hasty(tmp_path / "twin", chroot, broker_id=0)
    assert refusal(twin).startswith("sparklog: broker id 0 is already registered in ZooKeeper")
    send(broker, numbered(0, 3))
    assert stored(broker) == numbered(0, 3)


def test_the_log_directory_of_another_broker_is_refused(broker, tmp_path, chroot):
    broker.stop()
    (tmp_path / "broker-0").rename(tmp_path / "broker-1")
    line = refusal(BrokerHarness(tmp_path, chroot, broker_id=1))
    assert f"log directory {tmp_path / 'broker-1'} belongs to broker.id=0, not 1" in line


def test_the_log_directory_of_another_cluster_is_refused(broker, tmp_path, chroot):
    broker.stop()
    line = refusal(BrokerHarness(tmp_path, f"{chroot}-another"))
    assert f"log directory {tmp_path / 'broker-0'} belongs to cluster.id=" in line
    broker.start()


def test_a_log_directory_in_use_is_refused(broker, tmp_path, chroot):
    make_topic(broker)
    (tmp_path / "broker-1").symlink_to(tmp_path / "broker-0")
    assert "is in use by another broker" in refusal(BrokerHarness(tmp_path, chroot, broker_id=1))
    send(broker, numbered(0, 3))
    assert stored(broker) == numbered(0, 3)


def test_a_topic_deleted_while_it_is_waited_for(broker):
    make_topic(broker)
    send(broker, numbered(0, 3))
    with wire.connect(broker.address) as reader, wire.connect(broker.address) as admin:
        wire.send_fetch(reader, {TP: 3}, max_wait_ms=600_000)
        assert wire.delete_topic(admin, TP.topic) is ErrorCode.NONE
        assert wire.receive_fetch(reader)[TP].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert wire.fetch(reader, TP, 0).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "Traceback" not in broker.output()
    eventually(lambda: not list(broker.spec.data_dir.glob("t-0*")), what="its files are gone")
    make_topic(broker)
    assert stored(broker) == []


def test_a_topic_deleted_while_it_is_sent(broker):
    make_topic(broker, **{"max.message.bytes": str(2 << 20)})
    values = [bytes([number]) * (1 << 20) for number in range(40)]
    send(broker, values)
    with wire.connect(broker.address) as reader, wire.connect(broker.address) as admin:
        wire.send_fetch(reader, {TP: 0})
        header = reader._receive_exactly(4)
        assert wire.delete_topic(admin, TP.topic) is ErrorCode.NONE
        size = int.from_bytes(header, "big")
        assert size > 40 << 20
        _, version, body = reader._protocol.response(reader._receive_exactly(size))
        _, (fetched,) = fetch_wire.decode_response(body, version)
        assert wire.values_in(fetched) == values


def test_deletion_waits_for_nothing_after_a_crash(broker):
    make_topic(broker)
    send(broker, numbered(0, 3))
    broker.kill()
    broker.start()
    with wire.connect(broker.address) as admin:
        assert wire.delete_topic(admin, TP.topic) is ErrorCode.NONE
    broker.kill()
    broker.start()
    with wire.connect(broker.address) as admin:
        assert TP.topic not in wire.topic_names(admin)
    assert not list(broker.spec.data_dir.glob("t-0*"))
