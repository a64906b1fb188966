"""What is said of records that are lost because nobody closed the producer, or because nobody took them."""

import asyncio
import logging
import subprocess
import sys
import threading

import pytest

from sparklog.client import Admin, AsyncProducer, Producer
from sparklog.cluster.info import ClusterInfo, PartitionInfo, TopicInfo
from sparklog.errors import ClientClosed
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import Endpoint, TopicPartition

_UNCLOSED = """
from sparklog.client import Producer
from sparklog.structs import TopicPartition

producer = Producer(bootstrap_servers="127.0.0.1:1", linger_ms=100_000)
for _ in range({records}):
    record = producer._appender.record("t", b"x", None, None, 0, None)
    producer._appender.append(TopicPartition("t", 0), record, None)
{then}
"""


def _end_of(records, then=""):
    done = subprocess.run(
        [sys.executable, "-c", _UNCLOSED.format(records=records, then=then)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stderr


def test_a_program_that_ends_without_close_is_told_what_it_loses():
    said = _end_of(5)
    assert "5 records were not sent: close the producer" in said
    assert "destroyed" not in said


@pytest.mark.integration
def test_a_program_that_ends_while_it_asks_for_an_id_says_no_more_than_that(bootstrap, topic):
    program = f"""
from sparklog.client import Producer
producer = Producer(bootstrap_servers="{bootstrap}", linger_ms=100_000)
for _ in range(5):
    producer.send("{topic}", b"x")
"""
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
        assert done.stderr == "5 records were not sent: close the producer, or flush it, before the program ends\n"


def test_without_records_nothing_is_said():
    assert _end_of(0) == ""


def test_what_is_not_delivered_by_the_end_of_close_is_counted(caplog):
    async def run():
        producer = AsyncProducer(bootstrap_servers="127.0.0.1:1", linger_ms=100_000)
        await producer.start()
        producer._session.leaders.apply(
            ClusterInfo(
                cluster_id="c",
                controller=0,
                brokers={0: Endpoint("127.0.0.1", 1)},
                topics={"t": TopicInfo("t", ZERO_UUID, False, (PartitionInfo(0, 0, 0, (0,), (0,)),))},
                errors={},
            )
        )
        for _ in range(3):
            await producer.send("t", b"x")
        await producer.close(timeout=0)

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert "3 records were not delivered when the producer was closed" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_waits_when_the_loop_ends_by_itself_fails(caplog):
    def leave():
        raise SystemExit

    producer = Producer(bootstrap_servers="127.0.0.1:1", linger_ms=100_000)
    record = producer._appender.record("t", b"x", None, None, 0, None)
    future = producer._appender.append(TopicPartition("t", 0), record, None)
    room = threading.Event()
    producer._producer.await_room(room.set)
    producer._thread.call_soon(leave)
    assert isinstance(future.exception(20), ClientClosed)
    assert room.wait(20)
    for call in (producer.flush, lambda: producer._appender.append(TopicPartition("t", 0), record, None)):
        with pytest.raises(ClientClosed):
            call()
    producer.close()
    producer._thread._thread.join(20)
    assert "1 records were not delivered" in caplog.text


@pytest.mark.parametrize("make", [Admin, Producer])
def test_a_close_that_is_interrupted_ends_the_loop(make, monkeypatch):
    def interrupted(work):
        work.close()
        raise KeyboardInterrupt

    client = make(bootstrap_servers="127.0.0.1:1")
    monkeypatch.setattr(client._thread, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        client.close()
    assert not client._thread.is_usable
