"""Cleanings that somebody asks for: which one answers whom."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID

import pytest

from sparklog.compaction.stats import CleanerStats
from sparklog.config.broker import BrokerConfig
from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.log.directories.manager import LogManager
from sparklog.record.builder import RecordBatchBuilder
from sparklog.replica import cleaning
from sparklog.replica.cleaning import LogCleaner, NotCleaned, NothingToClean
from sparklog.replica.manager import ReplicaManager
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.zk.znodes import PartitionState

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
WAIT_S = 60.0
HOUR_MS = 3_600_000


class Worker:
    """Leaves every log as it is, when ``gate`` lets it."""

    gate: asyncio.Event
    ends: list[int]
    """What each cleaning came to."""

    def __init__(self):
        self.stats = CleanerStats()

    async def clean(self, task):
        await self.gate.wait()
        self.stats = CleanerStats(end_offset=task.first_uncleanable)
        self.ends.append(task.first_uncleanable)
        for group in ():
            yield group

    async def end(self):
        """Nothing is to be ended."""


@pytest.fixture
def stage(tmp_path, monkeypatch):
    @asynccontextmanager
    async def make(threads=1):
        loop, clock = asyncio.get_running_loop(), ManualClock()
        monkeypatch.setattr(cleaning, "Worker", Worker)
        Worker.gate, Worker.ends = asyncio.Event(), []
        config = parse(TopicConfig, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"})
        disk = ThreadPoolExecutor(1)
        logs = LogManager([tmp_path], TopicConfig(), clock, disk)
        logs.load({"t": config})
        replicas = ReplicaManager(1, logs, loop, clock=clock)
        for tp in (TP, OTHER):
            replicas.apply(tp, PartitionState(1, 0, (1,), 1), config, UUID(int=1))
        cleaner = LogCleaner(logs, replicas.changing, loop, clock, BrokerConfig(log_cleaner_threads=threads))
        cleaner.start()
        async with asyncio.timeout(WAIT_S):
            yield cleaner, lambda tp=TP: write(replicas, tp)
        Worker.gate.set()
        await cleaner.close()
        logs.close()
        disk.shutdown()

    return make


def write(replicas, tp):
    builder = RecordBatchBuilder()
    builder.append(1, b"k", b"v")
    replicas.append(tp, memoryview(bytearray(builder.build())), 1)


async def until(condition):
    while not condition():
        await asyncio.sleep(0)


def test_a_log_is_cleaned_to_its_end(stage):
    async def run():
        async with stage() as (cleaner, append):
            append()
            Worker.gate.set()
            assert (await cleaner.clean(TP)).end_offset == 1
            assert cleaner.last_runs[TP].stats.end_offset == 1
            with pytest.raises(NothingToClean, match="last stable offset, 1"):
                await cleaner.clean(TP)
            append()
            assert (await cleaner.clean(TP)).end_offset == 2

    asyncio.run(run())


def test_who_asks_during_a_cleaning_is_answered_by_the_next_one(stage):
    async def run():
        async with stage() as (cleaner, append):
            append()
            first = asyncio.create_task(cleaner.clean(TP))
            await until(lambda: TP in cleaner.under_way)
            append()
            second = asyncio.create_task(cleaner.clean(TP))
            await asyncio.sleep(0)
            Worker.gate.set()
            assert [(await each).end_offset for each in (first, second)] == [1, 2]
            assert Worker.ends == [1, 2]

    asyncio.run(run())


def test_those_who_ask_at_once_are_answered_by_one_cleaning(stage):
    async def run():
        async with stage() as (cleaner, append):
            append()
            append(OTHER)
            asked = [asyncio.create_task(cleaner.clean(tp)) for tp in (TP, TP, OTHER)]
            await asyncio.sleep(0)
            Worker.gate.set()
            assert [(await each).end_offset for each in asked] == [1, 1, 1]
            assert Worker.ends == [1, 1]

    asyncio.run(run())


def test_who_gives_up_waiting_stops_no_cleaning(stage):
    async def run():
        async with stage() as (cleaner, append):
            append()
            asked = asyncio.create_task(cleaner.clean(TP))
            await until(lambda: TP in cleaner.under_way)
            asked.cancel()
            Worker.gate.set()
            await until(lambda: TP in cleaner.last_runs)
            assert Worker.ends == [1]

    asyncio.run(run())


def test_what_one_thread_leaves_another_does(stage):
    async def run():
        async with stage(threads=2) as (cleaner, append):
            append()
            append(OTHER)
            asked = [asyncio.create_task(cleaner.clean(tp)) for tp in (TP, OTHER)]
            await until(lambda: {TP, OTHER} <= cleaner.under_way)
            cleaner.configure(BrokerConfig(log_cleaner_threads=1, log_cleaner_backoff_ms=HOUR_MS))
            Worker.gate.set()
            assert [(await each).end_offset for each in asked] == [1, 1]

    asyncio.run(run())


def test_without_threads_nobody_waits(stage):
    async def run():
        async with stage() as (cleaner, append):
            append()
            append(OTHER)
            asked = [asyncio.create_task(cleaner.clean(tp)) for tp in (TP, OTHER)]
            await until(lambda: cleaner.under_way)
            cleaner.configure(BrokerConfig(log_cleaner_threads=0))
            for each in asked:
                with pytest.raises(NotCleaned, match=r"log\.cleaner\.threads is 0"):
                    await each
            with pytest.raises(NotCleaned, match=r"log\.cleaner\.threads is 0"):
                await cleaner.clean(TP)
            assert cleaner.threads == 0

    asyncio.run(run())


def test_a_log_that_is_not_compacted_is_not_cleaned(stage):
    async def run():
        async with stage() as (cleaner, append):
            append()
            log = cleaner._logs.logs[TP]
            log.config = replace(log.config, cleanup_policy=("delete",))
            for tp in (TP, TopicPartition("nothing", 0)):
                with pytest.raises(NotCleaned, match="is not compact"):
                    await cleaner.clean(tp)

    asyncio.run(run())
