"""What the producer keeps in order whenever a signal handler, or another thread, comes; no broker is asked."""

import asyncio
import threading

import pyarrow as pa
import pytest
from client.interrupts import interruptions

from sparklog.client import AsyncProducer, Producer
from sparklog.client.producer.transaction import Step
from sparklog.cluster.info import ClusterInfo, PartitionInfo, TopicInfo
from sparklog.errors import ApiError, ClientClosed, ErrorCode, PartlyQueued
from sparklog.protocol.wire import ZERO_UUID
from sparklog.structs import Endpoint, TopicPartition

_ONE = TopicPartition("t", 0)
_CLUSTER = ClusterInfo(
    cluster_id="c",
    controller=0,
    brokers={0: Endpoint("127.0.0.1", 1)},
    topics={"t": TopicInfo("t", ZERO_UUID, False, tuple(PartitionInfo(n, 0, 0, (0,), (0,)) for n in range(2)))},
    errors={},
)


class _Sender:
    """Counts how often it was called."""

    def __init__(self):
        self.calls = 0

    def call(self):
        self.calls += 1


def test_the_sender_hears_of_what_another_thread_did_though_the_call_was_interrupted(monkeypatch):
    def begun():
        producer = AsyncProducer(bootstrap_servers="127.0.0.1:1")
        monkeypatch.setattr(producer, "_sender", _Sender(), raising=False)
        producer._accumulator.has_news = True
        return producer, producer.wake_if_news

    for producer in interruptions(begun):
        assert producer._sender.calls or producer._accumulator.has_news


def _blocking(**settings):
    producer = Producer(bootstrap_servers="127.0.0.1:1", linger_ms=100_000, **settings)
    producer._producer._session.leaders.apply(_CLUSTER)
    return producer


def _record(producer, value=b"x"):
    return producer._appender.record("t", value, None, None, 0, None)


@pytest.mark.parametrize("call", ["send", "send_arrow", "flush", "close", "result"])
def test_a_signal_handler_in_the_midst_of_a_send_is_refused_and_does_not_wait(call, monkeypatch):
    producer, refused = _blocking(), []
    earlier = producer.send("t", b"1")
    calls = {
        "send": lambda: producer.send("t", b"never"),
        "send_arrow": lambda: producer.send_arrow("t", pa.RecordBatch.from_pydict({"value": [b"never"]})),
        "flush": producer.flush,
        "close": producer.close,
        "result": earlier.result,
    }
    now = producer._appender._monotonic

    def interrupted():
        with pytest.raises(ClientClosed, match="signal handler") as error:
            calls[call]()
        refused.append(error.value)
        return now()

    with monkeypatch.context() as patch:
        patch.setattr(producer._appender, "_monotonic", interrupted)
        producer.send("t", b"2")
    assert len(refused) == 1
    assert sum(batch.count for batch in producer._producer._accumulator.incomplete()) == 2
    producer.close(0)


def test_another_thread_waits_for_a_send_and_is_not_refused(monkeypatch):
    producer, others = _blocking(), []
    now = producer._appender._monotonic

    def send():
        if not others:
            others.append(threading.Thread(target=producer.send, args=("t", b"2")))
            others[0].start()
        return now()

    monkeypatch.setattr(producer._appender, "_monotonic", send)
    producer.send("t", b"1")
    others[0].join(20)
    assert sum(batch.count for batch in producer._producer._accumulator.incomplete()) == 2
    producer.close(0)


@pytest.mark.parametrize("is_left", [False, True])
def test_room_that_is_made_before_the_wait_for_it_begins_is_found(is_left, monkeypatch):
    producer = _blocking(buffer_memory=1000, max_block_ms=60_000)
    accumulator, ask = producer._producer._accumulator, producer._producer.await_room
    first = producer.send("t", bytes(500), partition=0)
    if is_left:
        producer.send("t", bytes(200), partition=1)

    def preempted(told):
        with producer._producer._lock:  # the broker answers now
            (queue,) = [each for each in accumulator._busy.values() if each.tp == _ONE]
            accumulator._drop([(queue, queue.waiting[0])])
            waiters = accumulator.pop_waiters()
        first.delivery.succeed(0, -1)
        for each in waiters:
            each()
        return ask(told)

    monkeypatch.setattr(producer._producer, "await_room", preempted)
    with monkeypatch.context() as patch:
        patch.setattr(producer, "_await", None)  # nobody may wait: nothing would end it
        producer.send("t", bytes(500), partition=0)
    producer.close(0)


def test_who_wants_room_of_a_producer_that_was_closed_meanwhile_is_told_so(monkeypatch):
    producer = _blocking(buffer_memory=1000, max_block_ms=60_000)
    producer.send("t", bytes(900))
    ask = producer._producer.await_room

    def preempted(told):
        producer._thread.run(producer._producer.close(0))
        return ask(told)

    monkeypatch.setattr(producer._producer, "await_room", preempted)
    with pytest.raises(ClientClosed, match="the producer is closed"):
        producer.send("t", bytes(900))
    producer.close()


def test_nobody_waits_for_room_where_nobody_makes_any():
    async def run():
        told = []
        producer = AsyncProducer(bootstrap_servers="127.0.0.1:1")
        await producer.start()
        producer.await_room(lambda: told.append("empty"))
        assert producer._appender.append(_ONE, _record(producer), None) is not None
        producer.await_room(lambda: told.append("full"))
        assert told == ["empty"]
        await producer.close(0)
        producer.await_room(lambda: told.append("closed"))
        assert told == ["empty", "full", "closed"]

    asyncio.run(run())


@pytest.mark.parametrize("step", [Step.ENDING, Step.ABORTABLE, Step.FATAL])
@pytest.mark.parametrize("call", ["send", "send_arrow"])
def test_a_send_that_has_queued_its_record_does_not_raise(call, step, monkeypatch):
    """The step is another thread's doing."""

    async def run():
        producer = AsyncProducer(bootstrap_servers="127.0.0.1:1", transactional_id="x", linger_ms=100_000)
        await producer.start()
        producer._session.leaders.apply(_CLUSTER)
        transaction, accumulator = producer._transaction, producer._accumulator
        transaction.step = Step.OPEN

        now = producer._appender._monotonic

        def turning():
            transaction.step, transaction.error = step, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)
            return now()

        monkeypatch.setattr(producer._appender, "_monotonic", turning)
        if call == "send":
            await producer.send("t", b"x", partition=0)
        else:
            await producer.send_arrow("t", pa.RecordBatch.from_pydict({"value": [b"x"], "partition": [0]}))
        assert not accumulator.is_empty
        assert transaction.pending == {_ONE}
        await producer.close(0)

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["blocking", "awaited"])
def test_what_a_table_had_queued_before_it_failed_is_told(kind):
    rows = pa.RecordBatch.from_pydict({"value": [bytes(400), bytes(400), bytes(400)], "partition": [0, 0, 1]})
    settings = {"buffer_memory": 1000, "max_block_ms": 50, "linger_ms": 100_000}

    async def awaited():
        async with AsyncProducer(bootstrap_servers="127.0.0.1:1", **settings) as producer:
            producer._session.leaders.apply(_CLUSTER)
            with pytest.raises(PartlyQueued) as failed:
                await producer.send_arrow("t", rows)
            await producer.close(0)
            return failed.value

    def blocking():
        del settings["linger_ms"]
        producer = _blocking(**settings)
        with pytest.raises(PartlyQueued) as failed:
            producer.send_arrow("t", rows)
        producer.close(0)
        return failed.value

    error = blocking() if kind == "blocking" else asyncio.run(awaited())
    assert error.code is ErrorCode.REQUEST_TIMED_OUT
    assert "only the first 1 batches were queued, see .futures: REQUEST_TIMED_OUT: no room in buffer.memory" in str(
        error
    )
    (future,) = error.futures
    assert isinstance(future.exception(0), ClientClosed)


def test_a_table_of_which_nothing_is_queued_fails_as_it_did():
    producer = _blocking(buffer_memory=100)
    with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE") as failed:
        producer.send_arrow("t", pa.RecordBatch.from_pydict({"value": [bytes(400)]}))
    assert not isinstance(failed.value, PartlyQueued)
    producer.close(0)
