"""Damage in the coordinators' own logs costs what it holds: all else is served, and the broker says where it is."""

import pytest
from integration import wire

from sparklog.client import Admin, NewTopic, Producer
from sparklog.record.records import iter_batches
from sparklog.structs import TopicPartition
from sparklog.testing.broker import BrokerHarness

pytestmark = pytest.mark.integration

TP = TopicPartition("t", 0)
ONE_HOME = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
OFFSETS_HOME = TopicPartition("__consumer_offsets", 0)
STATES_HOME = TopicPartition("__transaction_state", 0)


@pytest.fixture
def broker(tmp_path, chroot):
    with BrokerHarness(tmp_path, chroot, settings=ONE_HOME) as harness:
        yield harness


@pytest.fixture
def admin(broker):
    with Admin({"bootstrap.servers": broker.address}) as admin:
        admin.create_topics([NewTopic("t", 1)])
        yield admin


def damage(broker, home, number):
    """Turn a byte of a record over, in the batch of this number."""
    (path,) = wire.files_of(broker.spec.data_dir, home, ".log")
    data = bytearray(path.read_bytes())
    batches = [*iter_batches(bytes(data))]
    data[sum(batch.size_in_bytes for batch in batches[:number]) + 70] ^= 0x7F
    path.write_bytes(data)
    return batches[number].base_offset


def test_groups_beside_a_damaged_commit_are_served(broker, admin):
    for group, offset in (("mine", 5), ("other", 7), ("mine", 9), ("later", 3)):
        admin.alter_group_offsets(group, {TP: offset})
    broker.stop()
    offset = damage(broker, OFFSETS_HOME, 2)
    broker.start()
    found = {group: admin.group_offsets(group)[TP].offset for group in ("mine", "other", "later")}
    assert found == {"mine": 5, "other": 7, "later": 3}
    assert f"where offset {offset} is due, are damaged and left out" in broker.output()
    assert "__consumer_offsets-0" in broker.output()
    admin.alter_group_offsets("mine", {TP: 10})
    broker.restart()
    assert admin.group_offsets("mine")[TP].offset == 10


def test_producers_beside_a_damaged_transaction_are_served(broker, admin):
    def write(transactional_id):
        with Producer({"bootstrap.servers": broker.address, "transactional.id": transactional_id}) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", value=b"v")
            producer.commit_transaction()

    write("first")
    write("second")
    broker.stop()
    offset = damage(broker, STATES_HOME, 1)
    broker.start()
    write("second")
    write("first")
    assert f"where offset {offset} is due, are damaged and left out" in broker.output()
    assert "__transaction_state-0" in broker.output()
