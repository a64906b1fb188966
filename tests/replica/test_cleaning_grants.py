"""Cleanings that somebody else does: granted one at a time, for a while, and taken over with checks."""

import asyncio
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from uuid import UUID

import pytest

from sparklog.compaction.process import CleaningFailed
from sparklog.compaction.rewriting import CleanedGroup, groups_of
from sparklog.compaction.split import AT_THE_START, IndexStretch, RewriteStretch
from sparklog.compaction.stats import CleanerStats
from sparklog.compaction.task import Failure
from sparklog.config.broker import BrokerConfig
from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import LogError
from sparklog.log.directories.manager import LogManager
from sparklog.record.builder import RecordBatchBuilder
from sparklog.replica.cleaning import Abandoned, LogCleaner, NotCleaned, NothingToClean
from sparklog.replica.cleaning_grants import SWEPT_EACH_S, SWEPT_FOR_S, CleaningGrants
from sparklog.replica.manager import ReplicaManager
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.zk.znodes import PartitionState

TP = TopicPartition("t", 0)
WAIT_S = 60.0
RECORDS = 30
SECONDS = 60.0


@pytest.fixture
def stage(tmp_path):
    @asynccontextmanager
    async def make(threads=0):
        loop, clock = asyncio.get_running_loop(), ManualClock()
        settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1", "segment.bytes": "400"}
        config = parse(TopicConfig, settings)
        disk = ThreadPoolExecutor(1)
        logs = LogManager([tmp_path], TopicConfig(), clock, disk)
        logs.load({"t": config})
        replicas = ReplicaManager(1, logs, loop, clock=clock)
        replicas.apply(TP, PartitionState(1, 0, (1,), 1), config, UUID(int=1))
        cleaner = LogCleaner(logs, replicas.changing, loop, clock, BrokerConfig(log_cleaner_threads=threads))
        grants = CleaningGrants(cleaner, loop, clock)
        cleaner.start()
        for number in range(RECORDS):
            write(replicas, b"k%d" % (number % 3), b"v%d" % number)
        log = logs.logs[TP]
        async with asyncio.timeout(WAIT_S):
            yield SimpleNamespace(grants=grants, cleaner=cleaner, clock=clock, log=log, logs=logs, replicas=replicas)
        await grants.close()
        await cleaner.close()
        logs.close()
        disk.shutdown()

    return make


def write(replicas, key, value):
    builder = RecordBatchBuilder()
    builder.append(1, key, value)
    replicas.append(TP, memoryview(bytearray(builder.build())), 1)


def begin(at, seconds=SECONDS):
    return at.grants.begin(TP, rolls=True, duration_s=seconds)


def written(target, clock):
    """What a job writes: the drafts of all groups."""
    part = IndexStretch(target, bytes(16), 1 << 16).run(clock)
    groups = tuple(tuple(group) for group in groups_of(target.task, part.stats.end_offset))
    done = RewriteStretch(target, part.paths, groups, (), AT_THE_START).run(clock)
    done.stats.end_offset = part.stats.end_offset
    return done


def leftovers(log):
    return [path.name for path in log.directory.iterdir() if path.suffix in (".tmp", ".cleaned", ".swap", ".deleted")]


def test_a_job_cleans_a_log_to_its_end(stage):
    async def run():
        async with stage() as at:
            token, target = await begin(at)
            assert TP in at.cleaner.under_way
            done = written(target, at.clock)
            assert len(done.groups) > 1
            size = at.log.size
            for group in done.groups:
                await at.grants.put_in_place(token, group, done.tag)
                await at.grants.put_in_place(token, group, done.tag)  # its answer was lost
            for _ in range(2):
                await at.grants.finish(token, done.stats)
            assert at.logs.cleaner_point(TP) == RECORDS
            assert at.log.size < size
            assert at.cleaner.last_runs[TP].stats.messages_written == done.stats.messages_written
            assert TP not in at.cleaner.under_way
            assert [name for name in leftovers(at.log) if not name.endswith(".deleted")] == []
            with pytest.raises(NothingToClean):
                await begin(at)

    asyncio.run(run())


def test_what_a_cleaning_that_came_to_no_end_has_put_in_place_is_no_lost_end(stage, tmp_path):
    """A segment that was cleaned may end before the next begins, and the policy may be ``delete`` at the next start."""

    async def run():
        async with stage() as at:
            token, target = await begin(at)
            done = written(target, at.clock)
            await at.grants.put_in_place(token, done.groups[0], done.tag)
            await at.grants.give_up(token, CleaningFailed(Failure.NO_ROOM, "the disk is full"))
            assert at.logs.cleaner_point(TP) is None
            crashed = shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name}-crashed"))
            with ThreadPoolExecutor(1) as disk:
                logs = LogManager([crashed], TopicConfig(), at.clock, disk)
                logs.load({"t": parse(TopicConfig, {"cleanup.policy": "delete"})})
                assert logs.logs[TP].log_end_offset == at.log.log_end_offset == RECORDS
                logs.close()

    asyncio.run(run())


def test_one_at_a_time(stage):
    async def run():
        async with stage(threads=1) as at:
            token, _ = await begin(at)
            with pytest.raises(NotCleaned, match="being cleaned already: by a job that has it for 60 s more"):
                await begin(at)
            asked = asyncio.create_task(at.cleaner.clean(TP))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not asked.done()
            await at.grants.give_up(token, CleaningFailed(Failure.GONE, "no more wanted"))
            assert (await asked).end_offset == RECORDS  # by the broker itself

    asyncio.run(run())


def test_what_the_broker_cleans_is_not_granted(stage):
    async def run():
        async with stage() as at:
            at.cleaner.under_way.add(TP)
            with pytest.raises(NotCleaned, match="being cleaned already: by the broker itself"):
                await begin(at)

    asyncio.run(run())


def test_a_grant_that_is_not_renewed_lapses_and_its_job_comes_too_late(stage):
    async def run():
        async with stage() as at:
            token, target = await begin(at)
            done = written(target, at.clock)
            at.clock.advance(SECONDS - 1)
            assert at.grants.renew([token, 7], SECONDS) == [7]
            at.clock.advance(SECONDS - 1)
            await at.grants.put_in_place(token, done.groups[0], done.tag)
            at.clock.advance(2)
            with pytest.raises(NotCleaned, match="lapsed"):
                await at.grants.put_in_place(token, done.groups[1], done.tag)
            with pytest.raises(NotCleaned, match="lapsed"):
                await at.grants.finish(token, done.stats)
            assert at.grants.renew([token], SECONDS) == [token]
            while TP in at.cleaner.under_way:
                await asyncio.sleep(0)
            assert at.logs.cleaner_point(TP) in (None, 0)
            again, target = await begin(at)
            assert again != token
            done = written(target, at.clock)
            for group in done.groups:
                await at.grants.put_in_place(again, group, done.tag)
            await at.grants.finish(again, done.stats)
            assert at.logs.cleaner_point(TP) == RECORDS

    asyncio.run(run())


async def freed(at):
    while TP in at.cleaner.under_way:
        await asyncio.sleep(0)


def test_a_grant_ends_by_the_timer_where_nobody_cleans(stage):
    async def run():
        async with stage() as at:
            _, target = await begin(at)
            written(target, at.clock)
            assert leftovers(at.log)
            at.clock.advance(SECONDS)
            at.grants.tend()
            await freed(at)
            assert leftovers(at.log) == []

    asyncio.run(run())


@pytest.mark.parametrize("gives_up", [False, True])
def test_what_a_task_writes_after_its_job_goes_as_well(stage, gives_up):
    async def run():
        async with stage() as at:
            token, target = await begin(at)
            if gives_up:
                await at.grants.give_up(token, CleaningFailed(Failure.GONE, "stopped"))
            else:
                at.clock.advance(SECONDS)
                at.grants.tend()
                await freed(at)
            written(target, at.clock)
            at.clock.advance(SWEPT_EACH_S)
            at.grants.tend()
            assert TP in at.cleaner.under_way  # and so kept from workers
            again, target = await begin(at)  # waits for that
            assert leftovers(at.log) == []
            written(target, at.clock)
            at.clock.advance(SECONDS - 1)
            at.grants.renew([again], SECONDS)
            at.clock.advance(2)
            at.grants.tend()
            assert TP in at.cleaner.under_way
            await asyncio.sleep(0)
            assert leftovers(at.log)  # they are of the one that has the grant

    asyncio.run(run())


def test_late_tasks_are_waited_for_no_longer_than_an_hour(stage):
    async def run():
        async with stage() as at:
            token, target = await begin(at)
            await at.grants.give_up(token, CleaningFailed(Failure.GONE, "stopped"))
            at.clock.advance(SWEPT_FOR_S)
            at.grants.tend()
            await freed(at)
            written(target, at.clock)
            at.clock.advance(SWEPT_EACH_S)
            at.grants.tend()
            assert TP not in at.cleaner.under_way

    asyncio.run(run())


@pytest.mark.parametrize("kind", [Failure.DISK, Failure.NO_ROOM, Failure.GONE])
def test_a_jobs_own_trouble_is_none_of_the_log(stage, kind):
    async def run():
        async with stage() as at:
            token, _ = await begin(at)
            await at.grants.give_up(token, CleaningFailed(kind, "Input/output error"))
            assert TP not in at.cleaner.uncleanable
            await at.grants.begin(TP, rolls=False, duration_s=SECONDS)

    asyncio.run(run())


def test_a_log_that_cannot_be_read_is_granted_to_who_asks_for_it_by_name_or_when_it_has_changed(stage):
    async def run():
        async with stage() as at:
            token, _ = await begin(at)
            await at.grants.give_up(token, CleaningFailed(Failure.CORRUPT, "damaged"))
            for _ in range(2):
                with pytest.raises(NotCleaned, match="cannot be read: damaged"):
                    await at.grants.begin(TP, rolls=False, duration_s=SECONDS)
            write(at.replicas, b"k", b"v")
            at.log.roll()
            assert at.cleaner.known_failure(TP) is None
            await at.grants.begin(TP, rolls=False, duration_s=SECONDS)

    asyncio.run(run())


def test_the_clean_section_grows_only_when_all_is_in_place(stage):
    async def run():
        async with stage() as at:
            token, target = await begin(at)
            done = written(target, at.clock)
            for stats in (done.stats, CleanerStats(end_offset=RECORDS + 1), CleanerStats(end_offset=-1)):
                with pytest.raises(NotCleaned, match="not replaced"):
                    await at.grants.finish(token, stats)
            for group in done.groups[:-1]:
                await at.grants.put_in_place(token, group, done.tag)
            with pytest.raises(NotCleaned, match="not replaced"):
                await at.grants.finish(token, done.stats)

    asyncio.run(run())


def test_groups_that_are_none_are_refused(stage):
    async def run():
        async with stage() as at:
            token, target = await begin(at)
            done = written(target, at.clock)
            first = done.groups[0]
            bad = [
                CleanedGroup((), ()),
                CleanedGroup(first.old, ()),
                CleanedGroup(first.old, (first.old[0], RECORDS + 5)),
                CleanedGroup((1,), (1,)),
                CleanedGroup((first.old[0], done.groups[-1].old[-1]), first.new),
                CleanedGroup((target.task.segments[-1].base_offset,), (target.task.segments[-1].base_offset,)),
            ]
            for group in bad:
                with pytest.raises(NotCleaned, match="not to be replaced"):
                    await at.grants.put_in_place(token, group, done.tag)
            with pytest.raises(LogError, match="cannot be in a file's name"):
                await at.grants.put_in_place(token, first, "../../etc")
            before = at.log.size
            with pytest.raises(Abandoned, match="cannot be taken"):
                await at.grants.put_in_place(token, first, "nobody")
            assert at.log.size == before
            with pytest.raises(NotCleaned, match="not to be replaced"):  # it failed once, and is not tried again
                await at.grants.put_in_place(token, first, done.tag)

    asyncio.run(run())


def test_a_log_that_was_cut_is_not_changed(stage):
    async def run():
        async with stage() as at:
            token, target = await begin(at)
            done = written(target, at.clock)
            at.logs.being_cut.add(TP)
            with pytest.raises(Abandoned, match="it was cut"):
                await at.grants.put_in_place(token, done.groups[0], done.tag)

    asyncio.run(run())


def test_what_cannot_be_read_is_left_alone_until_somebody_asks(stage):
    async def run():
        async with stage() as at:
            token, _ = await begin(at)
            await at.grants.give_up(token, CleaningFailed(Failure.CORRUPT, "damaged"))
            assert at.cleaner.uncleanable[TP].why == "damaged"
            await at.grants.give_up(token, CleaningFailed(Failure.CORRUPT, "told twice"))
            await begin(at)
            assert TP not in at.cleaner.uncleanable

    asyncio.run(run())


def test_a_log_that_is_not_compacted_is_not_granted(stage):
    async def run():
        async with stage() as at:
            at.log.config = replace(at.log.config, cleanup_policy=("delete",))
            with pytest.raises(NotCleaned):
                await begin(at)
            with pytest.raises(NotCleaned, match="it is not here"):
                await at.grants.begin(TopicPartition("nothing", 0), rolls=True, duration_s=SECONDS)

    asyncio.run(run())
