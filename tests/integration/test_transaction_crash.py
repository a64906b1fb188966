"""A broker that is killed at each step of a transaction's end: one outcome, in all partitions and for the offsets."""

import sys
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from integration import wire
from integration.test_transactions import (
    consumer_of,
    describe,
    make_topic_at,
    producer_of,
    read,
    settled,
    state_of,
    write,
)

from sparklog.errors import ConnectionFailed, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import EndTxnRequest
from sparklog.testing.broker import BrokerHarness
from sparklog.testing.eventually import wait_for_death

pytestmark = pytest.mark.integration
PROGRAM = Path(__file__).parents[1] / "crash" / "txn_broker.py"
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}


@pytest.fixture
def armed(tmp_path):
    return tmp_path / "armed"


@pytest.fixture
def broker(tmp_path, chroot, armed):
    class Mortal(BrokerHarness):
        program = (sys.executable, "-P", str(PROGRAM), str(armed))

    with Mortal(tmp_path, chroot, settings=SETTINGS) as harness:
        yield harness


def committed_offset(broker, group):
    consumer = consumer_of(broker.address, group)
    try:
        (found,) = consumer.committed([TopicPartition("a", 0)], 20)
    finally:
        consumer.close()
    assert found.error is None, found.error
    return found.offset


def producer_state(broker):
    """Producer id and epoch, as the coordinator knows them."""
    with wire.connect(broker.address) as connection:
        state = describe(connection, "worker")
    return state.producer_id, state.producer_epoch


STEPS = ["prepare record", "first marker", "second marker", "complete record"]
CASES = [(step, version, commit) for version in (3, 5) for step in STEPS for commit in (True, False)]
LEFT_TO_SOAK = {each for each in CASES if each[1] == 5} | {("second marker", 3, False)}
LEFT_TO_SOAK -= {("second marker", 5, True)}
CASES = [pytest.param(*each, marks=pytest.mark.slow if each in LEFT_TO_SOAK else ()) for each in CASES]


@pytest.mark.parametrize(("step", "version", "commit"), CASES)
def test_killed_before(broker, armed, step, version, commit):
    for topic in ("a", "b"):
        make_topic_at(broker, topic)
    consumer = consumer_of(broker.address, "readers")
    producer = producer_of(broker.address, "worker", **{"transaction.timeout.ms": 8000})
    producer.begin_transaction()
    write(producer, "a", b"in a")
    write(producer, "b", b"in b")
    producer.send_offsets_to_transaction([TopicPartition("a", 0, 5)], consumer.consumer_group_metadata(), 30)
    consumer.close()
    producer_id, epoch = producer_state(broker)
    pid = broker.pid
    armed.write_text(step)
    request = EndTxnRequest(transactional_id="worker", producer_id=producer_id, producer_epoch=epoch, committed=commit)
    with wire.connect(broker.address) as connection:
        try:
            error = ErrorCode(wire.ask(connection, ApiKey.END_TXN, version, request).error_code)
        except ConnectionFailed:  # it died before it answered
            error = None
    wait_for_death(pid)
    broker.reap()
    assert not armed.exists()
    broker.start()
    decided = step != "prepare record"
    assert decided or error is None
    settled(broker.address, "worker")
    if decided and version >= 5:  # whoever did not hear the answer is told it now
        with wire.connect(broker.address) as connection:
            again = wire.ask(connection, ApiKey.END_TXN, version, request)
        assert (again.error_code, again.producer_id, again.producer_epoch) == (0, producer_id, epoch + 1)
    kept = decided and commit
    assert state_of(broker.address, "worker") == ("CompleteCommit" if kept else "CompleteAbort")
    assert read(broker.address, "a") == ([b"in a"] if kept else [])
    assert read(broker.address, "b") == ([b"in b"] if kept else [])
    offset = committed_offset(broker, "readers")
    assert offset == 5 if kept else offset < 0
    producer = producer_of(broker.address, "worker")
    producer.begin_transaction()
    write(producer, "a", b"next")
    producer.commit_transaction(30)
    settled(broker.address, "worker")
    assert read(broker.address, "a")[-1] == b"next"
