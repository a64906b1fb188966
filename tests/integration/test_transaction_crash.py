"""A broker that is killed at each step of a transaction's end: one outcome, in all partitions and for the offsets."""

import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from integration import wire
from integration.raw_producer import UNHURRIED_MS, RawProducer
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
from sparklog.structs import TopicPartition as Tp
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


STEPS = ["prepare record", "first marker", "second marker", "third marker", "complete record"]
CASES = [(step, version, commit) for version in (3, 5) for step in STEPS for commit in (True, False)]
ALWAYS = {
    ("prepare record", 3, False),
    ("first marker", 3, True),
    ("second marker", 5, True),
    ("complete record", 3, False),
}
"""Each step that differs, both versions and both outcomes; the rest is left to soak."""
PARAMETERS = [pytest.param(*each, marks=() if each in ALWAYS else pytest.mark.slow) for each in CASES]


@pytest.mark.parametrize(("step", "version", "commit"), PARAMETERS)
def test_killed_before(broker, armed, step, version, commit):
    for topic in ("a", "b"):
        make_topic_at(broker, topic)
    consumer = consumer_of(broker.address, "readers")
    decided = step != "prepare record"
    ended_by_time = not decided and commit
    producer = producer_of(broker.address, "worker")
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
    if ended_by_time:
        armed.with_suffix(".later").write_text(f"{UNHURRIED_MS}")
    broker.start()
    assert decided or error is None
    ended_by_the_next = not decided and not ended_by_time
    if ended_by_the_next:
        producer_of(broker.address, "worker")
    settled(broker.address, "worker")
    if decided and version >= 5:  # whoever did not hear the answer is told it now
        with wire.connect(broker.address) as connection:
            again = wire.ask(connection, ApiKey.END_TXN, version, request)
        assert (again.error_code, again.producer_id, again.producer_epoch) == (0, producer_id, epoch + 1)
    kept = decided and commit
    ended = "Empty" if ended_by_the_next else "CompleteCommit" if kept else "CompleteAbort"
    assert state_of(broker.address, "worker") == ended
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


class Survivor:
    """Asks again, of a new broker, what the one that died did not answer."""

    def __init__(self, broker):
        self._broker = broker
        self.deaths = 0

    def __call__(self, ask):
        pid = self._broker.pid
        try:
            code = ask()
        except ConnectionFailed:
            self.restart(pid)
            code = ask()
        assert code is ErrorCode.NONE

    def restart(self, pid):
        wait_for_death(pid)
        self._broker.reap()
        self._broker.start()
        self.deaths += 1


ENDS = ["prepare record", "first marker", "second marker", "complete record"]
LIVES: list[Any] = [
    *(("first", step, "commit") for step in ("empty record", "ongoing record", "first batch")),
    ("before it is kept", "kept record", "commit"),
    *(("in the end", step, how) for how in ("commit", "abort", "be given up") for step in ENDS),
    ("in the end", "empty record", "be given up"),
]
LIVES = [pytest.param(*each, marks=() if each[1:] == ("kept record", "commit") else pytest.mark.slow) for each in LIVES]


@pytest.mark.parametrize(("moment", "step", "how"), LIVES)
def test_a_transaction_in_two_phases_killed_before(broker, armed, moment, step, how):
    """It begins, is kept by a successor, and is ended by that, or aborted for the next: all is asked again that a
    death left unanswered, and one death changes nothing of the outcome."""

    def arm(now):
        if now == moment:
            armed.write_text(step)

    a, b = Tp("a", 0), Tp("b", 0)
    for tp in (a, b):
        make_topic_at(broker, tp.topic)
    survive = Survivor(broker)
    first, successor, last = (RawProducer(broker.address, "worker") for _ in range(3))
    arm("first")
    survive(lambda: first.init(two_phase=True))
    survive(lambda: first.write(a, b"in a"))
    survive(lambda: first.write(b, b"in b"))
    arm("before it is kept")
    survive(lambda: successor.init(two_phase=True, keep=True))
    assert successor.ongoing == first.me
    arm("in the end")
    pid = broker.pid
    if how != "be given up":
        survive(lambda: successor.end(commit=how == "commit"))
        if not survive.deaths:  # it answered before it died
            survive.restart(pid)
        settled(broker.address, "worker")
    survive(last.init)
    settled(broker.address, "worker")
    assert not armed.exists()
    assert survive.deaths == 1
    kept = how == "commit"
    assert read(broker.address, "a") == ([b"in a"] if kept else [])
    assert read(broker.address, "b") == ([b"in b"] if kept else [])
    assert first.end(commit=not kept) is ErrorCode.PRODUCER_FENCED
    assert successor.end(commit=not kept) is ErrorCode.PRODUCER_FENCED
    survive(lambda: last.write(a, b"next"))
    survive(lambda: last.end(commit=True))
    settled(broker.address, "worker")
    assert read(broker.address, "a")[-1] == b"next"
