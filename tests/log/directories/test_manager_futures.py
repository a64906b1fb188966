"""What the manager of the logs keeps of copies, of wishes where a partition is to lie, and what it does for its caller
on the disk thread.
"""

import errno
from concurrent.futures import Executor, Future
from uuid import UUID

import pytest
from log.directories.test_manager import crash
from log.samples import batch_of

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import DiskFull, LogClosed, LogDirFailed
from sparklog.log.checkpoints import CLEANER_OFFSETS, LOG_START_OFFSETS, RECOVERY_POINTS, read_offsets
from sparklog.log.directories.futures import FutureLogs
from sparklog.log.directories.making import NewPartition
from sparklog.log.directories.manager import LogManager
from sparklog.log.directories.usage import DirectoryRoom, LogUse, room_of
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.files import FaultyFiles
from sparklog.testing.steps import finish

TP, OTHER, ID = TopicPartition("t", 0), TopicPartition("t", 1), UUID(int=77)


class Now(Executor):
    """Does at once what is for another thread, and tells how it ended."""

    def submit(self, work, /, *arguments, **more):
        done = Future()
        try:
            done.set_result(work(*arguments, **more))
        except Exception as error:
            done.set_exception(error)
        return done


class Rig:
    """Two partitions in directory ``a`` of two, of three records each, and a copy of the first in ``b``."""

    def __init__(self, home):
        self.a, self.b = home / "a", home / "b"
        self.logs = LogManager([self.a, self.b], TopicConfig(), ManualClock(), Now())
        self.logs.load({})
        for tp in (TP, OTHER):
            self.logs.prefer(tp, self.dir(self.a))
            log = self.logs.get_or_create(tp, None, ID)
            for _ in range(3):
                log.append_as_leader(batch_of(1), 0)
        self.log = self.logs.logs[TP]
        self.future = FutureLogs(self.logs).begin(TP, self.dir(self.b))
        self.logs.add_future(TP, self.future)

    def dir(self, path):
        return self.logs.dirs.find(str(path.absolute()))

    def homes(self):
        return self.logs.home_of(TP), self.logs.future_home_of(TP)


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path)
    yield rig
    crash(rig.logs)


# Where a partition lies, and where it is wished to


def test_where_a_partition_and_its_copy_lie_is_known(rig):
    assert rig.homes() == (rig.a, rig.b)
    assert rig.logs.future_of(TP) == rig.future.directory
    assert (rig.logs.home_of(OTHER), rig.logs.future_of(OTHER), rig.logs.future_home_of(OTHER)) == (rig.a, None, None)
    gone = TopicPartition("gone", 0)
    assert (rig.logs.home_of(gone), rig.logs.future_home_of(gone)) == (None, None)


def test_a_copy_that_is_dropped_is_written_to_no_more_and_still_known(rig):
    rig.logs.drop_future(TP)
    assert (rig.logs.futures, rig.logs.dormant) == ({}, {TP: rig.future.directory})
    assert (rig.logs.future_of(TP), rig.logs.future_home_of(TP)) == (rig.future.directory, rig.b)
    with pytest.raises(LogClosed):
        rig.future.append_as_follower(batch_of(1))
    rig.logs.drop_future(TP)
    rig.logs.drop_future(OTHER)
    assert rig.logs.dormant == {TP: rig.future.directory}
    again = FutureLogs(rig.logs).go_on(TP, rig.future.directory)
    rig.logs.add_future(TP, again)
    assert (rig.logs.futures, rig.logs.dormant) == ({TP: again}, {})


def test_a_new_partition_is_made_where_it_is_wished_once(rig):
    new = TopicPartition("new", 0)
    rig.logs.prefer(new, rig.dir(rig.a))
    assert rig.logs.get_or_create(new, None, ID).directory.parent == rig.a, "though the other is emptier"
    rig.logs.delete(new)
    assert rig.logs.get_or_create(new, None, ID).directory.parent == rig.b


def test_a_wish_ends_with_its_partition_or_with_the_copy_that_fulfils_it(rig):
    rig.logs.prefer(OTHER, rig.dir(rig.b))
    rig.logs.delete(OTHER)
    rig.logs.prefer(TP, rig.dir(rig.a))
    rig.logs.prefer(TP, rig.dir(rig.b))
    assert rig.logs._preferred == {}, "it is in the one, and its copy in the other"
    rig.logs.drop_future(TP)
    rig.logs.dormant.clear()
    rig.logs.prefer(TP, rig.dir(rig.b))
    rig.logs.add_future(TP, rig.future)
    assert rig.logs._preferred == {}


def test_new_partitions_are_spread_by_where_the_logs_lie_after_a_move(rig):
    FutureLogs(rig.logs).swap(TP)
    homes = []
    for number in range(4):
        made = rig.logs.plan([NewPartition(TopicPartition("new", number), None, None)])()
        homes += [each.path.parent for each in made.values()]
        for tp, each in made.items():
            rig.logs.get_or_create(tp, None, None, made=each)
    assert homes == [rig.a, rig.b, rig.a, rig.b]


# What becomes of copies


def test_a_copy_goes_with_its_partition(rig):
    rig.logs.delete(TP)
    assert rig.homes() == (None, None)
    assert not [*rig.a.glob("t-0*"), *rig.b.glob("t-0*")]
    assert (rig.logs.futures, rig.logs.dormant) == ({}, {})
    with pytest.raises(LogClosed):
        rig.future.append_as_follower(batch_of(1))


def test_a_copy_that_is_not_open_goes_with_its_partition(rig):
    rig.logs.drop_future(TP)
    rig.logs.set_aside(TP, "a test")
    assert not [*rig.b.glob("t-0*")], "a copy is no stray"
    assert rig.logs.dormant == {}


def test_a_copy_that_a_full_disk_keeps_does_not_keep_its_partition(rig, caplog):
    with FaultyFiles(rig.b, fail_at=0, error=errno.ENOSPC, steps=("rename",)):
        rig.logs.delete(TP)
    assert f"log directory {rig.b} has no room" in caplog.text
    assert f"cannot rename {rig.future.directory}" in caplog.text
    assert (TP in rig.logs.logs, rig.logs.unusable, rig.future.directory.exists()) == (False, {}, True)


def test_a_copy_that_a_failing_disk_keeps_is_the_failure_of_its_directory_alone(rig):
    failures = []
    rig.logs.on_failure = lambda *failure: failures.append(failure)
    with FaultyFiles(rig.b, fail_at=0, steps=("rename",)):
        rig.logs.delete(TP)
    ((path, reason),) = failures
    assert (path, reason.startswith(f"cannot rename {rig.future.directory}: ")) == (rig.b, True)
    assert not [*rig.a.glob("t-0*")]


def test_a_copy_is_lost_with_its_directory(rig):
    rig.logs.fail(rig.b, "it has burnt")
    assert rig.homes() == (rig.a, None)
    with pytest.raises(LogClosed):
        rig.future.append_as_follower(batch_of(1))
    rig.log.append_as_leader(batch_of(1), 0)


def test_a_copy_rests_where_the_directory_of_its_partition_is_lost(rig):
    rig.logs.fail(rig.a, "it has burnt")
    assert rig.homes() == (None, rig.b)
    assert (rig.logs.futures, rig.logs.dormant) == ({}, {TP: rig.future.directory})
    assert rig.logs.unusable[TP] == f"its log directory {rig.a} failed: it has burnt"


def test_a_copy_that_rests_is_lost_with_its_directory(rig):
    rig.logs.drop_future(TP)
    rig.logs.fail(rig.b, "it has burnt")
    assert (rig.logs.dormant, rig.logs.future_of(TP)) == ({}, None)


def test_a_copy_that_rests_stays_where_another_directory_is_lost(rig):
    rig.logs.drop_future(TP)
    rig.logs.fail(rig.a, "it has burnt")
    assert rig.logs.dormant == {TP: rig.future.directory}


def test_copies_are_in_the_checkpoint_of_their_directory_and_are_closed_with_the_logs(rig):
    rig.future.append_as_follower(batch_of(1, 2))
    rig.future.flush()
    rig.logs.checkpoint()
    assert read_offsets(rig.a / RECOVERY_POINTS) == {TP: 0, OTHER: 0}
    assert read_offsets(rig.b / RECOVERY_POINTS) == {TP: 2}
    rig.future.append_as_follower(follower_batch(2))
    rig.logs.close()
    assert read_offsets(rig.a / RECOVERY_POINTS) == {TP: 3, OTHER: 3}
    assert read_offsets(rig.b / RECOVERY_POINTS) == {TP: 3}
    rig.logs.dirs.in_service.clear()


def follower_batch(offset):
    data = batch_of(1)
    data[:8] = offset.to_bytes(8, "big")
    return data


def test_the_use_of_a_copy_says_how_far_it_is_behind(rig):
    rig.future.append_as_follower(batch_of(1, 2))
    a, b = finish(rig.logs.usage())
    assert a.partitions == {TP: LogUse(rig.log.size), OTHER: LogUse(3 * len(batch_of(1)))}
    assert b.partitions == {TP: LogUse(rig.future.size, 1, is_future=True)}
    rig.log.on_high_watermark(5)
    assert finish(rig.logs.usage())[0].partitions[TP] == LogUse(rig.log.size, 2), "a follower may be behind"
    del rig.logs.logs[TP]
    assert finish(rig.logs.usage())[1].partitions == {TP: LogUse(rig.future.size, -1, is_future=True)}


# What is done for the caller


def test_what_is_free_is_what_the_broker_may_write(monkeypatch, tmp_path):
    class Usage:
        total, used, free = 100, 60, 30

    monkeypatch.setattr("shutil.disk_usage", {tmp_path: Usage}.get)
    assert room_of(tmp_path) == DirectoryRoom(tmp_path, 100, 30)


def test_a_file_is_removed_in_the_background_once(rig):
    path = rig.log.directory / "left"
    path.touch()
    for _ in range(2):
        rig.logs.unlink_later(path)
        assert not path.exists()
    assert len(rig.logs.dirs.failed) == 0, "one that is gone already is no failure"
    (path / "within").mkdir(parents=True)
    failures = []
    rig.logs.on_failure = lambda *failure: failures.append(failure)
    rig.logs.unlink_later(path)
    assert [where for where, _ in failures] == [rig.a]
    assert str(path) in failures[0][1]
    rig.logs.remove_later(path)
    assert not path.exists()


def test_work_on_the_disk_thread_tells_what_came_of_it(rig):
    assert rig.logs.run_on_disk(lambda *numbers: sum(numbers), 3, 4).result(0) == 7


def test_a_truncation_and_a_restart_on_the_disk_thread(rig):
    rig.logs.start_truncation(TP, 2).result(0)
    assert (rig.log.log_end_offset, rig.logs.logs[OTHER].log_end_offset) == (2, 3)
    rig.log.flush()
    rig.logs.checkpoint()
    rig.logs.start_restart(TP, 50).result(0)
    assert (rig.log.log_start_offset, rig.log.log_end_offset) == (50, 50)
    assert read_offsets(rig.a / RECOVERY_POINTS)[TP] == 0, "before the segments go"


def test_a_flush_on_the_disk_thread(rig):
    rig.logs.start_flush(rig.log).result(0)
    assert (rig.log.recovery_point, rig.logs.flushes.count) == (3, 1)


def test_a_flush_that_the_disk_refuses_fails_its_directory_and_whoever_waits_for_it(rig):
    with FaultyFiles(rig.a, fail_at=0, steps=("fdatasync",)):
        flush = rig.logs.start_flush(rig.log)
    with pytest.raises(LogDirFailed, match=f"cannot flush {rig.log.directory}"):
        flush.result(0)
    assert rig.homes() == (None, rig.b)
    assert len(rig.logs.dirs.failed) == 1


@pytest.mark.parametrize("change", [LogManager.truncate_to, LogManager.restart_at])
def test_a_partition_that_is_not_here_any_more_is_not_cut(rig, change):
    rig.logs.delete(TP)
    with pytest.raises(LogClosed, match="t-0 is not served: it was taken away"):
        change(rig.logs, TP, 1)
    rig.logs.fail(rig.a, "it has burnt")
    with pytest.raises(LogClosed, match=f"t-1 is not served: its log directory {rig.a} failed: it has burnt"):
        change(rig.logs, OTHER, 1)


def test_a_restart_that_the_disk_refuses_leaves_the_log(rig):
    rig.log.flush()
    with FaultyFiles(rig.a, fail_at=0, error=errno.ENOSPC, steps=("open",)), pytest.raises(DiskFull):
        rig.logs.restart_at(TP, 50)
    assert rig.log.log_end_offset == 3


def test_no_producer_is_forgotten_of_a_partition_that_is_being_cut(rig, monkeypatch):
    seen = []
    monkeypatch.setattr(type(rig.log), "expire_producers", lambda log: seen.append(log.tp))
    rig.logs.being_cut.add(TP)
    assert len(list(rig.logs.expire_producers())) == 2
    assert seen == [OTHER]


def test_where_a_log_begins_after_a_deletion_is_said(rig, caplog):
    caplog.set_level("INFO")
    rig.log.config = parse(TopicConfig, {"retention.bytes": "0"})
    assert rig.logs.delete_old_segments(TP, 3)
    assert f"{TP} now begins at offset 3" in caplog.text
    assert not rig.logs.delete_old_segments(TP, 3)


def test_how_far_it_was_cleaned_and_where_it_begins_is_known_where_a_partition_was_until_that_is_gone(rig):
    rig.dir(rig.a).cleaner_points.set(TP, 2)
    rig.logs.advance_start(TP, 2)
    rig.future.append_as_follower(batch_of(1, 2, 3))
    copies = FutureLogs(rig.logs)

    def told(home):
        return [read_offsets(home / name).get(TP) for name in (CLEANER_OFFSETS, LOG_START_OFFSETS)]

    old = copies.swap(TP)
    rig.logs.checkpoint_dir(rig.dir(rig.a))
    assert told(rig.a) == [2, 2], "after a power cut it may be the partition again"
    copies.secure(rig.logs.logs[TP])
    assert told(rig.b) == [2, 2]
    copies.retire(old, rig.logs.logs[TP])
    assert told(rig.a) == [None, None]
