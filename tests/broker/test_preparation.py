"""Batches that are looked into off the loop: appended in the order in which they came."""

import asyncio
import gc
import threading

import pytest

from sparklog.broker import preparation as module
from sparklog.broker.preparation import Preparation
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.validator import LONG, PreparedBatch, has_to_be_prepared, prepare, size_to_prepare
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.record.layout import HEADER_SIZE
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
GZIP = TopicConfig(compression_type="gzip")


class Replicas:
    """Leads every partition but those of ``led_elsewhere``, with the same settings."""

    def __init__(self, config):
        self.config = config
        self.led_elsewhere = set()

    def leads(self, tp):
        return tp not in self.led_elsewhere

    def partition(self, tp):
        return self


def batch(size, kind=CompressionType.NONE, value=b"\0"):
    builder = RecordBatchBuilder(kind)
    builder.append(0, b"k", value * size)
    return memoryview(bytearray(builder.build()))


def batch_around(kind, payload):
    """A batch whose compressed records are ``payload``, whatever that is."""
    builder = RecordBatchBuilder(kind)
    builder.append(0, None, b"v")
    out = bytearray(HEADER_SIZE) + payload
    builder.write_header(out)
    return memoryview(out)


BOMB = batch(16 << 20, CompressionType.ZSTD)
_EMPTY_BLOCKS = {
    CompressionType.ZSTD: (bytes.fromhex("28b52ffd0058"), bytes(3)),
    CompressionType.LZ4: (bytes.fromhex("04224d18604082"), (1 << 31).to_bytes(4, "little")),
}


def empty_blocks(kind, count):
    """A frame that begins with so many empty blocks, and then is cut short."""
    header, block = _EMPTY_BLOCKS[kind]
    return batch_around(kind, header + block * count)


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
        (empty_blocks(CompressionType.ZSTD, 2000), TopicConfig(), True),
        (empty_blocks(CompressionType.LZ4, 2000), TopicConfig(), True),
        (empty_blocks(CompressionType.ZSTD, 200), TopicConfig(), False),
        (empty_blocks(CompressionType.LZ4, 200), TopicConfig(), False),
        (memoryview(b"x" * 70), GZIP, False),
        (memoryview(b""), GZIP, False),
    ],
)
def test_which_batches_are_long_to_look_into(records, config, is_long):
    assert (size_to_prepare(records, config) > LONG) is is_long


@pytest.mark.parametrize("kind", _EMPTY_BLOCKS)
def test_no_more_blocks_are_looked_at_than_tell_that_a_batch_is_long(kind):
    """The walk over all of a million takes half a second."""
    told = {size_to_prepare(empty_blocks(kind, count), TopicConfig()) for count in (2000, 20_000)}
    assert len(told) == 1


@pytest.mark.parametrize("kind", _EMPTY_BLOCKS)
def test_a_batch_that_is_too_large_is_not_looked_into(kind):
    records = empty_blocks(kind, 20_000)
    config = TopicConfig(max_message_bytes=len(records) - 1)
    assert size_to_prepare(records, config) == 0
    assert not has_to_be_prepared(records, config)


def test_batches_that_cannot_be_decompressed_are_long_together():
    """Each of them is walked until its fault is found."""
    preparation = Preparation(Replicas(TopicConfig()), ManualClock())
    asked = [(TopicPartition("t", number), empty_blocks(CompressionType.ZSTD, 200)) for number in range(20)]
    assert not preparation.is_needed(asked[:1])
    assert preparation.is_needed(asked)
    preparation.close()


def test_a_batch_that_cannot_be_decompressed_is_found_out_off_the_loop():
    async def body():
        preparation = Preparation(Replicas(TopicConfig()), ManualClock())
        records = [(ONE, empty_blocks(CompressionType.ZSTD, 2000)), (TWO, batch(10))]

        async def append(prepared):
            return {number: each.code for number, each in prepared.items()}

        refused = await preparation.append_in_order(records, append)
        preparation.close()
        return refused

    assert asyncio.run(body()) == {0: ErrorCode.INVALID_RECORD}


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


def test_other_long_work_is_done_on_the_thread_behind_what_is_being_prepared(monkeypatch):
    gate, done = Gate(monkeypatch), []

    async def body():
        preparation = Preparation(Replicas(GZIP), ManualClock())

        async def append(prepared):
            done.append("appended")

        async def run():
            name = await preparation.run(lambda: threading.current_thread().name)
            done.append(name)

        before = preparation.append_in_order([(ONE, BOMB)], append)
        await asyncio.sleep(0)
        other = asyncio.ensure_future(run())
        await asyncio.sleep(0)
        assert not done
        gate.opened.set()
        await asyncio.gather(before, other)
        preparation.close()

    asyncio.run(body())
    assert done == ["appended", "prepare_0"]


def appended_after(monkeypatch, replicas, change):
    """What is handed on of a batch that takes long, for ONE, where something changes while it is being prepared."""
    gate = Gate(monkeypatch)

    async def body():
        preparation = Preparation(replicas, ManualClock())

        async def append(prepared):
            return prepared

        first = preparation.append_in_order([(TWO, BOMB)], append)
        asking = preparation.append_in_order([(ONE, BOMB), (TWO, batch(10))], append)
        await asyncio.sleep(0)
        change()
        gate.opened.set()
        prepared = (await asyncio.gather(first, asking))[1]
        preparation.close()
        return prepared

    return asyncio.run(body())


def test_a_batch_whose_settings_have_changed_is_prepared_again(monkeypatch):
    replicas = Replicas(GZIP)
    other = TopicConfig(compression_type="lz4")
    prepared = appended_after(monkeypatch, replicas, lambda: setattr(replicas, "config", other))
    assert prepared[0].config is other
    assert prepared[0].batch.compression is CompressionType.LZ4


def test_a_batch_is_not_prepared_again_for_settings_that_do_not_matter_to_it(monkeypatch):
    replicas = Replicas(GZIP)
    other = TopicConfig(compression_type="gzip", file_delete_delay_ms=1)
    prepared = appended_after(monkeypatch, replicas, lambda: setattr(replicas, "config", other))
    assert prepared[0].config is GZIP
    assert prepared[0].is_good_under(other)
    assert not prepared[0].is_good_under(TopicConfig())


def test_a_batch_that_is_led_here_by_the_time_of_its_turn_is_prepared_too(monkeypatch):
    """Or the log would look into it, and nobody else be served meanwhile."""
    replicas = Replicas(GZIP)
    replicas.led_elsewhere.add(ONE)
    prepared = appended_after(monkeypatch, replicas, lambda: replicas.led_elsewhere.discard(ONE))
    assert prepared[0].batch.compression is CompressionType.GZIP


def test_settings_that_change_again_and_again_hold_a_request_up_for_a_while_only(monkeypatch):
    replicas = Replicas(GZIP)
    looked = []

    def changing(records, config, now_ms):
        looked.append(config)
        replicas.config = TopicConfig(compression_type="lz4" if config.compression_type == "gzip" else "gzip")
        return prepare(records, config, now_ms)

    async def body():
        monkeypatch.setattr(module, "prepare", changing)
        preparation = Preparation(replicas, ManualClock())

        async def append(prepared):
            return prepared

        prepared = await preparation.append_in_order([(ONE, BOMB)], append)
        preparation.close()
        return prepared

    assert not asyncio.run(body())[0].is_good_under(replicas.config)
    assert len(looked) == 4
