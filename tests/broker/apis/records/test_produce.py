"""Produce: what is stored, what is answered, and when."""

import asyncio
import errno
import gc
import os
import random
import threading
import time
import weakref
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.broker.apis.records import produce
from sparklog.broker.context import ApiRequest
from sparklog.broker.preparation import Preparation
from sparklog.config.topic import TopicConfig
from sparklog.errors import ErrorCode, RemoteProtocolError
from sparklog.log.directories.manager import LogManager
from sparklog.net.answer import Ordered
from sparklog.net.turns import Turns
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot.produce import ProduceRequest, ProduceResult
from sparklog.protocol.slices import SLICE
from sparklog.record.batch import RecordBatch
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compression import CompressionType
from sparklog.replica.manager import ReplicaManager
from sparklog.security.access import AllowEverything
from sparklog.security.caller import Caller
from sparklog.structs import IsolationLevel, TopicPartition
from sparklog.testing.authorizer import ListedRights
from sparklog.testing.clock import ManualClock
from sparklog.testing.files import FaultyFiles
from sparklog.testing.steps import counted, finish, watched
from sparklog.zk.znodes import PartitionState

ME, OTHER_BROKER = 1, 2
ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
DEFAULTS, EACH = TopicConfig(), TopicConfig(flush_messages=1)


def batch(value=b"v"):
    builder = RecordBatchBuilder()
    builder.append(0, b"k", value)
    return memoryview(bytearray(builder.build()))


def asked(message, after=None, client_id="c"):
    return ApiRequest(ApiKey.PRODUCE, 9, client_id, Caller("h"), message, after)


class Broker:
    """What Produce needs of one, on real files."""

    authorizer = AllowEverything()

    def __init__(self, home, disk, config):
        loop = self._loop = asyncio.get_running_loop()
        self.home = home
        self.logs = LogManager([home], config, ManualClock(), disk)
        self.logs.on_failure = self.hear_of_failure
        self.replicas = ReplicaManager(ME, self.logs, loop)
        self.turns = Turns(loop)
        self.preparation = Preparation(self.replicas, ManualClock())
        self.metadata = SimpleNamespace(knows=lambda tp: True)
        self.leader_hint = lambda tp, listener: None
        for tp in (ONE, TWO):
            self.replicas.apply(tp, PartitionState(ME, 0, (ME,), 1), config, None)

    def hear_of_failure(self, path, reason):
        self._loop.call_soon_threadsafe(self.fail, path, reason)

    def fail(self, path, reason):
        self.logs.fail(path, reason)
        self.replicas.forget_unusable()

    def produce(self, *records, acks=-1, timeout_ms=0, after=None):
        """The answer, or what the connection has of it."""
        message = ProduceRequest(None, acks, timeout_ms, list(records))
        answer = produce.handle(self, asked(message, after))
        if isinstance(answer, Generator):
            answer = finish(answer)
        return answer.answer if isinstance(answer, Ordered) and answer.placed is None else answer

    def visible(self, tp=ONE):
        """How far a consumer sees, and whether it is given anything."""
        read = self.replicas.read(tp, None, 0, 1 << 20, IsolationLevel.READ_UNCOMMITTED, min_one_batch=True)
        return read.high_watermark, read.records is not None


def with_broker(home, scenario, config=DEFAULTS):
    async def run():
        with ThreadPoolExecutor(1) as disk:
            broker = Broker(home, disk, config)
            disk.submit(lambda: None).result()
            await asyncio.wait_for(scenario(broker), 60)
            broker.preparation.close()
        broker.logs.close()

    asyncio.run(run())


@pytest.fixture
def fsync(monkeypatch):
    """Holds every fdatasync back until it is opened, and counts them."""
    gate = SimpleNamespace(opened=threading.Event(), begun=threading.Semaphore(0), count=0)
    real = os.fdatasync

    def held(fd):
        gate.count += 1
        gate.begun.release()
        assert gate.opened.wait(60)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", held)
    yield gate
    gate.opened.set()


@pytest.mark.parametrize("acks", [1, -1])
def test_a_flush_that_is_wanted_holds_up_the_answer_and_nobody_else(acks, fsync, tmp_path):
    async def scenario(broker):
        answer = broker.produce((ONE, batch()), acks=acks)
        await asyncio.to_thread(fsync.begun.acquire)  # the loop is free
        assert not answer.done()
        assert broker.visible() == (0, False), "a consumer sees nothing that a power cut may take"
        waiting = broker.replicas.fetch_purgatory.wait([ONE], lambda _: broker.visible()[0] == 1, 60_000)
        fsync.opened.set()
        assert (await answer)[ONE].error is ErrorCode.NONE, "however long it took"
        assert broker.logs.logs[ONE].recovery_point == 1
        assert await waiting
        assert broker.visible() == (1, True)

    with_broker(tmp_path, scenario, EACH)


def test_appends_that_come_during_a_flush_share_the_next(fsync, tmp_path):
    async def scenario(broker):
        answers = [broker.produce((ONE, batch()))]
        await asyncio.to_thread(fsync.begun.acquire)
        answers += [broker.produce((ONE, batch())) for _ in range(9)]
        fsync.opened.set()
        results = [(await answer)[ONE] for answer in answers]
        assert [result.base_offset for result in results] == list(range(10))
        assert fsync.count == 2
        assert broker.visible() == (10, True)

    with_broker(tmp_path, scenario, EACH)


def test_who_comes_in_the_turn_in_which_a_flush_ends_is_served_by_the_next(tmp_path):
    """However many come, and whenever a flush ends: nobody waits for one that is over."""

    async def scenario(broker):
        for count in (1, 3, 100, 1000):
            answers = [broker.produce((ONE, batch()), acks=acks) for _ in range(count) for acks in (1, -1)]
            for number in range(20):
                await asyncio.sleep(0)
                answers.append(broker.produce((ONE, batch()), acks=number % 2))
            for each in answers:
                if each is not None:  # there is an answer at once where a flush that was under way has taken it along
                    results = each if isinstance(each, dict) else await each
                    assert results[ONE].error is ErrorCode.NONE
        await broker.replicas.flushed(ONE, broker.logs.logs[ONE].log_end_offset)
        while broker.replicas.flushing:  # the loop hears of a flush later than the log, and hears of no more
            await asyncio.sleep(0.001)

    with_broker(tmp_path, scenario, EACH)


def test_what_is_answered_at_once_is_seen_at_once(tmp_path):
    """A flush has ended between the append and the answer: its thread knows, and the loop has yet to hear of it."""

    async def scenario(broker):
        broker.replicas.append(ONE, batch(), 1)
        while broker.logs.logs[ONE].awaits_flush:
            time.sleep(0.001)
        assert broker.visible() == (0, False)
        message = ProduceRequest(None, 1, 0, [(ONE, batch())])
        results = {ONE: ProduceResult(ErrorCode.NONE, 0)}
        assert produce._answer(broker, asked(message), results) is results
        assert broker.visible() == (1, True)

    with_broker(tmp_path, scenario, EACH)


def test_only_the_append_that_makes_so_many_is_held(fsync, tmp_path):
    async def scenario(broker):
        first, second = (broker.produce((ONE, batch()), acks=1) for _ in range(2))
        assert isinstance(first, dict)
        assert not isinstance(second, dict)
        assert broker.visible()[0] == 1
        fsync.opened.set()
        await second
        assert broker.visible()[0] == 2

    with_broker(tmp_path, scenario, TopicConfig(flush_messages=2))


@pytest.mark.parametrize("acks", [1, -1])
def test_what_the_disk_refuses_to_keep_is_not_answered_for(acks, tmp_path):
    async def scenario(broker):
        with FaultyFiles(broker.home, fail_at=0, lasting=True, error=errno.EIO, steps=["fdatasync"]):
            answer = broker.produce((ONE, batch()), (TWO, batch()), acks=acks)
            assert [each.error for each in (await answer).values()] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2

    with_broker(tmp_path, scenario, EACH)


def test_without_an_answer_nobody_waits_for_the_flush(fsync, tmp_path):
    async def scenario(broker):
        assert broker.produce((ONE, batch()), acks=0) is None
        assert broker.visible()[0] == 0
        fsync.opened.set()
        await broker.replicas.flushed(ONE, 1)
        assert broker.visible()[0] == 1

    with_broker(tmp_path, scenario, EACH)


def test_a_new_leader_epoch_waits_for_no_disk(tmp_path, monkeypatch):
    syncing = threading.current_thread()

    async def scenario(broker):
        real = os.fsync

        def elsewhere(fd):
            assert threading.current_thread() is not syncing, "the loop waits for the disk"
            real(fd)

        monkeypatch.setattr(os, "fsync", elsewhere)
        assert broker.replicas.apply(ONE, PartitionState(ME, 7, (ME,), 1), EACH, None) is ErrorCode.NONE
        await broker.produce((ONE, batch()))
        monkeypatch.undo()
        assert broker.replicas.partition(ONE).log.epochs.entries[-1] == (7, 0)
        assert (tmp_path / "t-0" / "leader-epoch-checkpoint").read_text().endswith("\n7 0\n")

    with_broker(tmp_path, scenario, EACH)


def test_a_partition_that_is_named_twice_is_refused_and_nothing_of_it_stored(tmp_path):
    async def scenario(broker):
        results = broker.produce((ONE, batch()), (TWO, batch()), (ONE, batch()))
        assert {tp: result.error for tp, result in results.items()} == {
            ONE: ErrorCode.INVALID_REQUEST,
            TWO: ErrorCode.NONE,
        }
        assert "twice" in results[ONE].message
        assert (broker.visible(ONE)[0], broker.visible(TWO)[0]) == (0, 1)
        with pytest.raises(RemoteProtocolError, match="twice"):
            broker.produce((ONE, batch()), (ONE, batch()), acks=0)
        assert broker.visible(ONE)[0] == 0

    with_broker(tmp_path, scenario)


def test_what_is_to_come_after_something_is_appended_after_it(tmp_path):
    async def scenario(broker):
        before = asyncio.get_running_loop().create_future()
        answer = broker.produce((ONE, batch()), after=before)
        last = broker.produce((TWO, batch()), after=answer.placed)
        await asyncio.sleep(0)
        assert (broker.visible(ONE)[0], broker.visible(TWO)[0]) == (0, 0)
        before.set_result(None)
        assert (await last.answer)[TWO].error is ErrorCode.NONE
        assert answer.placed.done()
        assert (await answer.answer)[ONE].base_offset == 0
        assert isinstance(broker.produce((ONE, batch()), after=before), dict), "it waits for nothing"

    with_broker(tmp_path, scenario)


def test_the_next_waits_for_an_append_and_not_for_its_answer(fsync, tmp_path):
    """Or a flush would be shared by nobody behind a batch that takes long to look into."""

    async def scenario(broker):
        before = asyncio.get_running_loop().create_future()
        first = broker.produce((ONE, batch()), after=before)
        behind = broker.produce((ONE, batch()))
        before.set_result(None)
        await behind.placed
        assert not first.answer.done()
        assert broker.logs.logs[ONE].log_end_offset == 2
        fsync.opened.set()
        assert [(await each.answer)[ONE].base_offset for each in (first, behind)] == [0, 1]

    with_broker(tmp_path, scenario, EACH)


def test_a_partition_that_is_gone_since_the_append_is_refused_alone(tmp_path):
    async def scenario(broker):
        gone = TopicPartition("gone", 0)
        results = {ONE: ProduceResult(ErrorCode.NONE, 0), gone: ProduceResult(ErrorCode.NONE, 0)}
        answer = produce._answer(broker, asked(ProduceRequest(None, -1, 1000, [])), results)
        answered = answer if isinstance(answer, dict) else await answer
        assert answered[ONE].error is ErrorCode.NONE
        assert answered[gone].error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    with_broker(tmp_path, scenario, EACH)


def test_what_fewer_replicas_have_than_are_to_is_not_acknowledged_though_it_is_committed(tmp_path):
    """The ISR shrinks between the append and the commit: the producer hears of it, for it was promised two replicas.
    Readers see what the leader has alone, where the topic wants them to.
    """
    settings = TopicConfig(min_insync_replicas=2, min_isr_visibility="immediate")

    async def scenario(broker):
        def decide(*isr, version):
            state = PartitionState(ME, 1, isr, 1, version=version)
            assert broker.replicas.apply(ONE, state, settings, None, replicas=(ME, OTHER_BROKER)) is ErrorCode.NONE

        decide(ME, OTHER_BROKER, version=1)
        waiting = broker.produce((ONE, batch()), timeout_ms=60_000)
        await asyncio.sleep(0)
        assert not waiting.done(), "the follower does not have it yet"
        decide(ME, version=2)
        result = (await waiting)[ONE]
        assert result.error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert "min.insync.replicas" in result.message
        assert broker.visible() == (1, True), "it is in the log"
        assert broker.produce((ONE, batch()))[ONE].error is ErrorCode.NOT_ENOUGH_REPLICAS, "and before the append"

    with_broker(tmp_path, scenario, settings)


def test_what_another_leader_has_cut_off_is_not_acknowledged_though_the_offset_is_committed_again(tmp_path):
    """Another broker led one of two partitions while the other was waited for: at that offset there is its record."""

    async def scenario(broker):
        def decide(tp, leader, epoch, *isr):
            state = PartitionState(leader, epoch, isr, 1, version=epoch)
            assert broker.replicas.apply(tp, state, DEFAULTS, None, replicas=(ME, OTHER_BROKER)) is ErrorCode.NONE

        for tp in (ONE, TWO):
            decide(tp, ME, 1, ME, OTHER_BROKER)
        waiting = broker.produce((ONE, batch(b"mine")), (TWO, batch()), timeout_ms=60_000)
        await asyncio.sleep(0)
        decide(ONE, OTHER_BROKER, 2, ME, OTHER_BROKER)
        await broker.replicas.following.drop_beyond(ONE, 2, 0)
        others = RecordBatch(batch(b"another's"))
        others.assign(0, 2)
        broker.replicas.following.append_from_leader(ONE, 2, others.buffer, 1, 0)
        decide(ONE, ME, 3, ME)
        assert broker.visible() == (1, True), "the other's record"
        assert not waiting.done(), "the second partition is still waited for"
        decide(TWO, ME, 2, ME)
        results = await waiting
        assert results[TWO].error is ErrorCode.NONE
        assert results[ONE].error is ErrorCode.NOT_LEADER_OR_FOLLOWER, "the record is nowhere"

    with_broker(tmp_path, scenario)


MANY = 10 * SLICE


def many(*others):
    """A batch for each of many partitions, of which the first two are here."""
    return [(TopicPartition("t", number), batch()) for number in range(MANY)] + list(others)


@pytest.mark.source
def test_many_partitions_are_appended_a_slice_a_step(tmp_path):
    async def scenario(broker):
        appended, append = [], broker.replicas.append
        broker.replicas.append = lambda tp, *args, **kwargs: (appended.append(tp), append(tp, *args, **kwargs))[1]
        message = ProduceRequest(None, 1, 0, many())
        results = {}
        steps = produce._appending(broker, asked(message), results, None, {})
        for number in range(MANY // SLICE):
            next(steps)
            assert len(appended) == number * SLICE
        counted(steps)
        assert appended == list(results) == [tp for tp, _ in message.records]
        assert [each.error for each in results.values()][:3] == [
            ErrorCode.NONE,
            ErrorCode.NONE,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ]
        assert counted(produce.encode(results, 9))[0] >= MANY / SLICE

    with_broker(tmp_path, scenario)


class HeldTurns(Turns):
    """Steps stop where they have begun, until they are let go on."""

    def __init__(self, loop):
        super().__init__(loop)
        self.let = asyncio.Event()

    async def drive(self, steps, what):
        for _ in range(2):  # the first one only begins
            next(steps)
        await self.let.wait()
        return await super().drive(steps, what)


def test_what_another_leader_has_cut_off_before_the_last_step_is_not_acknowledged(tmp_path):
    """Where the log ends by then all is committed, but the record is nowhere."""

    async def scenario(broker):
        def decide(leader, epoch):
            state = PartitionState(leader, epoch, (ME, OTHER_BROKER), 1, version=epoch)
            assert broker.replicas.apply(ONE, state, DEFAULTS, None, replicas=(ME, OTHER_BROKER)) is ErrorCode.NONE

        broker.turns = HeldTurns(asyncio.get_running_loop())
        decide(ME, 1)
        waiting = broker.produce(*many(), timeout_ms=60_000)
        while not broker.replicas.partition(ONE).log_end_offset:
            await asyncio.sleep(0)
        decide(OTHER_BROKER, 2)
        await broker.replicas.following.drop_beyond(ONE, 2, 0)
        broker.turns.let.set()
        results = await waiting.answer
        assert results[TWO].error is ErrorCode.NONE
        assert results[ONE].error is ErrorCode.NOT_LEADER_OR_FOLLOWER

    with_broker(tmp_path, scenario)


def test_what_comes_behind_a_request_of_many_partitions_is_appended_after_it(tmp_path):
    async def scenario(broker):
        first = broker.produce(*many(), acks=1)
        behind = broker.produce((TWO, batch()), acks=1)
        last = broker.produce((ONE, batch()), acks=1, after=first.placed)
        assert [(await each.answer)[TWO].base_offset for each in (first, behind)] == [0, 1]
        assert (await last.answer)[ONE].base_offset == 1

    with_broker(tmp_path, scenario)


@pytest.mark.parametrize(("acks", "stored"), [(0, 1), (1, 0)])
def test_many_partitions_of_a_client_that_hangs_up(acks, stored, tmp_path):
    """One that waits for no answer hangs up when it has sent the last of them."""

    async def scenario(broker):
        assert not isinstance(broker.produce((ONE, batch()), (TWO, batch()), acks=acks), Ordered), "there are few"
        given = broker.produce(*many(), acks=acks)
        given.answer.cancel()
        given.placed.cancel()
        behind = broker.produce((ONE, batch()), acks=1)
        results = behind if isinstance(behind, dict) else await behind.answer
        assert results[ONE].base_offset == 1 + stored

    with_broker(tmp_path, scenario)


def test_a_partition_that_stands_twice_among_many_is_refused(tmp_path):
    async def scenario(broker):
        results = await broker.produce(*many((ONE, batch())), acks=1).answer
        assert (results[ONE].error, results[TWO].error) == (ErrorCode.INVALID_REQUEST, ErrorCode.NONE)
        assert broker.visible(ONE)[0] == 0

    with_broker(tmp_path, scenario)


OTHER = TopicPartition("other", 0)


def test_what_the_caller_may_write_is_stored_and_the_rest_refused(tmp_path):
    async def scenario(broker):
        broker.authorizer = ListedRights("WRITE topic t")
        answer = broker.produce((OTHER, batch()), (ONE, batch()), (TWO, batch()), acks=1)
        assert {tp: each.error for tp, each in answer.items()} == {
            OTHER: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ONE: ErrorCode.NONE,
            TWO: ErrorCode.NONE,
        }
        assert broker.authorizer.questions == ["WRITE topic other", "WRITE topic t"]
        assert broker.visible() == (1, True)

    with_broker(tmp_path, scenario)


def test_a_stranger_that_wants_no_answer_loses_its_connection_and_the_rest_is_stored(tmp_path):
    async def scenario(broker):
        broker.authorizer = ListedRights("WRITE topic t")
        with pytest.raises(RemoteProtocolError, match="TOPIC_AUTHORIZATION_FAILED"):
            broker.produce((OTHER, batch()), (ONE, batch()), acks=0)
        assert broker.visible() == (1, True)

    with_broker(tmp_path, scenario)


@pytest.mark.parametrize(
    ("client_id", "protects", "code"),
    [
        ("c", False, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__admin_client", True, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__admin_client", False, ErrorCode.NONE),
    ],
)
@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_no_name_of_a_client_writes_where_coordinators_keep_what_they_know(tmp_path, topic, client_id, protects, code):
    tp = TopicPartition(topic, 0)

    async def scenario(broker):
        broker.config = SimpleNamespace(internal_topics_protect=protects)
        broker.replicas.apply(tp, PartitionState(ME, 0, (ME,), 1), DEFAULTS, None)
        message = ProduceRequest(None, 1, 0, [(tp, batch())])
        answer: Any = produce.handle(broker, asked(message, client_id=client_id))
        assert answer[tp].error is code
        assert broker.visible(tp)[1] is (code is ErrorCode.NONE)

    with_broker(tmp_path, scenario)


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_nor_before_the_broker_that_leads_there_is_told_of_the_topic(tmp_path, topic):
    tp, elsewhere = TopicPartition(topic, 0), TopicPartition(topic, 1)

    async def scenario(broker):
        broker.config = SimpleNamespace(internal_topics_protect=False)
        broker.metadata.knows = lambda tp: False
        broker.replicas.apply(tp, PartitionState(ME, 0, (ME,), 1), DEFAULTS, None)
        answer = broker.produce((tp, batch()), (elsewhere, batch()))
        assert answer[tp].error is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert answer[elsewhere].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert broker.visible(tp) == (0, False)

    with_broker(tmp_path, scenario)


def test_a_topic_of_many_partitions_is_asked_for_once(tmp_path):
    async def scenario(broker):
        broker.authorizer = ListedRights("WRITE topic t")
        results = await broker.produce(*many((OTHER, batch())), acks=1).answer
        assert [results[tp].error for tp in (ONE, TWO)] == [ErrorCode.NONE, ErrorCode.NONE]
        assert results[OTHER].error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert len(results) == MANY + 1
        assert broker.authorizer.questions == ["WRITE topic t", "WRITE topic other"]

    with_broker(tmp_path, scenario)


def test_a_batch_that_is_refused_is_not_looked_into(tmp_path):
    async def scenario(broker):
        broker.authorizer = ListedRights()
        seen, is_needed = [], broker.preparation.is_needed
        broker.preparation.is_needed = lambda records, after: (seen.append(records), is_needed(records, after))[1]
        assert broker.produce((ONE, batch()), acks=1)[ONE].error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert seen == [[]]

    with_broker(tmp_path, scenario)


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.ZSTD], ids=["at once", "on the thread"])
def test_a_batch_that_is_refused_is_not_kept(codec, tmp_path):
    """It was part of a cycle with its error, and stayed until the next look for cyclic garbage."""
    kept = []

    async def scenario(broker):
        builder = RecordBatchBuilder(codec)
        builder.append(0, None, random.Random(1).randbytes(900_000))
        bad = memoryview(bytearray(builder.build()))
        bad[-1] ^= 1
        kept.append(weakref.ref(bad))
        answer = broker.produce((ONE, bad))
        results = answer if isinstance(answer, dict) else await answer.answer
        assert results[ONE].error is ErrorCode.CORRUPT_MESSAGE

    gc.disable()
    try:
        with_broker(tmp_path, scenario)
        assert kept[0]() is None
    finally:
        gc.enable()


@pytest.mark.source
def test_of_many_topics_a_slice_is_asked_a_step_whether_it_may_be_written(tmp_path):
    topics = [TopicPartition(f"t{number}", 0) for number in range(10 * SLICE)]

    async def scenario(broker):
        broker.authorizer = rights = ListedRights("WRITE topic t")
        message = ProduceRequest(None, 1, 0, [(ONE, batch()), *((tp, batch()) for tp in topics)])
        seen = [0]
        answer = watched(produce.handle(broker, asked(message)), lambda: seen.append(len(rights.questions)))
        assert all(now <= before + SLICE for before, now in pairwise(seen))
        assert len(rights.questions) == seen[-1] == len(topics) + 1, "nothing is asked twice"
        results = await answer.answer if isinstance(answer, Ordered) else answer
        assert results[ONE].error is ErrorCode.NONE
        assert {results[tp].error for tp in topics} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}

    with_broker(tmp_path, scenario)
