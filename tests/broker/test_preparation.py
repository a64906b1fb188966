"""Batches that are looked into off the loop: appended in the order in which they came."""

import asyncio
import gc
import threading

import pytest

from sparklog.broker import preparation as module
from sparklog.broker.preparation import Preparation
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.validator import LONG, PreparedBatch, prepare, size_to_prepare
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
GZIP = TopicConfig(compression_type="gzip")


class Replicas:
    """Leads every partition, with the same settings."""

    def __init__(self, config):
        self.config = config

    def leads(self, tp):
        return True

    def partition(self, tp):
        return self


def batch(size, kind=CompressionType.NONE, value=b"\0"):
    builder = RecordBatchBuilder(kind)
    builder.append(0, b"k", value * size)
    return memoryview(bytearray(builder.build()))


BOMB = batch(16 << 20, CompressionType.ZSTD)


@pytest.mark.parametrize(
    ("records", "config", "is_long"),
    [
        (BOMB, GZIP, True),
        (BOMB, TopicConfig(cleanup_policy=("compact",)), True),
        (BOMB, TopicConfig(), True),
        (batch(LONG * 2), GZIP, True),
        (batch(LONG * 2), TopicConfig(), False),
        (batch(100), GZIP, False),
        (batch(100, CompressionType.ZSTD), GZIP, False),
        (batch(100, CompressionType.LZ4), GZIP, False),
        (batch(100, CompressionType.SNAPPY), GZIP, False),
        (batch(LONG * 4, CompressionType.SNAPPY), GZIP, True),
        (batch(LONG * 4, CompressionType.LZ4), GZIP, True),
        (batch(LONG * 4, CompressionType.LZ4), TopicConfig(), False),
        (batch(LONG * 9, CompressionType.LZ4), TopicConfig(), True),
        (batch(LONG * 4, CompressionType.ZSTD), TopicConfig(), False),
        (batch(LONG * 9, CompressionType.ZSTD), TopicConfig(), True),
        (memoryview(b"x" * 70), GZIP, False),
        (memoryview(b""), GZIP, False),
    ],
)
def test_which_batches_are_long_to_look_into(records, config, is_long):
    assert (size_to_prepare(records, config) > LONG) is is_long


def test_many_short_batches_are_long_together():
    """Each of them is looked into in a part of a millisecond, a thousand of them in half a second."""
    packed = batch(LONG * 4, CompressionType.ZSTD)
    asked = [(TopicPartition("t", number), packed) for number in range(4)]
    preparation = Preparation(Replicas(TopicConfig()), ManualClock())
    assert not preparation.is_needed(asked[:1])
    assert preparation.is_needed(asked)
    preparation.close()


class Gate:
    """Holds preparation back until it is opened."""

    def __init__(self, monkeypatch):
        self.opened = threading.Event()

        def held(records, config, now_ms):
            assert self.opened.wait(60)
            return prepare(records, config, now_ms)

        monkeypatch.setattr(module, "prepare", held)


def test_requests_for_a_partition_are_appended_in_their_order(monkeypatch):
    gate, appended = Gate(monkeypatch), []

    async def body():
        preparation = Preparation(Replicas(GZIP), ManualClock())

        def submit(name, *records):
            async def append(prepared):
                appended.append((name, set(prepared)))
                return name

            if preparation.is_needed(list(records)):
                return preparation.append_in_order(list(records), append)
            appended.append((name, None))
            return None

        first = submit("long", (ONE, BOMB))
        second = submit("short behind it", (ONE, batch(10)), (TWO, batch(10)))
        third = submit("behind that", (TWO, batch(10)))
        assert submit("elsewhere", (TopicPartition("u", 0), batch(10))) is None
        await asyncio.sleep(0)
        assert appended == [("elsewhere", None)]
        gate.opened.set()
        assert await asyncio.gather(first, second, third) == ["long", "short behind it", "behind that"]
        assert submit("afterwards", (ONE, batch(10))) is None
        preparation.close()

    asyncio.run(body())
    names = ["elsewhere", "long", "short behind it", "behind that", "afterwards"]
    assert [name for name, _ in appended] == names
    assert dict(appended)["long"] == {0}


def test_a_request_that_is_given_up_lets_the_next_go_on(monkeypatch):
    gate, appended = Gate(monkeypatch), []

    async def body():
        preparation = Preparation(Replicas(GZIP), ManualClock())

        async def append(prepared):
            appended.append(len(prepared))

        for wait in (False, True):
            given_up = preparation.append_in_order([(ONE, BOMB)], append)
            if wait:
                await asyncio.sleep(0)
            given_up.cancel()
        last = preparation.append_in_order([(ONE, batch(10))], append)
        gate.opened.set()
        await last
        assert appended == [0]
        assert not preparation.is_needed([(ONE, batch(10))])
        preparation.close()

    asyncio.run(body())


@pytest.mark.parametrize("before_the_last", [True, False])
def test_a_request_that_is_given_up_lets_nobody_past_those_before_it(monkeypatch, before_the_last):
    gate, appended = Gate(monkeypatch), []

    async def body():
        preparation = Preparation(Replicas(GZIP), ManualClock())

        def submit(name, records):
            async def append(prepared):
                appended.append(name)

            assert preparation.is_needed([(ONE, records)])
            return preparation.append_in_order([(ONE, records)], append)

        work = [submit("first", BOMB)]
        given_up = submit("given up", batch(10))
        if not before_the_last:
            work.append(submit("last", batch(10)))
        given_up.cancel()
        await asyncio.wait([given_up])
        if before_the_last:
            work.append(submit("last", batch(10)))
        await asyncio.sleep(0)
        gate.opened.set()
        await asyncio.gather(*work)
        preparation.close()

    asyncio.run(body())
    assert appended == ["first", "last"]


@pytest.mark.parametrize(("answered", "most", "expected"), [(True, 64 << 20, 0), (False, 64 << 20, 1), (False, 10, 0)])
def test_a_request_without_an_answer_is_not_given_up_with_its_connection(monkeypatch, answered, most, expected):
    gate, appended = Gate(monkeypatch), []
    monkeypatch.setattr(module, "_KEPT_AT_MOST", most)

    async def body():
        preparation = Preparation(Replicas(GZIP), ManualClock())

        async def append(prepared):
            appended.append(len(prepared))

        given_up = preparation.append_in_order([(ONE, BOMB)], append, answered=answered)
        await asyncio.sleep(0)
        given_up.cancel()
        last = preparation.append_in_order([(TWO, BOMB), (ONE, batch(10))], append)
        gate.opened.set()
        await last
        preparation.close()

    asyncio.run(body())
    assert len(appended) == expected + 1


def test_what_is_refused_when_nobody_waits_any_more_is_not_reported_as_a_failure(monkeypatch):
    gate, reported = Gate(monkeypatch), []

    async def body():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))
        preparation = Preparation(Replicas(GZIP), ManualClock())

        async def refuse(prepared):
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, "damaged")

        async def append(prepared):
            return "appended"

        refused = preparation.append_in_order([(ONE, BOMB)], refuse, answered=False)
        behind = preparation.append_in_order([(ONE, batch(10))], append)
        await asyncio.sleep(0)
        refused.cancel()
        gate.opened.set()
        assert await behind == "appended"
        del refused
        gc.collect()
        preparation.close()

    asyncio.run(body())
    assert not reported


def test_a_batch_that_is_refused_is_handed_on_with_the_reason():
    async def body():
        preparation = Preparation(Replicas(GZIP), ManualClock())
        broken = batch(LONG * 2)
        broken[-1] ^= 1

        async def append(prepared):
            return prepared

        prepared = await preparation.append_in_order([(ONE, broken), (TWO, BOMB)], append)
        assert isinstance(prepared[0], ApiError)
        assert prepared[0].code is ErrorCode.CORRUPT_MESSAGE
        assert isinstance(prepared[1], PreparedBatch)
        assert prepared[1].batch.compression is CompressionType.GZIP
        preparation.close()

    asyncio.run(body())
