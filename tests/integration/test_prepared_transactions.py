"""A transaction that waits for a decision made elsewhere: over crashes, by successors, from the command line."""

import pytest
from integration import wire
from integration.raw_producer import NOBODY, RawProducer
from integration.test_transactions import describe, make_topic_at, read, settled, state_of

from sparklog.errors import ErrorCode
from sparklog.structs import TopicPartition
from sparklog.testing.broker import BrokerHarness

pytestmark = pytest.mark.integration
E = ErrorCode
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}


@pytest.fixture
def broker(tmp_path, chroot):
    with BrokerHarness(tmp_path, chroot, settings=SETTINGS) as harness:
        yield harness


def prepared(address, transactional_id, tp, value):
    """A producer that has written, and waits to be told how to end; who it was is what it would store elsewhere."""
    producer = RawProducer(address, transactional_id)
    assert producer.init(two_phase=True) is E.NONE
    assert producer.ongoing == NOBODY
    assert producer.write(tp, value) is E.NONE
    return producer


def test_it_survives_the_broker_and_its_producer(broker):
    make_topic_at(broker, "t")
    tp = TopicPartition("t", 0)
    gone = {name: prepared(broker.address, name, tp, name.encode()) for name in ("to commit", "to abort", "to leave")}
    broker.kill()
    broker.start()
    for name, commit in (("to commit", True), ("to abort", False)):
        for _ in range(2):  # the first successor does not come back either
            successor = RawProducer(broker.address, name)
            assert successor.init(two_phase=True, keep=True) is E.NONE
            assert successor.ongoing == gone[name].me
        with wire.connect(broker.address) as connection:
            state = describe(connection, name)
        assert (state.transaction_state, state.producer_id, state.producer_epoch) == ("Ongoing", *gone[name].me)
        broker.kill()
        broker.start()
        assert gone[name].end(commit=not commit) is E.PRODUCER_FENCED
        assert successor.write(tp, b"not by a successor") is E.TRANSACTION_ABORTABLE
        assert successor.end(commit=commit) is E.NONE
        settled(broker.address, name)
    assert state_of(broker.address, "to leave") == "Ongoing"
    aborting = RawProducer(broker.address, "to leave")
    assert aborting.init() is E.NONE
    assert aborting.ongoing == NOBODY
    settled(broker.address, "to leave")
    assert read(broker.address, "t") == [b"to commit"]
    assert aborting.write(tp, b"next") is E.NONE
    assert aborting.end(commit=True) is E.NONE
    settled(broker.address, "to leave")
    assert read(broker.address, "t") == [b"to commit", b"next"]
