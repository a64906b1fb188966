"""The broker's part of a cleaning, with a real worker process and real logs: what may come between."""

import asyncio
import errno
import functools
import logging
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import ClassVar
from uuid import UUID

import pytest
from compaction.keyed import Producer, append, batch_of, fill, leftovers, records_of, segment_files, table_of

from sparklog.broker.leases import Leases
from sparklog.compaction.process import Worker
from sparklog.compaction.task import Buffers, CleaningTask
from sparklog.config.broker import BrokerConfig
from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import ErrorCode, LogError
from sparklog.log.checkpoints import CLEANER_OFFSETS, read_offsets
from sparklog.log.directories.manager import LogManager
from sparklog.log.files import DELETED_SUFFIX, LOG_SUFFIX, segment_path
from sparklog.log.lease import Lease
from sparklog.log.loader import Knowledge
from sparklog.log.log import Log
from sparklog.log.producer_snapshot import ProducerEntry
from sparklog.log.replacement import Replacement
from sparklog.record.batch import patch_header
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.records import iter_batches, iter_records
from sparklog.replica import cleaning
from sparklog.replica.cleaning import LogCleaner, Mark, NotCleaned
from sparklog.replica.manager import ReplicaManager
from sparklog.security.principal import ANONYMOUS
from sparklog.structs import STATE_TOPICS, OffsetAndEpoch, TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.eventually import wait_for_death
from sparklog.testing.files import FaultyFiles
from sparklog.zk.znodes import PartitionState

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
ID, NEW_ID = UUID(int=1), UUID(int=2)
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1000",
    "index.interval.bytes": "100",
    "min.cleanable.dirty.ratio": "0.1",
}
CONFIG = parse(TopicConfig, SETTINGS)
BACKOFF_MS = 10
BROKER = replace(BrokerConfig(), log_cleaner_dedupe_buffer_size=1 << 20, log_cleaner_backoff_ms=BACKOFF_MS)
PATIENCE_S = 60
"""For what has to come, on whatever machine."""


class Gate:
    """Where a worker stops until it is let on."""

    def __init__(self):
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def stop(self):
        self.reached.set()
        await self.open.wait()


class Stage:
    """Log directories, a cleaner over them, and its workers. A gate is closed once a test has put one up."""

    def __init__(self, home, config, names):
        self.clock = ManualClock()
        self.executor = ThreadPoolExecutor(1)
        self.logs = LogManager(
            [home / name for name in names], CONFIG, self.clock, self.executor, defaults=Knowledge(high_watermark=2**62)
        )
        self.logs.load({TP.topic: CONFIG})
        loop = asyncio.get_running_loop()
        self.logs.on_failure = self.hear_disk_failed
        self.loop = loop
        self.changing = asyncio.Lock()
        self.cleaner = LogCleaner(self.logs, self.changing, loop, self.clock, config)
        self.before_begin: Gate | None = None
        self.before_group: Gate | None = None
        self.before_end: Gate | None = None
        self.workers: list[Worker] = []
        self.tasks = 0

    def hear_disk_failed(self, path, why):
        """On any thread; told on the loop, as in a broker."""
        self.loop.call_soon_threadsafe(self.logs.fail, path, why)

    def make(self, tp=TP, topic_id=ID, config=CONFIG):
        return self.logs.get_or_create(tp, config, topic_id)

    @property
    def pid(self):
        (pid,) = [each.pid for each in self.workers if each.pid is not None]
        return pid

    async def on_disk(self, work, *arguments):
        return await asyncio.wrap_future(self.executor.submit(work, *arguments))

    def checkpoint(self, home):
        return read_offsets(home / CLEANER_OFFSETS)

    async def until(self, condition, what="", *, time_stands=False):
        """Turns of the loop, and of the backoff's clock, until it is so."""
        async with asyncio.timeout(PATIENCE_S):
            while not (found := condition()):
                if not time_stands:
                    self.clock.advance(BACKOFF_MS / 1000)
                await asyncio.sleep(0.01)
        return found


@pytest.fixture
def stage(tmp_path, monkeypatch):
    monkeypatch.setattr(cleaning, "_LEASE_PAUSE_S", 0.01)

    @asynccontextmanager
    async def opened(config=BROKER, names=("a",)):
        built = Stage(tmp_path, config, names)

        class Gated(Worker):
            def __init__(self):
                super().__init__()
                built.workers.append(self)

            async def clean(self, task):
                built.tasks += 1
                if built.before_begin is not None:
                    await built.before_begin.stop()
                async with aclosing(super().clean(task)) as groups:
                    async for group in groups:
                        if built.before_group is not None:
                            await built.before_group.stop()
                        yield group
                if built.before_end is not None:
                    await built.before_end.stop()

        monkeypatch.setattr(cleaning, "Worker", Gated)
        try:
            async with asyncio.timeout(PATIENCE_S):
                yield built
        finally:
            for gate in (built.before_begin, built.before_group, built.before_end):
                if gate is not None:
                    gate.open.set()
            await built.cleaner.close()
            built.executor.shutdown()
            built.logs.close()

    return opened


def on_loop(test):
    """Run a test that is a coroutine function on a loop of its own."""

    @functools.wraps(test)
    def run(**fixtures):
        asyncio.run(test(**fixtures))

    return run


def last_values(log):
    """The last record of each key, in the order of the offsets."""
    last = {}
    for record in records_of(log):
        last[record[1]] = record
    return sorted(last.values())


def lines(caplog, text):
    return [each.getMessage() for each in caplog.records if text in each.getMessage()]


class LookedAt(ProducerEntry):
    """Notes by which threads."""

    threads: ClassVar[set[int]] = set()

    @property
    def batches(self):
        self.threads.add(threading.get_ident())
        return self[2]


@pytest.fixture
def threads(monkeypatch):
    """Those that look at a log's producers, of which there may be any number, or write them as JSON."""
    to_json = CleaningTask.to_json

    def noted(task):
        LookedAt.threads.add(threading.get_ident())
        return to_json(task)

    monkeypatch.setattr(LookedAt, "threads", set())
    monkeypatch.setattr(CleaningTask, "to_json", noted)
    monkeypatch.setattr(Log, "producers", property(lambda _: [LookedAt(7, 0), LookedAt(8, 3)]))
    return LookedAt.threads


# A cleaning that nothing disturbs


@on_loop
async def test_others_do_not_wait_while_the_producers_of_a_log_are_told_to_a_worker(stage, threads):
    """There may be hundreds of thousands, of a day of short-lived ones."""
    async with stage() as built:
        fill(built.make())
        built.cleaner.start()
        await built.until(lambda: built.cleaner.last_runs.get(TP))
        assert threads
        assert threading.get_ident() not in threads


@on_loop
async def test_a_dirty_log_is_cleaned_and_the_checkpoint_says_so(stage, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    async with stage() as built:
        log = built.make()
        fill(log)
        table, active, end = table_of(log), log.end.segment_base, log.log_end_offset
        kept_back = [each for each in records_of(log) if each[0] >= active]
        last = [each for each in last_values(log) if each[0] < active]
        size = log.size
        built.cleaner.start()
        run = await built.until(lambda: built.cleaner.last_runs.get(TP))
        below = [each for each in records_of(log) if each[0] < active]
        assert [each for each in below if each in last] == last, "the last value of each key survives"
        assert len(below) <= 5
        assert [each for each in records_of(log) if each[0] >= active] == kept_back
        assert table_of(log) == table
        assert (log.log_end_offset, log.size < size) == (end, True)
        assert built.logs.cleaner_point(TP) == run.stats.end_offset == active
        await built.on_disk(int)
        assert built.checkpoint(tmp_path / "a") == {TP: active}
        await built.on_disk(int)
        assert leftovers(log.directory) == []
        assert run.stats.messages_read == active
        assert run.stats.messages_written == len(below)
        assert run.stats.map_messages_read == active
        assert run.stats.keys == 5
        assert run.stats.bytes_read == run.stats.map_bytes_read
        assert run.stats.bytes_written == sum(each.size for each in log.segment_facts()[:-1])
        (opening,) = lines(caplog, "Cleaning log t-0")
        assert opening == (
            "Cleaning log t-0 (cleaning prior to 2023-11-14T22:13:20+00:00,"
            " discarding tombstones prior to 2023-11-13T22:13:20+00:00)..."
        )
        (summary,) = lines(caplog, "Log cleaner thread 0 cleaned log t-0")
        assert f"(dirty section = [0, {active}])" in summary
        assert lines(caplog, "End size: ") == [f"End size: 0.0 MB ({len(below)} messages)"]


@on_loop
async def test_records_of_a_time_beyond_all_dates_do_not_keep_a_log_from_being_cleaned(stage, caplog):
    """Such as that of a producer which takes microseconds for milliseconds."""
    caplog.set_level(logging.INFO)
    async with stage() as built:
        log = built.make()
        for number in range(6):
            builder = RecordBatchBuilder()
            builder.append(built.clock.now_ms() * 1000, b"k", b"%d" % number)
            log.append_as_leader(memoryview(bytearray(builder.build())), 0)
            log.on_high_watermark(log.log_end_offset)
        built.cleaner.start()
        await built.cleaner.clean(TP)
        assert records_of(log) == [(5, b"k", b"5")]
        (opening,) = lines(caplog, "Cleaning log t-0")
        assert "(cleaning prior to 9999-12-31T23:59:59+00:00," in opening


@on_loop
async def test_a_thread_whose_log_another_has_taken_chooses_the_next_at_once(stage):
    """Both look at so many logs that they look at the same time."""
    broker = replace(BROKER, log_cleaner_threads=2, log_cleaner_backoff_ms=3_600_000)
    async with stage(broker) as built:
        for partition in range(25):
            log = built.make(TopicPartition("t", partition))
            if partition in (3, 7):
                fill(log)
        built.before_group = Gate()
        built.cleaner.start()
        await built.until(lambda: built.tasks == 2)
        assert built.cleaner.under_way == {TopicPartition("t", 3), TopicPartition("t", 7)}


@on_loop
async def test_a_log_that_is_asked_for_is_cleaned_with_its_active_segment(stage):
    async with stage() as built:
        log = built.make()
        for number in range(6):
            append(log, (b"k", b"%d" % number))
        built.cleaner.start()
        stats = await built.cleaner.clean(TP)
        assert stats.end_offset == 6
        assert records_of(log) == [(5, b"k", b"5")]
        with pytest.raises(NotCleaned, match="nothing is to be cleaned"):
            await built.cleaner.clean(TP)


@on_loop
async def test_a_worker_that_has_nothing_to_do_ends(stage):
    async with stage() as built:
        append(built.make(), (b"k", b"v"))
        built.before_end = Gate()
        built.cleaner.start()
        wish = asyncio.create_task(built.cleaner.clean(TP))
        await built.before_end.reached.wait()
        pid = built.pid
        built.before_end.open.set()
        await wish
        await asyncio.to_thread(wait_for_death, pid)


@on_loop
async def test_logs_of_two_threads_are_each_cleaned_by_one(stage):
    async with stage(replace(BROKER, log_cleaner_threads=2)) as built:
        built.before_group = Gate()
        logs = [built.make(tp) for tp in (TP, OTHER)]
        for log in logs:
            fill(log)
        tables = [table_of(log) for log in logs]
        built.cleaner.start()
        await built.until(lambda: built.tasks == 2)
        assert built.cleaner.under_way == {TP, OTHER}
        built.before_group.open.set()
        await built.until(lambda: set(built.cleaner.last_runs) == {TP, OTHER})
        assert built.tasks == 2
        assert [table_of(log) for log in logs] == tables


@pytest.mark.parametrize("dirtier", [TP, OTHER])
@on_loop
async def test_of_two_logs_that_are_due_the_dirtier_comes_first(stage, dirtier):
    async with stage() as built:
        for tp in (TP, OTHER):
            fill(built.make(tp))
            if tp != dirtier:
                first, second = [each.base_offset for each in built.logs.logs[tp].segment_facts()][:2]
                built.logs.set_cleaner_point(tp, second)
                assert first < second
        built.before_group = Gate()
        built.cleaner.start()
        await built.before_group.reached.wait()
        assert built.cleaner.under_way == {dirtier}


async def _next_buffers(built):
    """What a worker would be told of memory and rate now."""
    never_due = parse(TopicConfig, SETTINGS | {"min.cleanable.dirty.ratio": "1"})
    append(built.make(config=never_due), (b"k", b"v"))
    task, _ = await built.cleaner.begin(built.cleaner.examine(TP, rolls=True))
    return task.buffers


async def _buffers_of(built):
    """Likewise, of a cleaner that starts."""
    built.cleaner.start()
    return await _next_buffers(built)


@on_loop
async def test_memory_and_rate_are_divided_among_the_workers(stage):
    config = replace(
        BROKER,
        log_cleaner_threads=3,
        log_cleaner_dedupe_buffer_size=30 << 20,
        log_cleaner_io_buffer_size=600_000,
        log_cleaner_io_buffer_load_factor=0.75,
        log_cleaner_io_max_bytes_per_second=9000.0,
    )
    async with stage(config) as built:
        halves_to_read_and_to_write = 600_000 // 3 // 2
        assert await _buffers_of(built) == Buffers(10 << 20, 0.75, halves_to_read_and_to_write, 3000.0, 9000.0)


@on_loop
async def test_a_map_has_two_gigabytes_at_most(stage):
    async with stage(replace(BROKER, log_cleaner_dedupe_buffer_size=5 << 30)) as built:
        assert (await _buffers_of(built)).map_bytes == (1 << 31) - 1


@on_loop
async def test_settings_of_memory_and_rate_that_change_count_from_the_next_log_on(stage):
    async with stage() as built:
        built.cleaner.start()
        before = await _next_buffers(built)
        changed = replace(
            BROKER,
            log_cleaner_dedupe_buffer_size=30 << 20,
            log_cleaner_io_buffer_size=600_000,
            log_cleaner_io_buffer_load_factor=0.75,
            log_cleaner_io_max_bytes_per_second=9000.0,
        )
        built.cleaner.configure(changed)
        assert await _next_buffers(built) == Buffers(30 << 20, 0.75, 300_000, 9000.0, 9000.0)
        built.cleaner.configure(replace(changed, log_cleaner_threads=2))
        assert await _next_buffers(built) == Buffers(15 << 20, 0.75, 150_000, 4500.0, 9000.0)
        built.cleaner.configure(BROKER)
        assert await _next_buffers(built) == before


@on_loop
async def test_a_backoff_that_changes_counts_at_once(stage):
    an_hour = replace(BROKER, log_cleaner_backoff_ms=3_600_000)
    async with stage(an_hour) as built:
        log = built.make()
        built.cleaner.start()
        built.cleaner.configure(BROKER)
        for _ in range(20):  # it finds nothing, and pauses
            await asyncio.sleep(0)
        fill(log)
        await built.until(lambda: TP in built.cleaner.last_runs, time_stands=True)
        for config, seconds in ((an_hour, 3600), (BROKER, BACKOFF_MS / 1000)):
            built.cleaner.configure(replace(config, log_cleaner_threads=0))
            built.cleaner.failed(Mark.of(log), LogError("it was not to be"))
            append(log, (b"k", b"v"))
            built.clock.advance(0.9 * seconds)
            with pytest.raises(NotCleaned, match="cannot be cleaned now"):
                built.cleaner.examine(TP, rolls=True)
            built.clock.advance(0.1 * seconds)
            assert built.cleaner.examine(TP, rolls=True)


@pytest.mark.parametrize("off", [{"log_cleaner_enable": False}, {"log_cleaner_threads": 0}])
@on_loop
async def test_a_broker_that_cleans_nothing_says_so(stage, off):
    async with stage(replace(BROKER, **off)) as built:
        fill(built.make())
        built.cleaner.start()
        with pytest.raises(NotCleaned, match="cleans nothing"):
            await built.cleaner.clean(TP)


@on_loop
async def test_threads_may_be_added_later(stage):
    async with stage(replace(BROKER, log_cleaner_threads=0)) as built:
        fill(built.make())
        built.cleaner.start()
        built.cleaner.configure(BROKER)
        await built.until(lambda: TP in built.cleaner.last_runs)


@on_loop
async def test_an_undecided_transaction_is_not_touched(stage):
    async with stage() as built:
        log = built.make()
        for number in range(3):
            append(log, (b"k", b"%d" % number))
        append(log, (b"k", b"open"), producer=Producer(7, 0, 0, is_transactional=True))
        log.roll()
        append(log, (b"k", b"last"))
        before = records_of(log)
        built.cleaner.start()
        with pytest.raises(NotCleaned, match="nothing is to be cleaned below the last stable offset, 3"):
            await built.cleaner.clean(TP)
        assert records_of(log) == before


# What may come between


async def _gated(built, gate):
    """A log with a cleaning under way that has reached the gate."""
    log = built.make()
    fill(log)
    setattr(built, gate, Gate())
    built.cleaner.start()
    async with asyncio.timeout(PATIENCE_S):
        await getattr(built, gate).reached.wait()
    return log


GATES = pytest.mark.parametrize("gate", ["before_group", "before_end"])


async def _let_go(built, gate):
    """Open the gate, and wait until that cleaning is over; where it failed, none follows while the clock stands."""
    closed, _ = getattr(built, gate), setattr(built, gate, None)
    closed.open.set()
    await built.until(lambda: TP not in built.cleaner.under_way, time_stands=True)


@GATES
@on_loop
async def test_a_log_that_is_cut_meanwhile_is_not_taken_for_clean(stage, gate):
    async with stage() as built:
        log = await _gated(built, gate)
        cut_at = log.segment_facts()[1].base_offset
        await built.on_disk(built.logs.truncate_to, TP, cut_at)
        while log.segment_count < 5:  # others come in their place
            append(log, (b"new", b"%d" % log.log_end_offset + b"." * 100))
        table = table_of(log)
        first, again = getattr(built, gate), Gate()
        built.before_end = None
        built.before_group = again
        first.open.set()
        await built.until(lambda: again.reached.is_set() or TP in built.cleaner.last_runs)
        point = built.logs.cleaner_point(TP)
        assert point is None or point <= cut_at, "what was written since counts as clean"
        assert table_of(log) == table
        again.open.set()
        await built.until(lambda: TP in built.cleaner.last_runs)
        assert table_of(log) == table
        active = log.end.segment_base
        assert len([offset for offset, key, _ in records_of(log) if key == b"new" and offset < active]) == 1
        await built.on_disk(int)
        await built.on_disk(int)
        assert leftovers(log.directory) == []


@GATES
@pytest.mark.parametrize("again", [False, True], ids=["deleted", "created again"])
@on_loop
async def test_a_log_that_is_deleted_meanwhile_leaves_nothing_and_the_cleaner_lives_on(stage, gate, again, caplog):
    async with stage() as built:
        await _gated(built, gate)
        async with built.changing:
            built.logs.delete(TP)
            if again:
                log = built.make(topic_id=NEW_ID)
                append(log, (b"new", b"value"))
        await _let_go(built, gate)
        if again:
            assert built.logs.cleaner_point(TP) is None
            assert records_of(log) == [(0, b"new", b"value")]
        other = built.make(OTHER)
        fill(other)
        await built.until(lambda: OTHER in built.cleaner.last_runs, "the thread cleans other logs")
        if again:
            fill(log)
            table = table_of(log)
            await built.until(lambda: TP in built.cleaner.last_runs)
            assert table_of(log) == table
            await built.on_disk(int)
            assert leftovers(log.directory) == []

    assert not lines(caplog, "failed")


@on_loop
async def test_the_last_cleaning_is_not_that_of_a_topic_that_had_the_name_before(stage):
    async with stage() as built:
        fill(built.make())
        built.cleaner.start()
        assert (await built.until(lambda: built.cleaner.last_run(TP))).stats.messages_written
        async with built.changing:
            built.logs.delete(TP)
            built.make(topic_id=NEW_ID)
        assert built.cleaner.last_run(TP) is None


@pytest.mark.parametrize("change", ["cut", "created again"])
@on_loop
async def test_what_a_worker_finds_in_files_of_another_log_is_no_damage(stage, change, caplog):
    async with stage() as built:
        log = await _gated(built, "before_begin")
        end = log.log_end_offset
        async with built.changing:
            if change == "cut":
                await built.on_disk(built.logs.truncate_to, TP, log.segment_facts()[1].base_offset + 1)
            else:
                built.logs.delete(TP)
                log = built.make(topic_id=NEW_ID)
        while log.log_end_offset < end:
            append(log, (b"new", b"%d" % log.log_end_offset + b"." * 900))
        await _let_go(built, "before_begin")
        assert TP not in built.cleaner.uncleanable
        assert not lines(caplog, "cannot be cleaned")
        table = table_of(log)
        await built.until(lambda: TP in built.cleaner.last_runs, "it is cleaned without being asked for")
        assert table_of(log) == table


@on_loop
async def test_a_policy_that_changes_meanwhile_stops_the_cleaning(stage):
    async with stage() as built:
        log = await _gated(built, "before_group")
        before = records_of(log)
        log.config = parse(TopicConfig, SETTINGS | {"cleanup.policy": "delete", "retention.ms": "-1"})
        await _let_go(built, "before_group")
        assert records_of(log) == before
        assert built.logs.cleaner_point(TP) is None
        await built.on_disk(int)
        assert leftovers(log.directory) == []
        tasks = built.tasks
        for _ in range(20):
            built.clock.advance(1)
            await asyncio.sleep(0.01)
        assert built.tasks == tasks
        log.config = CONFIG
        await built.until(lambda: TP in built.cleaner.last_runs)


@on_loop
async def test_a_strategy_that_changes_meanwhile_stops_the_cleaning(stage):
    """What the former one takes away the new one might have kept."""
    async with stage() as built:
        log = await _gated(built, "before_group")
        before = records_of(log)
        log.config = parse(TopicConfig, SETTINGS | {"compaction.strategy": "timestamp"})
        await _let_go(built, "before_group")
        assert records_of(log) == before
        assert built.logs.cleaner_point(TP) is None
        await built.until(lambda: TP in built.cleaner.last_runs)


@pytest.mark.parametrize("topic", ["t", *sorted(STATE_TOPICS)])
@on_loop
async def test_the_state_of_coordinators_is_compacted_by_offset_whatever_the_strategy(stage, topic):
    async with stage() as built:
        tp = TopicPartition(topic, 0)
        log = built.make(tp, NEW_ID, parse(TopicConfig, SETTINGS | {"compaction.strategy": "timestamp"}))
        append(log, (b"k", b"first"), (b"k", b"second"))
        append(log, (b"k", b"last, with the time of the first"))
        built.cleaner.start()
        await built.cleaner.clean(tp)
        assert [each[0] for each in records_of(log)] == [1 if topic == "t" else 2]


@on_loop
async def test_a_move_that_begins_meanwhile_stops_the_cleaning(stage, tmp_path):
    async with stage(names=("a", "b")) as built:
        log = await _gated(built, "before_group")
        before = records_of(log)
        built.logs.dormant[TP] = tmp_path / "elsewhere"
        await _let_go(built, "before_group")
        assert records_of(log) == before
        await built.on_disk(int)
        assert leftovers(log.directory) == []
        del built.logs.dormant[TP]
        await built.until(lambda: TP in built.cleaner.last_runs)


@on_loop
async def test_a_wish_for_a_log_that_is_cut_meanwhile_gets_what_is_left_cleaned(stage):
    async with stage() as built:
        log = await _gated(built, "before_group")
        wish = asyncio.create_task(built.cleaner.clean(TP))
        await asyncio.sleep(0)
        await built.on_disk(built.logs.truncate_to, TP, 3)
        await _let_go(built, "before_group")
        stats = await wish
        assert stats.end_offset == log.log_end_offset == 3


@on_loop
async def test_a_retention_that_deletes_a_segment_meanwhile_stops_the_cleaning(stage):
    async with stage() as built:
        log = await _gated(built, "before_group")
        both = {"cleanup.policy": "compact,delete", "retention.ms": "-1"}
        log.config = parse(TopicConfig, SETTINGS | both)
        start = log.segment_facts()[2].base_offset
        log.advance_start(start)
        for path in log.delete_old_segments(log.log_end_offset):
            path.unlink()
        assert log.base_offset == start
        table = table_of(log)
        await _let_go(built, "before_group")
        assert table_of(log) == table
        assert records_of(log)[0][0] >= start
        await built.until(lambda: TP in built.cleaner.last_runs)
        assert table_of(log) == table


@on_loop
async def test_records_deleted_from_the_front_meanwhile_stay_deleted(stage):
    """The start lies within the segments that are written anew."""
    async with stage() as built:
        log = await _gated(built, "before_group")
        start = log.segment_facts()[1].base_offset + 1
        async with built.changing:
            built.logs.advance_start(TP, start)
        table = table_of(log)
        await _let_go(built, "before_group")
        assert TP in built.cleaner.last_runs
        assert (log.log_start_offset, table_of(log)) == (start, table)


@on_loop
async def test_segments_deleted_from_the_front_meanwhile_are_not_replaced(stage):
    async with stage() as built:
        log = await _gated(built, "before_group")
        start = log.segment_facts()[2].base_offset
        async with built.changing:
            built.logs.advance_start(TP, start)
            for path in log.delete_old_segments(log.high_watermark):
                path.unlink()
        table, left = table_of(log), sorted(log.directory.glob("*.log"))
        await _let_go(built, "before_group")
        assert TP not in built.cleaner.last_runs
        assert (log.base_offset, table_of(log), sorted(log.directory.glob("*.log"))) == (start, table, left)
        await built.on_disk(int)
        assert leftovers(log.directory) == []
        await built.until(lambda: TP in built.cleaner.last_runs)
        assert table_of(log) == table


@on_loop
async def test_segments_deleted_in_the_middle_of_a_swap_go_when_it_is_done(stage, monkeypatch):
    """While it is under way no file of it goes away from under it."""
    reached, go_on, perform = asyncio.Event(), threading.Event(), Replacement.perform

    def held(replacement):
        replacement_loop.call_soon_threadsafe(reached.set)
        assert go_on.wait(PATIENCE_S)
        perform(replacement)

    async with stage() as built:
        replacement_loop = built.loop
        log = built.make()
        fill(log)
        monkeypatch.setattr(Replacement, "perform", held)
        built.cleaner.start()
        await reached.wait()
        start = log.log_end_offset - 1
        built.logs.advance_start(TP, start)
        before = log.base_offset
        assert log.delete_old_segments(log.high_watermark) == []
        assert log.base_offset == before
        go_on.set()
        await built.until(lambda: TP in built.cleaner.last_runs)
        while doomed := log.delete_old_segments(log.high_watermark):
            for path in doomed:  # the cleaner deletes the former files, which had the same names
                path.unlink(missing_ok=True)
        assert log.segment_count == 1
        assert [each[0] for each in records_of(log)][-1] == start
        await built.on_disk(int)
        assert leftovers(log.directory) == []


# Another leader


ME, OTHER_BROKER = 1, 2


def _replicated(built):
    """The log is a partition's, which this broker leads."""
    replicas = ReplicaManager(ME, built.logs, built.loop, clock=built.clock)
    replicas.changing = built.changing
    _led_by(replicas, ME, 0)
    return replicas


def _led_by(replicas, leader, epoch):
    assert replicas.apply(TP, PartitionState(leader, epoch, (ME, OTHER_BROKER), epoch), CONFIG, ID) is ErrorCode.NONE


@GATES
@on_loop
async def test_a_leader_that_follows_another_meanwhile_and_cuts_its_log_leaves_nothing_half_swapped(stage, gate):
    async with stage() as built:
        replicas = _replicated(built)
        log = await _gated(built, gate)
        cut_at = log.segment_facts()[2].base_offset + 1
        _led_by(replicas, OTHER_BROKER, 1)
        await replicas.following.drop_diverged(TP, 1, OffsetAndEpoch(cut_at, 0))
        end, table, left = log.log_end_offset, table_of(log), sorted(log.directory.glob("*.log"))
        assert end <= cut_at
        await _let_go(built, gate)
        assert TP not in built.cleaner.last_runs
        assert (log.log_end_offset, table_of(log), sorted(log.directory.glob("*.log"))) == (end, table, left)
        assert (built.logs.cleaner_point(TP) or 0) <= end
        await built.on_disk(int)
        assert leftovers(log.directory) == []


@GATES
@on_loop
async def test_a_leader_that_follows_another_meanwhile_and_has_nothing_to_cut_is_cleaned(stage, gate):
    async with stage() as built:
        replicas = _replicated(built)
        log = await _gated(built, gate)
        end = log.log_end_offset
        _led_by(replicas, OTHER_BROKER, 1)
        more = batch_of([(b"k0", b"of another")], base=end)
        patch_header(more, 0, end, 1)
        replicas.following.append_from_leader(TP, 1, more, end, 0)
        table = table_of(log)
        await _let_go(built, gate)
        assert TP in built.cleaner.last_runs
        assert (table_of(log), log.log_end_offset) == (table, end + 1)
        assert [(each.epoch, each.start_offset) for each in log.epochs.entries] == [(0, 0), (1, end)]


@GATES
@on_loop
async def test_a_follower_that_leads_meanwhile_is_cleaned(stage, gate):
    async with stage() as built:
        replicas = _replicated(built)
        log = await _gated(built, gate)
        end = log.log_end_offset
        _led_by(replicas, OTHER_BROKER, 1)
        _led_by(replicas, ME, 2)
        replicas.append(TP, batch_of([(b"k0", b"of its own")]), 1)
        table = table_of(log)
        await _let_go(built, gate)
        assert TP in built.cleaner.last_runs
        assert (table_of(log), log.log_end_offset) == (table, end + 1)
        assert [(each.epoch, each.start_offset) for each in log.epochs.entries] == [(0, 0), (2, end)]


# Leases


@pytest.mark.parametrize("how", ["ends", "runs out"])
@on_loop
async def test_what_a_broker_has_leased_is_replaced_when_the_lease_is_over(stage, how):
    async with stage() as built:
        log = await _gated(built, "before_group")
        leases = Leases(built.clock)
        number, lease = leases.grant(20, ANONYMOUS)
        held = {extent.path: extent.inode for extent in log.extents(0, 1, lease=lease).files}
        built.before_group.open.set()
        await built.on_disk(int)
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert {path: path.stat().st_ino for path in held} == held
        assert TP in built.cleaner.under_way
        if how == "ends":
            leases.end([number], ANONYMOUS)
        else:
            built.clock.advance(20)
        await built.until(lambda: TP in built.cleaner.last_runs, time_stands=True)
        assert {path: path.stat().st_ino for path in held} != held


def _lease(built, log, number=1):
    """A reader that holds the segment of this number."""
    lease = Lease(built.clock.monotonic(), 1e9)
    lease.hold(log._segments._segments[number].leases)
    return lease


async def _waits_for_a_reader(built):
    log = await _gated(built, "before_group")
    lease = _lease(built, log)
    built.before_group.open.set()
    for _ in range(20):
        await asyncio.sleep(0.01)
    assert TP in built.cleaner.under_way
    return log, lease


@on_loop
async def test_a_leased_segment_is_replaced_when_the_lease_ends(stage):
    async with stage() as built:
        log = await _gated(built, "before_group")
        lease = _lease(built, log)
        names = [path.name for path in sorted(log.directory.glob("*.log"))]
        built.before_group.open.set()
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert [path.name for path in sorted(log.directory.glob("*.log"))] == names
        lease.end()
        await built.until(lambda: TP in built.cleaner.last_runs)


@on_loop
async def test_a_lease_that_does_not_end_is_not_waited_for_for_ever(stage):
    async with stage() as built:
        log, lease = await _waits_for_a_reader(built)
        before = records_of(log)
        built.clock.advance(1000)
        await built.until(lambda: TP not in built.cleaner.under_way)
        assert records_of(log) == before
        lease.end()
        await built.until(lambda: TP in built.cleaner.last_runs)


@pytest.mark.parametrize("how", ["fewer threads", "close"])
@on_loop
async def test_a_cleaner_that_stops_while_a_reader_holds_a_segment_loses_nothing(stage, how, tmp_path):
    async with stage() as built:
        log, lease = await _waits_for_a_reader(built)
        before = records_of(log)
        if how == "close":
            closing = asyncio.create_task(built.cleaner.close())
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.shield(closing)
        else:
            built.cleaner.configure(replace(BROKER, log_cleaner_threads=0))
            await built.until(lambda: TP not in built.cleaner.under_way)
        lease.end()
        for _ in range(20):
            await asyncio.sleep(0.01)
        await built.on_disk(int)
        assert built.logs.logs.get(TP) is log, "its log directory is in service"
        assert records_of(log) == before
        assert leftovers(log.directory) == []
    again = LogManager([tmp_path / "a"], CONFIG, ManualClock(), ThreadPoolExecutor(1))
    again.load({TP.topic: CONFIG})
    assert records_of(again.logs[TP]) == before
    again.close()


# Failures


@pytest.mark.parametrize("gate", ["before_group", "before_end"])
@on_loop
async def test_a_worker_that_is_killed_is_followed_by_another_after_the_backoff(stage, gate):
    async with stage() as built:
        log = await _gated(built, gate)
        table = table_of(log)
        pid = built.pid
        os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(wait_for_death, pid)
        await _let_go(built, gate)
        await built.until(lambda: TP in built.cleaner.last_runs)
        assert table_of(log) == table
        await built.on_disk(int)
        assert leftovers(log.directory) == []
        assert TP not in built.cleaner.uncleanable


@on_loop
async def test_what_failed_is_not_tried_before_the_backoff_is_over(stage):
    async with stage() as built:
        log = built.make()
        fill(log)
        with FaultyFiles(log.directory) as files:
            files.fail_from_now(errno.ENOSPC, steps=("rename",))
            built.cleaner.start()
            async with asyncio.timeout(PATIENCE_S):
                while not built.tasks or TP in built.cleaner.under_way:
                    await asyncio.sleep(0.01)
            for _ in range(20):
                await asyncio.sleep(0.01)
            assert built.tasks == 1
            files.recover()
        built.clock.advance(BACKOFF_MS / 1000)
        async with asyncio.timeout(PATIENCE_S):
            while TP not in built.cleaner.last_runs:
                await asyncio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.timeout(900)
@on_loop
async def test_a_full_disk_at_any_step_of_a_swap_changes_nothing_and_the_next_run_finishes(stage, caplog):
    async def attempt(step, error):
        async with stage(names=(f"{error}-{step}",)) as built:
            log = built.make()
            fill(log)
            log.config = parse(TopicConfig, SETTINGS | {"segment.bytes": "100000"})  # so that all is one group
            before, table = records_of(log), table_of(log)
            names = segment_files(log.directory)
            built.before_group = Gate()
            built.cleaner.start()
            await built.before_group.reached.wait()
            with FaultyFiles(log.directory, fail_at=step, error=error) as files:
                await _let_go(built, "before_group")
                await built.on_disk(int)
                failed = files.count > step
            if built.logs.logs.get(TP) is log:
                assert table_of(log) == table
                if records_of(log) == before:  # else the disk took the swap, and refused to remove what it replaced
                    assert segment_files(log.directory) == names, f"step {step}"
            if built.logs.logs.get(TP) is log:
                await built.until(lambda: TP in built.cleaner.last_runs)
                await built.on_disk(int)
                left = [name for name in leftovers(log.directory) if not name.endswith(DELETED_SUFFIX)]
                assert left == []  # a start removes what the disk did not let go
            return failed, table, log.directory

    for error in (errno.ENOSPC, errno.EIO):
        step, failed = 0, True
        while failed:
            failed, table, directory = await attempt(step, error)
            again = LogManager([directory.parent], CONFIG, ManualClock(), ThreadPoolExecutor(1))
            again.load({TP.topic: CONFIG})
            assert table_of(again.logs[TP]) == table
            assert leftovers(directory) == []
            again.close()
            step += 1
        assert step > 5


def _flip(path, position):
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0x10]))


def _damage(path, kind):
    size = path.stat().st_size
    if kind == "value":
        _flip(path, size - 5)
    elif kind == "crc":
        _flip(path, 17)
    elif kind == "length":
        _flip(path, 8)
    elif kind == "offset":
        _flip(path, 2)
    elif kind == "cut":
        os.truncate(path, size - 7)
    elif kind == "gone":
        os.truncate(path, 0)
    else:
        data = path.read_bytes()
        path.write_bytes(os.urandom(100) + data[100:])


DAMAGES = ("value", "crc", "length", "offset", "cut", "gone", "garbage")


@pytest.mark.parametrize("kind", DAMAGES)
@on_loop
async def test_damage_leaves_a_log_as_it_is_and_is_said_once(stage, kind, caplog):
    caplog.set_level(logging.INFO)

    async with stage() as built:
        log = built.make()
        fill(log)
        path = segment_path(log.directory, log.segment_facts()[1].base_offset, LOG_SUFFIX)
        whole = path.read_bytes()
        with open(path, "r+b") as file:  # the file that the log has open
            _damage(path, kind)
        names = segment_files(log.directory)
        bases = [each.base_offset for each in log.segment_facts()]
        built.cleaner.start()
        await built.until(lambda: TP in built.cleaner.uncleanable)
        for _ in range(30):
            built.clock.advance(1)
            await asyncio.sleep(0.01)
        assert built.tasks == 1
        assert segment_files(log.directory) == names
        assert [each.base_offset for each in log.segment_facts()] == bases
        assert built.logs.cleaner_point(TP) is None
        with pytest.raises(NotCleaned, match="was not cleaned"):
            await built.cleaner.clean(TP)
        assert built.tasks == 2, "it is tried again when somebody asks"
        assert TP in built.cleaner.uncleanable
        (said, *_) = lines(caplog, "cannot be cleaned")
        assert str(path) in said or kind in ("offset", "length", "garbage", "crc", "value")
        with open(path, "r+b") as file:
            file.write(whole)
            file.truncate(len(whole))
        await built.cleaner.clean(TP)
        assert TP not in built.cleaner.uncleanable


@on_loop
async def test_a_damaged_log_is_tried_again_when_it_changes(stage, caplog):
    async with stage() as built:
        log = built.make()
        fill(log)
        path = segment_path(log.directory, 0, LOG_SUFFIX)
        _damage(path, "value")
        built.cleaner.start()
        await built.until(lambda: TP in built.cleaner.uncleanable)
        _damage(path, "value")  # flipped back
        for _ in range(20):
            built.clock.advance(1)
            await asyncio.sleep(0.01)
        assert built.tasks == 1
        fill(log, segments=1)
        await built.until(lambda: TP in built.cleaner.last_runs)
        assert len(lines(caplog, "cannot be cleaned")) == 1


@on_loop
async def test_a_log_of_the_same_name_is_not_as_damaged_as_the_one_before(stage):
    async with stage() as built:
        log = built.make()
        fill(log)
        shape = log.segment_count, log.log_start_offset, log.truncations
        _damage(segment_path(log.directory, 0, LOG_SUFFIX), "value")
        built.cleaner.start()
        await built.until(lambda: TP in built.cleaner.uncleanable)
        async with built.changing:
            built.logs.delete(TP)
            log = built.make(topic_id=NEW_ID)
            fill(log)
        assert (log.segment_count, log.log_start_offset, log.truncations) == shape
        await built.until(lambda: TP in built.cleaner.last_runs)
        assert TP not in built.cleaner.uncleanable


@on_loop
async def test_a_damaged_log_does_not_keep_others_from_being_cleaned(stage):
    async with stage() as built:
        log, other = built.make(), built.make(OTHER)
        fill(log, segments=8)
        fill(other)
        _damage(segment_path(log.directory, 0, LOG_SUFFIX), "value")
        built.cleaner.start()
        await built.until(lambda: OTHER in built.cleaner.last_runs)
        assert TP in built.cleaner.uncleanable


@pytest.mark.parametrize("map_keys", [1, 3, 7])
@on_loop
async def test_a_map_that_is_too_small_takes_several_passes_and_goes_forward(stage, map_keys):
    config = replace(BROKER, log_cleaner_dedupe_buffer_size=24 * map_keys, log_cleaner_io_buffer_load_factor=1.0)
    async with stage(config) as built:
        log = built.make()
        append(log, *((b"%d" % number, b"v") for number in range(10)))  # one batch with more keys than there is room
        fill(log, segments=1)
        table = table_of(log)
        built.cleaner.start()
        point, passes = 0, 0
        while point < log.end.segment_base:
            stats = await built.cleaner.clean(TP)
            passes += 1
            assert stats.end_offset > point
            point = stats.end_offset
            assert table_of(log) == table
        assert passes > 1


@on_loop
async def test_a_map_without_room_for_a_single_key_does_not_clean_for_ever(stage):
    config = replace(BROKER, log_cleaner_dedupe_buffer_size=1)
    async with stage(config) as built:
        log = built.make()
        fill(log)
        before = records_of(log)
        built.cleaner.start()
        with pytest.raises(NotCleaned):
            await built.cleaner.clean(TP)
        assert records_of(log) == before
        assert built.logs.cleaner_point(TP) is None


@on_loop
async def test_a_reader_goes_on_over_a_swap(stage):
    """At every offset: what it has read of the old files, and what it then reads, are offsets that rise, and nothing of
    the last values is passed over.
    """
    async with stage() as built:
        log = await _gated(built, "before_group")
        last = last_values(log)
        bound = log.end
        pieces = {offset: log.read(offset, 300, bound, min_one_batch=True) for offset in range(log.log_end_offset)}
        before = {offset: bytes(each.file.read(each.position, each.size)) for offset, each in pieces.items() if each}
        await _let_go(built, "before_group")
        await built.until(lambda: TP in built.cleaner.last_runs)
        await built.on_disk(int)
        for offset, piece in pieces.items():
            again = bytes(piece.file.read(piece.position, piece.size))
            assert again == before[offset], "the files that were replaced are read to their end"
            seen = []
            at = offset
            data = again
            while True:
                for batch in iter_batches(data):
                    found = [(each.offset, each.key, each.value) for each in iter_records(batch)]
                    seen += [each for each in found if each[0] >= at]
                    at = max(at, batch.last_offset + 1)
                nxt = log.read(at, 300, bound, min_one_batch=True) if at < bound.offset else None
                if nxt is None:
                    break
                data = bytes(nxt.file.read(nxt.position, nxt.size))
            offsets = [each[0] for each in seen]
            assert offsets == sorted(set(offsets))
            missing = [each for each in last if each[0] >= offset and each not in seen]
            assert missing == []


@on_loop
async def test_a_close_in_mid_cleaning_leaves_nothing_and_no_process(stage):
    async with stage() as built:
        log = await _gated(built, "before_group")
        before, pid = records_of(log), built.pid
        await built.cleaner.close()
        await asyncio.to_thread(wait_for_death, pid)
        await built.on_disk(int)
        assert leftovers(log.directory) == []
        assert records_of(log) == before


@pytest.mark.parametrize("turns", range(5))
@on_loop
async def test_a_thread_that_is_woken_as_it_is_stopped_stops(stage, turns):
    """Both come in the same turn of the loop, as at a stop: what was granted is given back, and the threads end."""
    async with stage() as built:
        built.cleaner.start()
        await asyncio.sleep(0.05)  # so that it waits; where it does not yet, nothing is shown
        built.cleaner.release(TP)
        for _ in range(turns):
            await asyncio.sleep(0)
        await built.cleaner.close()
