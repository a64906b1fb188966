"""Every operation on a log, cut short at every step: what was acknowledged is there, whole, once."""

import errno
import os
import shutil
from concurrent.futures import Future
from pathlib import Path
from uuid import UUID

import pytest
from crash.steps import crash_at
from log.samples import SMALL, TP, abandon, batch_of, open_log, whole

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import InconsistentTopicId
from sparklog.log.checkpoints import read_topic_id
from sparklog.log.directories.making import NewPartition
from sparklog.log.directories.manager import LogManager
from sparklog.record.records import iter_batches
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock

COUNT = 20
MOST_STEPS = 200


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A log of several segments as a running broker has it, and its batches."""
    home = tmp_path_factory.mktemp("prepared") / "t-0"
    log = open_log(home, SMALL)
    for number in range(COUNT):
        log.append_as_leader(batch_of(1000 + number, size=100), number // 5)
    batches = [bytes(batch.buffer) for batch in iter_batches(whole(log))]
    abandon(log)
    assert log.segment_count > 3
    return home, batches


def copies(prepared, tmp_path):
    """One log after another, each as ``prepared``."""
    for n in range(MOST_STEPS):
        home = tmp_path / f"try-{n}" / "t-0"
        shutil.copytree(prepared[0], home)
        yield n, home
    raise AssertionError("the operation has no end of steps")


def recovered(home):
    """The log after the crash; its batches are whole, follow one another, and it takes another."""
    log = open_log(home, SMALL, clean=False)
    found = [bytes(batch.buffer) for batch in iter_batches(whole(log), partial_tail=False)]
    log.append_as_leader(batch_of(9999, size=100), 9)
    offsets = [batch.base_offset for batch in iter_batches(whole(log))]
    assert offsets == list(range(log.log_start_offset, log.log_start_offset + len(offsets)))
    log.close()
    assert open_log(home, SMALL).log_end_offset == log.log_end_offset
    return found


@pytest.mark.parametrize(
    ("appends", "half"), [(1, False), (1, True), pytest.param(12, False, marks=pytest.mark.slow), (12, True)]
)
def test_appending_and_rolling(prepared, tmp_path, half, appends):
    _, batches = prepared
    for n, home in copies(prepared, tmp_path):
        log = open_log(home, SMALL, clean=False)
        acknowledged = []

        def append(log=log, acknowledged=acknowledged):
            for number in range(appends):
                log.append_as_leader(batch_of(2000 + number, size=100), 5)
                acknowledged.append(number)

        crashed = crash_at(home.parent, n, append, half=half)
        abandon(log)
        found = recovered(home)
        assert found[:COUNT] == batches
        assert len(acknowledged) <= len(found) - COUNT <= len(acknowledged) + 1
        if not crashed:
            assert n > 3
            return


def test_closing(prepared, tmp_path):
    for n, home in copies(prepared, tmp_path):
        log = open_log(home, SMALL, clean=False)
        crashed = crash_at(home.parent, n, log.close)
        abandon(log)
        assert recovered(home) == prepared[1]
        if not crashed:
            return


def test_flushing(prepared, tmp_path):
    for n, home in copies(prepared, tmp_path):
        log = open_log(home, SMALL, clean=False)
        crashed = crash_at(home.parent, n, log.flush)
        assert log.recovery_point <= (0 if crashed else COUNT)
        abandon(log)
        assert recovered(home) == prepared[1]
        if not crashed:
            return


@pytest.mark.parametrize("offset", [0, 7, COUNT - 1])
def test_truncating(prepared, tmp_path, offset):
    _, batches = prepared
    for n, home in copies(prepared, tmp_path):
        log = open_log(home, SMALL, clean=False)
        crashed = crash_at(home.parent, n, lambda log=log: log.truncate_to(offset))
        abandon(log)
        found = recovered(home)
        assert found == batches[: len(found)]
        assert len(found) >= offset
        if not crashed:
            assert len(found) == offset
            return


@pytest.mark.parametrize("full", [False, True], ids=["", "full disk"])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_giving_up_the_beginning(prepared, tmp_path, monkeypatch, full, checkpointed):
    """Also where the disk has no room for longer names."""
    _, batches = prepared
    if full:
        monkeypatch.setattr(Path, "rename", refused_longer)
    for n, home in copies(prepared, tmp_path):
        log = open_log(home, SMALL | {"retention.bytes": "1000"}, clean=False)

        def retain(log=log):
            while doomed := log.delete_old_segments(COUNT):
                for path in doomed:
                    path.unlink(missing_ok=True)

        crashed = crash_at(home.parent, n, retain)
        abandon(log)
        start = log.log_start_offset
        again = open_log(home, SMALL, clean=False, log_start_offset=start if checkpointed else 0)
        found = [bytes(batch.buffer) for batch in iter_batches(whole(again))]
        assert found == batches[COUNT - len(found) :]
        assert COUNT - len(found) <= start
        assert (again.log_start_offset, again.log_end_offset) == (
            max(start if checkpointed else 0, COUNT - len(found)),
            COUNT,
        )
        if not crashed:
            assert COUNT - len(found) == start > 0
            return


def refused_longer(path, target):
    if len(target.name) > len(path.name):
        raise OSError(errno.ENOSPC, "No space left on device")
    os.rename(path, target)
    return target


def test_recovering(prepared, tmp_path):
    """A crash of the recovery of a crash."""
    _, batches = prepared
    for n, home in copies(prepared, tmp_path):
        last = max(home.glob("*.log"))
        with open(last, "ab") as file:
            file.write(b"\0" * 200)
        crashed = crash_at(home.parent, n, lambda home=home: abandon(open_log(home, SMALL, clean=False)))
        assert recovered(home) == batches
        if not crashed:
            return


class Now:
    """An executor that does it at once."""

    def submit(self, call, *args):
        call(*args)
        return Future()


def opened(home):
    manager = LogManager([home], parse(TopicConfig, SMALL), ManualClock(), Now())
    manager.own("cluster", 1)
    manager.load({})
    return manager


def let_go(manager):
    for log in manager.logs.values():
        abandon(log)
    for log_dir in manager.dirs.in_service:
        log_dir.close()


def test_starting_and_stopping_a_directory(prepared, tmp_path):
    _, batches = prepared
    for n, home in copies(prepared, tmp_path):
        manager = opened(home.parent)
        crashed = crash_at(home.parent, n, manager.close)
        marked = (home.parent / ".kafka_cleanshutdown").exists()
        if crashed:
            let_go(manager)
        again = opened(home.parent)
        assert [bytes(batch.buffer) for batch in iter_batches(whole(again.logs[TP]))] == batches
        if marked:
            assert again.logs[TP].recovery_point == COUNT
        again.close()
        if not crashed:
            assert marked
            return


def test_a_clean_mark_is_gone_before_anything_is_appended(prepared, tmp_path):
    _, batches = prepared
    for n, home in copies(prepared, tmp_path):
        opened(home.parent).close()
        kept = []

        def run(home=home, kept=kept):
            kept.append(opened(home.parent))
            kept[0].logs[TP].append_as_leader(batch_of(5000), 9)

        crashed = crash_at(home.parent, n, run)
        if kept:
            let_go(kept[0])
        if (home.parent / ".kafka_cleanshutdown").exists():
            assert whole(open_log(home, SMALL)) == b"".join(batches)
        if not crashed:
            return


def test_creating_a_partition(tmp_path):
    new, identity = TopicPartition("new", 0), UUID(int=9)
    for n in range(MOST_STEPS):
        home = tmp_path / str(n)
        manager = opened(home)
        crashed = crash_at(home, n, lambda manager=manager: manager.get_or_create(new, None, identity))
        let_go(manager)
        again = opened(home)
        log = again.get_or_create(new, None, identity)
        assert (log.log_end_offset, read_topic_id(log.directory)) == (0, identity)
        log.append_as_leader(batch_of(), 0)
        again.close()
        if not crashed:
            return


def test_making_partitions_ahead_and_removing_them_again(tmp_path):
    """Whatever is left serves the id of the topic that comes next, or is set aside for bearing another."""
    new, identity, other = [TopicPartition("new", n) for n in range(2)], UUID(int=9), UUID(int=10)

    def make_and_discard(manager):
        manager.discard(manager.plan([NewPartition(tp, None, identity, 3) for tp in new])())

    for n in range(MOST_STEPS):
        home = tmp_path / str(n)
        manager = opened(home)
        crashed = crash_at(home, n, lambda manager=manager: make_and_discard(manager))
        let_go(manager)
        again = opened(home)
        for tp in new:
            if again.topic_id(tp) == identity:
                again.set_aside(tp, "a test")
            log = again.get_or_create(tp, None, other)
            assert (log.log_end_offset, read_topic_id(log.directory)) == (0, other)
        again.close()
        if not crashed:
            assert not list(home.glob("*-stray"))
            return


def test_deleting_a_partition(prepared, tmp_path):
    for n, home in copies(prepared, tmp_path):
        manager = opened(home.parent)
        crashed = crash_at(home.parent, n, lambda manager=manager: manager.delete(TP))
        let_go(manager)
        again = opened(home.parent)
        assert not list(home.parent.glob("*-delete"))
        if TP in again.logs:
            assert [bytes(batch.buffer) for batch in iter_batches(whole(again.logs[TP]))] == prepared[1]
            assert crashed
        again.close()
        if not crashed:
            return


@pytest.mark.parametrize("take_away", [LogManager.delete, lambda manager, tp: manager.set_aside(tp, "a test")])
@pytest.mark.parametrize("begins_at", [0, 7])
def test_a_topic_that_is_made_again_has_nothing_of_the_one_before(prepared, tmp_path, take_away, begins_at):
    old, new = UUID(int=1), UUID(int=2)
    for n, home in copies(prepared, tmp_path):
        manager = opened(home.parent)
        manager.get_or_create(TP, None, old)
        if begins_at:
            manager.advance_start(TP, begins_at)
            manager.checkpoint()
        acknowledged = []

        def make_again(manager=manager, acknowledged=acknowledged):
            take_away(manager, TP)
            log = manager.get_or_create(TP, None, new)
            for number in range(3):
                log.append_as_leader(batch_of(3000 + number), 0)
                acknowledged.append(number)

        crashed = crash_at(home.parent, n, make_again)
        let_go(manager)
        again = opened(home.parent)
        if again.topic_id(TP) == old:  # as it was, in every byte that was served
            assert (crashed, acknowledged) == (True, [])
            served = [bytes(batch.buffer) for batch in iter_batches(whole(again.logs[TP]))]
            assert served == prepared[1]
            assert again.logs[TP].log_start_offset == begins_at
            with pytest.raises(InconsistentTopicId):
                again.get_or_create(TP, None, new)
            take_away(again, TP)
        log = again.get_or_create(TP, None, new)
        assert log.log_start_offset == 0
        assert len(acknowledged) <= log.log_end_offset <= len(acknowledged) + 1
        assert all(batch.max_timestamp >= 3000 for batch in iter_batches(whole(log)))
        again.close()
        if not crashed:
            assert acknowledged == [0, 1, 2]
            return
