"""The consumer for programs that block, without any broker: who may use it, and what it refuses at once."""

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest
from client.interrupts import interruptions

from sparklog.client.cluster.loop_thread import LoopThread
from sparklog.client.consumer import consumer as module
from sparklog.client.consumer.consumer import Consumer
from sparklog.errors import ClientClosed, ConfigError, DeserializationError, LocalProtocolError, WokenUp
from sparklog.fetch.scan import Scan
from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.structs import TopicPartition
from sparklog.testing.eventually import eventually

T0 = TopicPartition("t", 0)


@pytest.fixture
def reader():
    with Consumer(bootstrap_servers="127.0.0.1:1", group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([T0])
        yield consumer


def test_close_in_another_thread_is_refused_and_closes_nothing(reader):
    ends = []

    def poll():
        with contextlib.suppress(WokenUp):
            reader.poll(60.0)
        ends.append("woken")

    thread = threading.Thread(target=poll)
    thread.start()
    eventually(lambda: reader._jobs)
    with pytest.raises(LocalProtocolError, match="another thread"):
        reader.close()
    reader.wakeup()
    thread.join()
    assert ends == ["woken"]
    assert reader.assignment == {T0}
    assert reader.poll(0) == []
    reader.close()
    with pytest.raises(ClientClosed):
        reader.poll(0)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("call", [Consumer.positions, Consumer.close])
def test_an_interrupted_call_leaves_the_consumer_to_other_threads(call, monkeypatch):
    loops = []

    def begun():
        consumer = Consumer(bootstrap_servers="127.0.0.1:1")
        loops.append(consumer._loop)
        monkeypatch.setattr(consumer._loop, "close", lambda: None)
        return consumer, lambda: call(consumer)

    with ThreadPoolExecutor(1) as other:
        for consumer in interruptions(begun):
            if not consumer._is_closed:
                assert other.submit(consumer.positions).result() == {}
            other.submit(consumer.close).result()
            LoopThread.close(loops.pop())
    LoopThread.close(loops.pop())


def test_close_around_a_callback_is_refused(reader):
    told = []

    def close(_offsets, _error):
        with pytest.raises(LocalProtocolError, match="callback"):
            reader.close()
        told.append(True)

    reader.commit_async(close, {})
    eventually(lambda: reader.poll(0) == [] and told)
    assert reader.poll(0) == []


@pytest.mark.parametrize("call", ["commit", "commit_async"])
def test_a_negative_offset_is_refused_before_anybody_is_asked(reader, call):
    arguments = ({T0: -5},) if call == "commit" else (None, {T0: -5})
    with pytest.raises(LocalProtocolError, match="cannot commit the offset -5 for partition t-0"):
        getattr(reader, call)(*arguments)


@pytest.mark.parametrize(
    "call",
    [
        lambda reader: reader.seek(T0, 2.0),
        lambda reader: reader.seek(("t", 0), 2),
        lambda reader: reader.assign([("t", 0)]),
        lambda reader: reader.poll(None),
        lambda reader: reader.poll("1"),
        lambda reader: reader.poll_arrow(None),
        lambda reader: reader.commit({"t": 5}),
        lambda reader: reader.commit_async("not a function"),
    ],
)
def test_what_does_not_fit_is_refused_where_it_is_handed_in(reader, call):
    with pytest.raises(TypeError, match=" not "):
        call(reader)
    assert reader.poll(0) == []


@pytest.mark.parametrize("given", [{"topics": [1]}, {"topics": [b"t"]}, {"topics": ["t"], "on_revoked": 3}])
def test_a_subscription_that_does_not_fit_leaves_nothing_behind(given):
    with Consumer(bootstrap_servers="127.0.0.1:1", group_id="g") as reader:
        with pytest.raises(TypeError, match=r"str|function"):
            reader.subscribe(**given)
        reader.assign([T0])
        assert reader.subscription == set()


def test_a_consumer_that_cannot_be_made_leaves_no_thread():
    before = set(threading.enumerate())
    with pytest.raises(TypeError, match="value_deserializer is a function, not 'utf8'"):
        Consumer(bootstrap_servers="127.0.0.1:1", value_deserializer="utf8")
    assert set(threading.enumerate()) <= before
    with pytest.raises(ConfigError, match=r"settings are a mapping, .*, not 'a:1'"):
        Consumer("a:1")


@pytest.fixture
def interrupt(monkeypatch):
    """Has the next wait for the loop end with Ctrl-C, after what it is handed."""
    todo = []

    class Jobs(SimpleQueue[object]):
        def get(self, *args, **named):
            if not todo:
                return super().get(*args, **named)
            todo.pop()(super())
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "SimpleQueue", Jobs)
    return todo.append


def fetched(reader):
    """Have the records from the position on wait to be polled."""

    def add():
        consumer = reader._consumer
        builder = RecordBatchBuilder(base_offset=0)
        for number in range(3):
            builder.append(1, None, b"%d" % number)
        consumer._buffer.buffer(T0).add(Scan([RecordBatch(builder.build())], 3, 0))

    reader._call_on_loop(add)


@pytest.mark.parametrize("poll", [lambda reader: reader.poll(60.0), lambda reader: reader.poll_arrow(60.0)])
def test_an_interrupted_poll_gives_back_what_it_had_taken(reader, interrupt, poll):
    reader.seek(T0, 1)
    fetched(reader)
    interrupt(lambda jobs: jobs.get())  # the poll is done by then
    with pytest.raises(KeyboardInterrupt):
        poll(reader)
    assert reader.positions()[T0].offset == 1
    assert reader.poll(0) == []
    fetched(reader)
    assert [record.offset for record in reader.poll(60.0)] == [1, 2]
    assert reader.positions()[T0].offset == 3


def test_an_interrupted_poll_that_took_nothing_leaves_the_one_before_it_alone(reader, interrupt):
    reader.seek(T0, 0)
    fetched(reader)
    assert len(reader.poll(60.0)) == 3
    interrupt(lambda jobs: None)
    with pytest.raises(KeyboardInterrupt):
        reader.poll(60.0)
    assert reader.positions()[T0].offset == 3


def test_an_interrupted_call_has_ended_before_the_next_one(reader, interrupt, monkeypatch):
    monkeypatch.setattr(module, "_END_PATIENCE", 60.0)
    begun, ended = threading.Event(), []

    async def slow(_offsets, _error):
        if ended:
            return
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            for _ in range(20):
                await asyncio.sleep(0)
            ended.append(True)

    reader.commit_async(slow, {})
    interrupt(lambda jobs: begun.wait(20))
    with pytest.raises(KeyboardInterrupt):
        reader.poll(60.0)
    assert ended
    assert reader.poll(0) == []


def test_a_commit_callback_that_was_interrupted_before_it_ran_is_told_by_a_later_poll(reader, interrupt):
    told = []
    for number in range(2):
        reader.commit_async(lambda _offsets, _error, number=number: told.append(number), {})
    interrupt(lambda jobs: jobs.get())
    with pytest.raises(KeyboardInterrupt):
        reader.poll(60.0)
    assert not told
    eventually(lambda: reader.poll(0) == [] and len(told) == 2)
    assert told == [0, 1]


def test_a_commit_callback_that_was_cut_short_is_called_again_and_those_behind_it_too(reader):
    told = []

    def first(_offsets, _error):
        told.append("first")
        if len(told) == 1:
            raise KeyboardInterrupt

    reader.commit_async(first, {})
    reader.commit_async(lambda _offsets, _error: told.append("second"), {})
    with pytest.raises(KeyboardInterrupt):
        reader.poll(60.0)
    eventually(lambda: reader.poll(0) == [] and len(told) == 3)
    assert told == ["first", "first", "second"]


def test_a_callback_whose_call_was_interrupted_is_cut_short(reader):
    relay = reader._here(lambda: pytest.fail("nobody waits for it"))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(relay())


# Deserializers


class Reads:
    """A deserializer of numbers that has the loop do something meanwhile, and fails at what is ``broken``."""

    def __init__(self):
        self.consumer = None
        self.threads = []
        self.broken = {}

    def __call__(self, data):
        self.threads.append(threading.get_ident())
        self.consumer._loop.run(asyncio.sleep(0))
        if data in self.broken:
            raise self.broken[data]
        return int(data)


@pytest.fixture
def reads():
    reads = Reads()
    with Consumer(
        bootstrap_servers="127.0.0.1:1", group_id="g", enable_auto_commit=False, value_deserializer=reads
    ) as reads.consumer:
        reads.consumer.assign([T0])
        reads.consumer.seek(T0, 0)
        fetched(reads.consumer)
        yield reads


def iterated(consumer):
    """The first record that iteration gives."""
    return [next(iter(consumer))]


@pytest.mark.parametrize("read", [lambda consumer: consumer.poll(60.0), iterated])
def test_a_deserializer_runs_in_the_callers_thread_while_the_loop_goes_on(reads, read):
    assert [record.value for record in read(reads.consumer)] in ([0, 1, 2], [0])
    assert set(reads.threads) == {threading.get_ident()}


@pytest.mark.parametrize("read", [lambda consumer: consumer.poll(60.0), iterated])
def test_a_record_that_cannot_be_read_stops_before_it_and_is_read_again(reads, read):
    consumer = reads.consumer
    for _ in range(2):
        reads.broken = {b"0": ValueError("no")}
        with pytest.raises(DeserializationError, match="offset 0 of partition t-0"):
            read(consumer)
        assert consumer.positions()[T0].offset == 0
        fetched(consumer)
    reads.broken = {}
    assert [record.value for record in consumer.poll(60.0)] == [0, 1, 2]


def test_what_comes_before_a_record_that_cannot_be_read_is_given_first(reads):
    consumer = reads.consumer
    reads.broken = {b"2": ValueError("no")}
    assert [record.value for record in consumer.poll(60.0)] == [0, 1]
    assert consumer.positions()[T0].offset == 2
    assert consumer.poll(0) == []
    fetched(consumer)
    with pytest.raises(DeserializationError, match="offset 2 of partition t-0"):
        consumer.poll(60.0)
    fetched(consumer)
    reads.broken = {}
    assert [record.value for record in consumer.poll(60.0)] == [2]


def test_a_poll_that_is_interrupted_while_it_deserializes_gives_back_what_it_had_taken(reads):
    consumer = reads.consumer
    reads.broken = {b"1": KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(60.0)
    assert consumer.positions()[T0].offset == 0
    reads.broken = {}
    fetched(consumer)
    assert [record.value for record in consumer.poll(60.0)] == [0, 1, 2]


def test_what_is_to_be_given_before_a_record_that_cannot_be_read_is_not_lost_by_an_interrupt(reads, monkeypatch):
    consumer = reads.consumer
    reads.broken = {b"2": ValueError("no")}
    plain = consumer._call_on_loop

    def interrupted(*arguments, **named):
        plain(*arguments, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(consumer, "_call_on_loop", interrupted)
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(60.0)
    monkeypatch.undo()
    assert consumer.positions()[T0].offset == 0


def test_no_other_thread_takes_records_while_some_are_deserialized(reads):
    consumer, refused = reads.consumer, []

    def poll():
        with pytest.raises(LocalProtocolError, match="another thread"):
            consumer.poll(0)
        refused.append(True)

    def read(data):
        if not refused:
            thread = threading.Thread(target=poll)
            thread.start()
            thread.join()
        return data

    reads.consumer._deserializers = reads.consumer._deserializers._replace(value=read)
    assert len(consumer.poll(60.0)) == 3
    assert refused == [True]


@pytest.mark.parametrize("what", ["key_deserializer", "value_deserializer"])
def test_a_deserializer_that_is_none_is_refused_before_a_thread_begins(what):
    with pytest.raises(TypeError, match=f"{what} is a function, not 7"):
        Consumer(bootstrap_servers="127.0.0.1:1", **{what: 7})
