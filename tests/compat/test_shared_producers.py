"""Idempotent producers over restarts, in one log directory that Kafka 3.9 and sparklog serve in turn."""

import pytest
from compat.dumped import dump
from compat.test_shared_directory import await_leaders
from integration import wire
from integration.raw_producer import RawProducer

from sparklog.errors import ErrorCode
from sparklog.structs import TopicPartition
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import eventually
from sparklog.testing.kafka import KafkaBroker

pytestmark = [pytest.mark.peer, pytest.mark.slow]

TP = TopicPartition("shared", 0)
NONE, OUT_OF_ORDER = ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
KEPT = {"retention.ms": "-1"}
"""The records have times of years ago."""


class Served:
    """Our broker, and Kafka's, on one directory, one at a time."""

    def __init__(self, tmp_path, chroot):
        self.ours = BrokerHarness(tmp_path, chroot)
        self.kafka = KafkaBroker(
            tmp_path / "kafka", chroot, port=self.ours.spec.port, extra_props={"log.dirs": self.ours.spec.data_dir}
        )

    @property
    def snapshots(self):
        return sorted(self.ours.spec.data_dir.glob("shared-0/*.snapshot"))

    def send(self, sequence, producer_id=4242, epoch=0):
        """What the present broker answers to a batch of two records: the code, and the base offset."""
        batch = wire.batch_of(b"1", b"2", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        with wire.connect(self.ours.address) as connection:
            return wire.produce(connection, TP, batch)[:2]


@pytest.fixture
def served(tmp_path, chroot):
    return Served(tmp_path, chroot)


def create(served):
    with wire.connect(served.ours.address) as connection:
        assert wire.create_topic(connection, TP.topic, 1, KEPT)[0] is NONE
    await_leaders(served.ours.address, with_topic=True)


def test_kafka_goes_on_where_our_snapshot_ends_and_we_where_kafkas_does(served):
    with served.ours:
        await_leaders(served.ours.address, with_topic=False)
        create(served)
        assert [served.send(sequence) for sequence in range(0, 12, 2)] == [(NONE, each) for each in range(0, 12, 2)]
        assert served.send(0, producer_id=4243) == (NONE, 12)
    printed, complaints = dump(served.snapshots)
    assert complaints == []
    lines = [line for line in printed.splitlines() if line.startswith("producerId: 4242 ")]
    assert [line.partition("lastSequence: ")[2].split()[0] for line in lines] == ["3", "5", "7", "9", "11"]
    assert all("currentTxnFirstOffset: OptionalLong.empty" in line for line in lines)

    with served.kafka:
        await_leaders(served.ours.address, with_topic=True)
        assert served.send(10) == (NONE, 10), "the last batch, sent again"
        assert served.send(8)[0] is OUT_OF_ORDER, "Kafka remembers the last batch alone over a restart"
        assert served.send(14)[0] is OUT_OF_ORDER
        assert served.send(12) == (NONE, 14)
        assert served.send(0, producer_id=4243) == (NONE, 12)

    with served.ours:
        await_leaders(served.ours.address, with_topic=True)
        assert served.send(12) == (NONE, 14)
        assert served.send(16)[0] is OUT_OF_ORDER
        assert served.send(14) == (NONE, 16)
        assert served.send(12) == (NONE, 14)
        with wire.connect(served.ours.address) as connection:
            assert len(wire.read_all(connection, TP)) == 18


def test_a_transaction_that_our_snapshot_says_is_open_is_open_to_kafka(served):
    with served.ours:
        await_leaders(served.ours.address, with_topic=False)
        create(served)
        assert served.send(0) == (NONE, 0)
        writer = RawProducer(served.ours.address, "writer", version=1)
        assert writer.init(timeout_ms=600_000) is NONE
        assert writer.add(TP) is NONE
        assert [writer.write(TP, b"%d" % number) for number in range(3)] == [NONE] * 3
    printed, _ = dump(served.snapshots)
    lines = [line for line in printed.splitlines() if line.startswith(f"producerId: {writer.me.producer_id} ")]
    assert ["OptionalLong[2]" in line for line in lines] == [False, False, True]

    with served.kafka:
        await_leaders(served.ours.address, with_topic=True)
        with wire.connect(served.ours.address) as connection:
            eventually(lambda: wire.fetch(connection, TP, 0).last_stable_offset == 2, 60, "Kafka to know it is open")
            assert writer.write(TP, b"3") is NONE
            assert writer.end(commit=True) is NONE
            eventually(lambda: wire.fetch(connection, TP, 0).last_stable_offset == 7, 60, "the marker")

    with served.ours:
        await_leaders(served.ours.address, with_topic=True)
        with wire.connect(served.ours.address) as connection:
            fetched = wire.fetch(connection, TP, 0)
            assert (fetched.high_watermark, fetched.last_stable_offset) == (7, 7)
