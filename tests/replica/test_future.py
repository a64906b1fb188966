"""Partitions that are moved between the log directories of a broker, while they are served."""

import asyncio
import errno
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
from log.samples import write_cleaned

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.checkpoints import LOG_START_OFFSETS, read_offsets
from sparklog.log.directories import moved
from sparklog.log.directories.manager import LogManager
from sparklog.log.lease import Lease
from sparklog.log.log import Log
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.records import iter_batches
from sparklog.replica.manager import ReplicaManager
from sparklog.structs import IsolationLevel, TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.files import FaultyFiles
from sparklog.zk.znodes import PartitionState

TP, ID = TopicPartition("t", 0), UUID(int=1)
ME, OTHER = 1, 2
COMMITTED = IsolationLevel.READ_UNCOMMITTED
LARGE = 1 << 24
WAIT_S = 60.0


def batch(value=b"v", count=1):
    builder = RecordBatchBuilder()
    for _ in range(count):
        builder.append(1, None, value)
    return memoryview(bytearray(builder.build()))


def large():
    return batch(os.urandom(100_000))


def decision(leader=ME, epoch=0, isr=(ME,)):
    return PartitionState(leader, epoch, isr, 1)


class Stage:
    """A broker on two disks, ``a`` and ``b``, and ``c``."""

    def __init__(self, home, disk, loop, **settings):
        self.homes = {name: home / name for name in "abc"}
        self.config = parse(TopicConfig, settings)
        self.clock = ManualClock()
        self.logs = LogManager([*self.homes.values()], TopicConfig(), self.clock, disk)
        self.logs.load({"t": self.config})
        self.replicas = ReplicaManager(ME, self.logs, loop, clock=self.clock)
        self.logs.on_failure = lambda path, reason: loop.call_soon_threadsafe(self.fail, path, reason)

    def fail(self, path, reason="it is broken"):
        self.logs.fail(path, reason)
        self.replicas.forget_unusable()

    def lead(self, tp=TP, epoch=0, **decided):
        assert self.replicas.apply(tp, decision(epoch=epoch, **decided), self.config, ID) is ErrorCode.NONE

    def append(self, *batches, tp=TP):
        for each in batches:
            self.replicas.append(tp, each, 1)

    async def alter(self, home, tp=TP):
        await self.replicas.futures.alter(tp, str(self.homes[home].absolute()))

    async def refusal(self, path, tp=TP):
        with pytest.raises(ApiError) as caught:
            await self.replicas.futures.alter(tp, str(path))
        return caught.value.code

    async def moved(self, tp=TP):
        """Until no copy of it is under way."""
        async with asyncio.timeout(WAIT_S):
            while tp in self.replicas.futures._running:
                await asyncio.wait((self.replicas.futures._running[tp],))

    async def until(self, condition):
        async with asyncio.timeout(WAIT_S):
            while not condition():
                await asyncio.sleep(0.001)

    async def hold(self):
        """Copy nothing beyond the next step."""
        self.replicas.futures.rate.bytes_per_second = 0

    async def begin_to_move(self):
        """Lead thirty large batches that are on their way to ``b``, and hold the copying."""
        self.lead()
        await self.hold()
        self.append(*(large() for _ in range(30)))
        await self.alter("b")

    def go_on(self):
        self.replicas.futures.rate.bytes_per_second = 1 << 40
        self.clock.advance(10)

    def home(self, tp=TP):
        return self.replicas.partition(tp).log_dir.name

    def names(self, home):
        return sorted(path.name for path in self.homes[home].iterdir() if path.is_dir())

    def future(self, tp=TP):
        return self.logs.futures[tp]

    def contents(self, tp=TP):
        found, offset = [], self.replicas.partition(tp).log_start_offset
        while (piece := self.replicas.read(tp, ID, offset, LARGE, COMMITTED, min_one_batch=True).records) is not None:
            data = os.pread(piece.file.fileno(), piece.size, piece.position)
            found.append(data)
            offset = self.replicas.partition(tp).log_end_offset
        return b"".join(found)

    def uses(self):
        steps = self.replicas.log_dirs()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return {each.path.name: each for each in end.value}


@asynccontextmanager
async def stage_at(home, **settings):
    with ThreadPoolExecutor(1) as disk:
        stage = Stage(home, disk, asyncio.get_running_loop(), **settings)
        try:
            yield stage
        finally:
            await stage.replicas.futures.close()
            await asyncio.get_running_loop().run_in_executor(disk, lambda: None)
            stage.logs.close()


def on_a_stage(**settings):
    """The test is a coroutine, of a stage."""

    def decorate(test):
        def run(tmp_path):
            async def on_it():
                async with stage_at(tmp_path, **settings) as stage:
                    await test(stage)

            asyncio.run(on_it())

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate


@on_a_stage()
async def test_a_partition_is_moved_with_all_that_is_in_it(stage):
    stage.lead()
    stage.append(*(large() for _ in range(30)))
    before = stage.contents()
    await stage.alter("b")
    await stage.moved()
    assert stage.home() == "b"
    assert stage.contents() == before
    assert stage.logs.topic_id(TP) == ID
    await stage.until(lambda: stage.names("a") == [])
    assert stage.names("b") == ["t-0"]
    assert not moved.is_marked(stage.homes["b"] / "t-0")


@on_a_stage()
async def test_an_empty_partition_is_moved(stage):
    stage.lead()
    await stage.alter("b")
    await stage.moved()
    assert stage.home() == "b"
    stage.append(batch())
    assert stage.replicas.partition(TP).high_watermark.offset == 1


@on_a_stage()
async def test_a_partition_is_written_while_it_is_moved(stage):
    await stage.begin_to_move()
    sent = 30
    while sent < 80:
        stage.append(large())
        sent += 1
        await asyncio.sleep(0)
    stage.go_on()
    while TP in stage.replicas.futures._moves:
        stage.append(batch())
        sent += 1
        stage.clock.advance(1)
        await asyncio.sleep(0)
    stage.append(batch())
    await stage.moved()
    partition = stage.replicas.partition(TP)
    assert (partition.log_end_offset, partition.high_watermark.offset) == (sent + 1, sent + 1)
    assert stage.home() == "b"


@on_a_stage(**{"segment.bytes": "250000", "retention.ms": "-1"})
async def test_a_copy_that_begins_again_on_a_full_disk_waits_for_room(stage):
    stage.lead()
    await stage.hold()
    stage.append(*(large() for _ in range(40)))
    await stage.alter("b")
    await stage.until(lambda: stage.future().log_end_offset)
    stage.replicas.delete_records(TP, 35)
    while stage.logs.delete_old_segments(TP, 40):
        pass
    with FaultyFiles(stage.homes["b"], fail_at=0, error=errno.ENOSPC, lasting=True, steps=("mkdir", "write")) as files:
        stage.go_on()
        await stage.until(lambda: files.count > 1)
        assert stage.home() == "a"
    await stage.moved()
    assert stage.home() == "b"
    await stage.until(lambda: stage.names("b") == ["t-0"])


@pytest.mark.parametrize("step", ["rename", "openread", "open"])
def test_a_copy_that_could_not_be_named_for_want_of_room_goes_on(tmp_path, step, monkeypatch):
    """It is closed in order by then, and has its name where the disk refuses what comes behind the renaming."""

    async def test():
        async with stage_at(tmp_path) as stage:
            stage.lead()
            stage.append(large())
            steps = []

            def mark(directory):
                at_mark(directory)
                if not steps:
                    steps.append(files.count)
                    files.fail_from_now(errno.EMFILE, (step,))

            with FaultyFiles(stage.homes["b"]) as files:
                at_mark = moved.mark
                monkeypatch.setattr(moved, "mark", mark)
                await stage.alter("b")
                await stage.until(lambda: steps and files.count > steps[0])
                future = stage.future()
                assert future.is_over
                assert future.directory.is_dir(), "so that it can be cancelled"
                stage.append(*(large() for _ in range(3)))
                before = stage.contents()
                files.recover()
                await stage.moved()
            assert (stage.home(), stage.contents()) == ("b", before)
            assert stage.logs.dirs.failed == {}
            await stage.until(lambda: stage.names("a") == [])
            assert stage.names("b") == ["t-0"]

    asyncio.run(test())


@pytest.mark.parametrize("step", ["open", "write", "fsync"])
def test_a_move_that_is_refused_leaves_nothing_that_a_start_would_go_on_with(tmp_path, step):
    async def test():
        async with stage_at(tmp_path) as stage:
            stage.lead()
            stage.append(batch())
            with FaultyFiles(stage.homes["b"], fail_at=0, error=errno.ENOSPC, lasting=True, steps=(step,)):
                assert await stage.refusal(stage.homes["b"]) is ErrorCode.KAFKA_STORAGE_ERROR
            assert not [name for name in stage.names("b") if not name.endswith("-delete")]
            assert (stage.home(), len(stage.logs.dirs.failed)) == ("a", 0)

    asyncio.run(test())


@on_a_stage()
async def test_what_is_under_way_is_described_as_a_future(stage):
    await stage.begin_to_move()
    await stage.until(lambda: stage.future().log_end_offset)
    uses, copied = stage.uses(), stage.future().log_end_offset
    assert (uses["a"].partitions[TP].lag, uses["a"].partitions[TP].is_future) == (0, False)
    assert (uses["b"].partitions[TP].lag, uses["b"].partitions[TP].is_future) == (30 - copied, True)
    assert 0 < uses["b"].partitions[TP].size < uses["a"].partitions[TP].size
    assert uses["c"].partitions == {}


@on_a_stage()
async def test_asking_for_where_it_lies_cancels_a_move(stage):
    await stage.begin_to_move()
    await stage.alter("b")
    assert [name.endswith("-future") for name in stage.names("b")] == [True]
    await stage.alter("a")
    assert stage.names("b") == []
    assert TP not in stage.logs.futures
    await stage.moved()
    assert stage.home() == "a"


@pytest.mark.parametrize("aim", ["a", "c"])
def test_a_copy_that_could_not_be_removed_is_removed_when_that_is_tried_again(tmp_path, aim):
    """A later start would find two, or one that nobody wants any more."""

    async def test():
        async with stage_at(tmp_path) as stage:
            await stage.begin_to_move()
            with FaultyFiles(stage.homes["b"], fail_at=0, error=errno.ENOSPC, lasting=True, steps=("rename",)):
                assert await stage.refusal(stage.homes[aim].absolute()) is ErrorCode.KAFKA_STORAGE_ERROR
            assert [name.endswith("-future") for name in stage.names("b")] == [True]
            await stage.alter(aim)
            assert stage.names("b") == []
            stage.go_on()
            await stage.moved()
            assert stage.home() == aim

    asyncio.run(test())


@on_a_stage()
async def test_a_move_gets_another_aim(stage):
    await stage.begin_to_move()
    await stage.alter("c")
    assert stage.names("b") == []
    stage.go_on()
    await stage.moved()
    assert stage.home() == "c"
    await stage.alter("a")
    await stage.moved()
    assert stage.home() == "a"


async def leave_something(stage):
    """Move a partition that begins at 2 and ends at 5 to ``b``; the disk of ``a`` has no room for another name."""
    stage.lead()
    stage.append(*(batch() for _ in range(5)))
    stage.replicas.delete_records(TP, 2)
    with FaultyFiles(stage.homes["a"], fail_at=0, error=errno.ENOSPC, lasting=True, steps=("rename",)):
        await stage.alter("b")
        await stage.moved()
    assert (stage.home(), stage.names("a"), stage.names("b")) == ("b", ["t-0"], ["t-0"])


@pytest.mark.parametrize("aim", ["a", "c"])
def test_what_a_move_could_not_remove_is_in_no_later_moves_way(tmp_path, aim):
    """The log directory that has it would count as failed, or a start would find three."""

    async def test():
        async with stage_at(tmp_path) as stage:
            await leave_something(stage)
            before = stage.contents()
            await stage.alter(aim)
            await stage.moved()
            assert (stage.home(), stage.contents(), stage.logs.dirs.failed) == (aim, before, {})
            await stage.until(lambda: [*map(stage.names, "abc")].count([]) == 2)

    asyncio.run(test())


def test_a_copy_that_was_away_while_the_log_was_written_anew_is_begun_anew(tmp_path):
    """A cleaning or an erasure waits for no copy in a log directory that is out of service."""

    async def test():
        async with stage_at(tmp_path, **{"segment.bytes": "1050000"}) as stage:
            await stage.begin_to_move()
            await stage.until(lambda: stage.future().log_end_offset > 3)
            stage.fail(stage.homes["b"])
            stage.go_on()
            await stage.moved()
            log = stage.logs.logs[TP]
            first, second, *_ = log._segments.bases
            before = [bytes(each.buffer) for each in iter_batches(b"".join(map(bytes, log.read_all(1 << 20))))]
            write_cleaned(log.directory, first, before[:second:2], log.config)
            log.replace_segments([first], [first])
            expected = stage.contents()
        async with stage_at(tmp_path, **{"segment.bytes": "1050000"}) as stage:
            stage.lead(epoch=1)
            stage.go_on()
            await stage.moved()
            assert stage.home() == "b"
            assert stage.contents() == expected, "what was taken away is back"
            await stage.until(lambda: [*map(stage.names, "abc")] == [[], ["t-0"], []])

    asyncio.run(test())


@on_a_stage()
async def test_a_disk_that_refuses_the_look_for_what_is_to_be_copied_is_out_of_service(stage):
    def refuse(*_):
        raise OSError(errno.EIO, "the disk refuses")

    await stage.begin_to_move()
    await stage.until(lambda: stage.future().log_end_offset)
    with pytest.MonkeyPatch.context() as refusing:
        refusing.setattr(Log, "read_for_copy", refuse)
        stage.go_on()
        await stage.moved()
        await stage.until(lambda: [*stage.logs.dirs.failed] == [stage.homes["a"]])


@on_a_stage()
async def test_a_copy_that_nobody_goes_on_with_goes_on_when_the_move_is_asked_for_again(stage):
    await stage.begin_to_move()
    await stage.until(lambda: stage.future().log_end_offset)
    stage.replicas.futures.leave(TP)
    stage.go_on()
    await stage.moved()
    assert TP in stage.logs.futures
    await stage.alter("b")
    assert len(stage.names("b")) == 1, "another copy was begun beside it"
    await stage.moved()
    assert stage.home() == "b"


@on_a_stage()
async def test_a_partition_leaves_a_disk_that_has_no_room_for_a_file(stage):
    stage.lead()
    stage.append(large())
    with FaultyFiles(stage.homes["a"], fail_at=0, error=errno.ENOSPC, lasting=True, steps=("open", "write", "mkdir")):
        await stage.alter("b")
        await stage.moved()
    assert (stage.home(), stage.logs.dirs.failed) == ("b", {})


@pytest.mark.parametrize("why", ["a person has removed it", "its new name was not made to last"])
def test_what_is_left_of_a_move_and_gone_since_is_in_no_later_moves_way(tmp_path, why):
    async def test():
        async with stage_at(tmp_path) as stage:
            if why == "a person has removed it":
                await leave_something(stage)
                shutil.rmtree(stage.homes["a"] / "t-0")
            else:
                stage.lead()
                stage.append(batch())
                with FaultyFiles(stage.homes["a"], fail_at=0, error=errno.ENOSPC, lasting=True, steps=("fsync",)):
                    await stage.alter("b")
                    await stage.moved()
            before = stage.contents()
            await stage.alter("c")
            await stage.moved()
            assert (stage.home(), stage.contents(), stage.logs.dirs.failed) == ("c", before, {})

    asyncio.run(test())


@on_a_stage()
async def test_a_move_frees_a_disk_on_which_no_checkpoint_has_room(stage):
    stage.lead()
    stage.append(*(large() for _ in range(3)))
    with FaultyFiles(stage.homes["a"], fail_at=0, error=errno.ENOSPC, lasting=True, steps=("write",)):
        await stage.alter("b")
        await stage.moved()
        assert stage.home() == "b"
        await stage.until(lambda: stage.names("a") == [])
    assert not moved.is_marked(stage.homes["b"] / "t-0")


@on_a_stage()
async def test_a_mark_that_the_disk_kept_goes_before_the_next_move(stage):
    """A start after a crash in that would find two."""
    stage.lead()
    with FaultyFiles(stage.homes["b"], fail_at=0, error=errno.ENOSPC, lasting=True, steps=("unlink",)):
        await stage.alter("b")
        await stage.moved()
    assert moved.is_marked(stage.homes["b"] / "t-0")
    await stage.hold()
    stage.append(*(large() for _ in range(3)))
    await stage.alter("c")
    assert not moved.is_marked(stage.homes["b"] / "t-0")


@on_a_stage()
async def test_a_move_is_refused_while_the_disk_keeps_what_an_earlier_one_left(stage):
    await leave_something(stage)
    with FaultyFiles(stage.homes["a"], fail_at=0, error=errno.ENOSPC, lasting=True, steps=("rename",)):
        assert await stage.refusal(stage.homes["c"].absolute()) is ErrorCode.KAFKA_STORAGE_ERROR
    assert (stage.home(), stage.names("c"), stage.logs.dirs.failed) == ("b", [], {})


@on_a_stage()
async def test_what_a_move_could_not_remove_goes_with_its_partition(stage):
    """The next topic of the name would begin where the former did, after a crash: what is below was lost."""
    await leave_something(stage)
    assert stage.replicas.stop(TP, delete=True) is ErrorCode.NONE
    await stage.until(lambda: stage.names("a") == stage.names("b") == [])
    assert stage.replicas.apply(TP, decision(), stage.config, UUID(int=2)) is ErrorCode.NONE
    assert stage.home() == "a"
    assert TP not in read_offsets(stage.homes["a"] / LOG_START_OFFSETS)


@on_a_stage()
async def test_refusals_are_kafkas(stage):
    stage.lead()
    assert await stage.refusal("/nowhere") is ErrorCode.LOG_DIR_NOT_FOUND
    long = TopicPartition("t" * 220, 0)
    assert await stage.refusal(stage.homes["b"], long) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert await stage.refusal(stage.homes["b"], TopicPartition("x", 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    stage.fail(stage.homes["c"])
    assert await stage.refusal(stage.homes["c"]) is ErrorCode.KAFKA_STORAGE_ERROR
    assert await stage.refusal(stage.homes["b"]) is ErrorCode.KAFKA_STORAGE_ERROR, "a copy may be in c"
    stage.fail(stage.homes["a"])
    assert await stage.refusal(stage.homes["b"]) is ErrorCode.KAFKA_STORAGE_ERROR


@on_a_stage()
async def test_a_partition_that_is_yet_to_come_is_made_where_it_was_wished(stage):
    for number, home in enumerate("cbca"):
        tp = TopicPartition("x", number)
        assert await stage.refusal(stage.homes[home].absolute(), tp) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        stage.lead(tp)
        assert stage.home(tp) == home


@on_a_stage(**{"segment.bytes": "250000", "retention.ms": "-1"})
async def test_epochs_producers_and_the_start_are_moved_too(stage):
    stage.lead()
    await stage.hold()
    builder = RecordBatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0)
    builder.append(1, None, b"v")
    stage.append(memoryview(bytearray(builder.build())))
    stage.append(*(large() for _ in range(20)))
    stage.lead(epoch=3)
    stage.append(*(large() for _ in range(20)))
    stage.lead(epoch=5)
    stage.replicas.delete_records(TP, 10)
    [*stage.replicas.apply_retention()]
    before = stage.replicas.partition(TP).log
    assert before.base_offset > 0
    entries, producers = before.epochs.entries, [*before.producers]
    await stage.alter("b")
    await stage.until(lambda: stage.future().log_end_offset > before.base_offset)
    assert [each.producer_id for each in stage.future().producers] == [7], "from the snapshot at the first segment"
    stage.go_on()
    await stage.moved()
    after = stage.replicas.partition(TP).log
    assert after.directory.parent.name == "b"
    assert after.log_start_offset == 10
    assert after.epochs.entries == entries
    assert [*after.producers] == producers
    assert read_offsets(stage.homes["b"] / LOG_START_OFFSETS) == {TP: 10}
    assert read_offsets(stage.homes["a"] / LOG_START_OFFSETS) == {}


@on_a_stage(**{"segment.bytes": "250000", "retention.ms": "-1"})
async def test_a_copy_that_retention_overtakes_begins_again(stage):
    stage.lead()
    await stage.hold()
    stage.append(*(large() for _ in range(40)))
    await stage.alter("b")
    await stage.until(lambda: stage.future().log_end_offset)
    stage.replicas.delete_records(TP, 35)
    while stage.logs.delete_old_segments(TP, 40):
        pass
    stage.go_on()
    await stage.moved()
    log = stage.replicas.partition(TP).log
    assert (log.directory.parent.name, log.log_start_offset, log.log_end_offset) == ("b", 35, 40)
    assert log.base_offset > 30
    await stage.until(lambda: stage.names("b") == ["t-0"])


@on_a_stage()
async def test_what_a_follower_drops_its_copy_drops(stage):
    """Half of what was copied is of another history then."""
    await stage.begin_to_move()
    await stage.until(lambda: stage.future().log_end_offset > 5)
    state = decision(OTHER, 1, (ME, OTHER))
    assert stage.replicas.apply(TP, state, stage.config, ID, replicas=(ME, OTHER)) is ErrorCode.NONE
    await stage.replicas.following.drop_beyond(TP, 1, 3)
    stage.lead(epoch=2)
    stage.append(*(large() for _ in range(30)))
    expected = stage.contents()
    stage.go_on()
    await stage.moved()
    assert stage.home() == "b"
    assert stage.contents() == expected


@on_a_stage()
async def test_a_copy_goes_with_a_deletion(stage):
    await stage.begin_to_move()
    assert stage.replicas.stop(TP, delete=True) is ErrorCode.NONE
    await stage.until(lambda: stage.names("a") == stage.names("b") == [])
    await stage.moved()
    assert TP not in stage.logs.futures
    stage.lead()
    assert stage.replicas.partition(TP).log_end_offset == 0


@on_a_stage()
async def test_a_partition_that_stops_and_comes_again_is_moved_on(stage):
    await stage.begin_to_move()
    await stage.until(lambda: stage.future().log_end_offset)
    assert stage.replicas.stop(TP, delete=False) is ErrorCode.NONE
    stage.lead(epoch=1)
    stage.go_on()
    await stage.moved()
    assert stage.home() == "b"


@pytest.mark.parametrize("failed", ["a", "b"])
def test_a_disk_that_fails_ends_the_move_and_nothing_else(tmp_path, failed):
    async def test():
        async with stage_at(tmp_path) as stage:
            await stage.begin_to_move()
            await stage.until(lambda: stage.future().log_end_offset)
            stage.fail(stage.homes[failed])
            stage.go_on()
            await stage.moved()
            assert TP not in stage.logs.futures
            if failed == "b":
                assert stage.home() == "a"
                stage.append(batch())
            else:
                assert TP in stage.logs.unusable
                assert [name.endswith("-future") for name in stage.names("b")] == [True], "no half copy is served"

    asyncio.run(test())


@pytest.mark.parametrize("settings", [{}, {"flush.messages": "1"}])
def test_a_restart_goes_on_with_the_copy(tmp_path, settings):
    async def test():
        async with stage_at(tmp_path, **settings) as stage:
            await stage.begin_to_move()
            await stage.until(lambda: stage.future().log_end_offset > 3)
            await stage.replicas.futures.close()
            copied, expected = stage.future().log_end_offset, stage.logs.logs[TP].log_end_offset
        async with stage_at(tmp_path, **settings) as stage:
            assert [*stage.logs.dormant] == [TP]
            await stage.hold()
            stage.lead(epoch=1)
            await stage.until(lambda: TP in stage.logs.futures)
            assert stage.future().log_end_offset >= copied
            stage.go_on()
            await stage.moved()
            assert stage.home() == "b"
            assert stage.replicas.partition(TP).log_end_offset == expected

    asyncio.run(test())


@on_a_stage()
async def test_a_copy_of_another_topic_of_the_name_is_never_served(stage):
    await stage.begin_to_move()
    await stage.until(lambda: stage.future().log_end_offset)
    assert stage.replicas.stop(TP, delete=False) is ErrorCode.NONE
    await stage.moved()
    stage.logs.drop_future(TP)
    stage.logs.logs[TP].assign_topic_id(UUID(int=2))
    stage.go_on()
    assert stage.replicas.apply(TP, decision(epoch=1), stage.config, UUID(int=2)) is ErrorCode.NONE
    await stage.moved()
    assert stage.home() == "a"
    assert stage.names("b") == []


@on_a_stage()
async def test_leases_and_slices_of_the_old_log_are_no_hindrance(stage):
    """Whoever has the file open reads on; whoever comes later is told of the new one."""
    stage.lead()
    stage.append(*(large() for _ in range(30)))
    partition = stage.replicas.partition(TP)
    piece = partition.read(0, LARGE, COMMITTED, min_one_batch=True).records
    lease = Lease(stage.clock.monotonic(), 30)
    extents = partition.extents(0, 30, COMMITTED, None, lease)
    await stage.alter("b")
    await stage.moved()
    assert len(os.pread(piece.file.fileno(), piece.size, piece.position)) == piece.size
    (old,), (new,) = extents.files, partition.extents(0, 30, COMMITTED).files
    assert (old.path.parent.parent.name, new.path.parent.parent.name) == ("a", "b")
    assert (old.start, old.end, old.first_crc) == (new.start, new.end, new.first_crc)


@on_a_stage()
async def test_who_waits_for_records_is_woken_by_them_after_the_move(stage):
    stage.lead()
    stage.append(batch())
    since = stage.replicas.partition(TP).high_watermark
    waiting = stage.replicas.fetch_purgatory.wait(
        [TP], lambda tp: stage.replicas.available(tp, since, COMMITTED) > 0, 600_000
    )
    await stage.alter("b")
    await stage.moved()
    assert not waiting.done()
    stage.append(batch())
    assert await asyncio.wait_for(waiting, WAIT_S)


@on_a_stage(**{"flush.messages": "1"})
async def test_a_flush_that_is_awaited_over_the_move_ends(stage):
    stage.lead()
    stage.append(*(large() for _ in range(30)))
    await stage.replicas.flushed(TP, 30)
    await stage.alter("b")
    count = 30
    while TP in stage.replicas.futures._moves:
        stage.append(batch())
        count += 1
        await asyncio.wait_for(stage.replicas.flushed(TP, count), WAIT_S)
    await stage.moved()
    assert stage.replicas.partition(TP).high_watermark.offset == count
    assert stage.replicas.partition(TP).log.recovery_point >= count


@on_a_stage()
async def test_a_batch_that_cannot_be_read_leaves_the_partition_where_it_is(stage):
    stage.lead()
    stage.append(*(large() for _ in range(30)))
    log = stage.logs.logs[TP]
    path = log.directory / "00000000000000000000.log"
    with open(path, "r+b") as file:
        file.seek(1_500_000)
        file.write(b"damage")
    await stage.alter("b")
    await stage.until(lambda: stage.future().log_end_offset > 5)
    await asyncio.sleep(0.05)
    assert stage.home() == "a"
    assert isinstance(stage.future(), Log)
    await stage.alter("a")
    assert stage.names("b") == []


@pytest.mark.parametrize("step", ["begin", "give_name", "secure"])
def test_a_disk_that_fails_while_it_is_waited_for_gets_no_partition(tmp_path, step, monkeypatch):
    """What the disk thread has done by then is of no use any more."""

    async def test():
        async with stage_at(tmp_path) as stage:
            stage.lead()
            stage.append(*(large() for _ in range(3)))
            copies = stage.replicas.futures._copies
            real, failed = getattr(copies, step), asyncio.Event()
            loop = asyncio.get_running_loop()

            def fail():
                stage.fail(stage.homes["b"])
                failed.set()

            def failing(*arguments):
                done = real(*arguments)
                asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(WAIT_S)
                loop.call_soon_threadsafe(fail)
                asyncio.run_coroutine_threadsafe(failed.wait(), loop).result(WAIT_S)
                return done

            monkeypatch.setattr(copies, step, failing)
            if step == "begin":
                assert await stage.refusal(stage.homes["b"].absolute()) is ErrorCode.KAFKA_STORAGE_ERROR
            else:
                await stage.alter("b")
            await stage.moved()
            assert TP not in stage.logs.futures
            if step == "secure":
                assert TP in stage.logs.unusable
                await stage.until(lambda: stage.names("a") == [])  # what may have been written since is in b alone
            else:
                assert stage.home() == "a"
                stage.append(batch())

    asyncio.run(test())
