"""The log directories of a broker: owned, locked, opened, closed."""

import errno
import logging
import os
import re
import shutil
import threading
from concurrent.futures import Executor, Future
from contextlib import suppress
from uuid import UUID

import pytest
from log.samples import abandon, batch_of, marker_of, read_bytes, transactional, whole

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, ConfigError, DiskFull, ErrorCode, InconsistentTopicId, LogDirFailed, LogError
from sparklog.log.adoption import ADOPTION
from sparklog.log.checkpoints import LOG_START_OFFSETS, RECOVERY_POINTS, read_offsets, read_topic_id
from sparklog.log.directories import moved
from sparklog.log.directories.making import NewPartition
from sparklog.log.directories.manager import LogManager
from sparklog.log.directories.usage import LogUse
from sparklog.log.files import parse_partition_dir
from sparklog.log.log import Log
from sparklog.log.origin import AppendOrigin
from sparklog.record.batch import RecordBatch
from sparklog.record.control import ControlType
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.files import Crash, FaultyFiles
from sparklog.testing.steps import counted, finish

ONE, TWO = TopicPartition("t", 0), TopicPartition("t-x", 11)
ID, OTHER_ID = UUID(int=77), UUID(int=78)
NEED_ROOM = ("open", "write", "pwrite", "ftruncate", "truncate", "mkdir", "fdatasync")
WAIT_S = 30


class Later(Executor):
    """Runs what was submitted when it is told to."""

    def __init__(self):
        self.waiting = []

    def submit(self, call, /, *args, **kwargs):
        self.waiting.append((call, args))
        return Future()

    def run(self):
        while self.waiting:  # what nobody waits for comes a piece at a time
            call, args = self.waiting.pop(0)
            call(*args)


@pytest.fixture
def later():
    return Later()


def opened(later, *dirs, load=True):
    manager = LogManager(list(dirs), TopicConfig(), ManualClock(), later)
    manager.own("cluster", 1)
    if load:
        manager.load({})
    return manager


def crash(manager):
    """What a killed process leaves: the locks go, nothing else happens."""
    for log in manager.logs.values():
        abandon(log)
    for log_dir in manager.dirs.in_service:
        log_dir.close()


def filled(later, home):
    manager = opened(later, home)
    for tp in (ONE, TWO):
        log = manager.get_or_create(tp, None, ID)
        for _ in range(3):
            log.append_as_leader(batch_of(1, 2), 0)
    return manager


def test_a_log_knows_its_partition_when_it_is_made_and_when_it_is_found_again(later, tmp_path):
    manager = filled(later, tmp_path)
    assert {tp: log.tp for tp, log in manager.logs.items()} == {ONE: ONE, TWO: TWO}
    manager.close()
    manager = opened(later, tmp_path)
    assert {tp: log.tp for tp, log in manager.logs.items()} == {ONE: ONE, TWO: TWO}
    manager.close()


def test_a_log_that_is_found_has_the_settings_of_its_topic(later, tmp_path):
    filled(later, tmp_path).close()
    manager = opened(later, tmp_path, load=False)
    config = parse(TopicConfig, {"retention.ms": "7"})
    manager.load({ONE.topic: config})
    assert {tp: log.config for tp, log in manager.logs.items()} == {ONE: config, TWO: TopicConfig()}
    manager.close()


def test_a_clean_stop_is_marked_and_the_mark_is_gone_before_the_next_append(later, tmp_path):
    manager = filled(later, tmp_path)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    manager.close()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    manager = opened(later, tmp_path)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert {tp: log.log_end_offset for tp, log in manager.logs.items()} == {ONE: 6, TWO: 6}
    assert [log.topic_id for log in manager.logs.values()] == [ID, ID]
    manager.close()


@pytest.mark.parametrize(("expiration_ms", "count"), [(1000, 0), (10_000, 1)])
def test_logs_that_are_found_forget_silent_producers_as_they_are_told_to(later, tmp_path, expiration_ms, count):
    manager = opened(later, tmp_path)
    log = manager.get_or_create(ONE, None, ID)
    log.append_as_leader(transactional(1, 0), 0, AppendOrigin.COORDINATOR)
    log.append_as_leader(marker_of(1, ControlType.COMMIT), 0, AppendOrigin.COORDINATOR)
    manager.close()
    again = opened(later, tmp_path, load=False)
    again.remember_producers(expiration_ms)
    again.load({})
    again._clock.advance(5)
    finish(again.expire_producers())
    assert again.logs[ONE].producer_count == count
    again.close()


def test_a_crash_is_not_taken_for_a_clean_stop(later, tmp_path):
    manager = filled(later, tmp_path)
    manager.checkpoint()
    crash(manager)
    (path,) = (tmp_path / "t-0").glob("*.log")
    with open(path, "ab") as file:
        file.write(b"torn")
    manager = opened(later, tmp_path)
    assert manager.logs[ONE].recovered_bytes_dropped == 4
    assert manager.logs[ONE].log_end_offset == 6
    manager.close()


def test_recovery_points_are_written_of_what_is_on_disk(later, tmp_path):
    manager = filled(later, tmp_path)
    manager.checkpoint()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n2\nt 0 0\nt-x 11 0\n"
    manager.logs[ONE].roll()
    manager.checkpoint()
    assert "t 0 0" in (tmp_path / "recovery-point-offset-checkpoint").read_text(), "rolled, but not flushed yet"
    later.run()
    manager.checkpoint()
    assert "t 0 6" in (tmp_path / "recovery-point-offset-checkpoint").read_text()
    manager.close()


def recovery_point_of(home, tp):
    return read_offsets(home / RECOVERY_POINTS)[tp]


@pytest.mark.parametrize(("offset", "end"), [(5, 4), (4, 4), (1, 0), (3, 2)])
def test_a_truncation_lowers_the_recovery_point_on_the_disk_to_the_end_that_it_leaves(later, tmp_path, offset, end):
    manager = filled(later, tmp_path)  # in batches of two
    manager.logs[ONE].flush()
    manager.checkpoint()
    manager.truncate_to(ONE, offset)
    assert (manager.logs[ONE].log_end_offset, recovery_point_of(tmp_path, ONE)) == (end, end)
    manager.close()


@pytest.mark.parametrize("refused", [False, True])
def test_a_truncation_to_before_the_start_lowers_the_start_on_the_disk(later, tmp_path, refused):
    manager = filled(later, tmp_path)  # in batches of two
    manager.advance_start(ONE, 5)
    manager.checkpoint()
    log = manager.logs[ONE]
    if refused:
        with FaultyFiles(log.directory, fail_at=0, error=errno.ENOSPC), pytest.raises(DiskFull):
            manager.truncate_to(ONE, 5)
    else:
        manager.truncate_to(ONE, 5)
    assert (log.log_start_offset, log.log_end_offset) == (4, 4)
    log.append_as_leader(batch_of(1, 2), 0)
    log.flush()
    abandon(log)  # as a killed process leaves it
    manager.dirs.in_service[0].close()
    again = opened(later, tmp_path)
    assert (again.logs[ONE].log_start_offset, again.logs[ONE].log_end_offset) == (4, 6)
    again.close()


def test_a_truncation_in_a_hole_of_a_compacted_log_lowers_the_recovery_point_to_before_it(later, tmp_path):
    manager = opened(later, tmp_path)
    log = manager.get_or_create(ONE, None, ID)
    for first in (0, 10):
        batch = batch_of(1, 2)
        RecordBatch(batch).assign(first, 0)
        log.append_as_follower(batch)
    log.flush()
    manager.checkpoint()
    manager.truncate_to(ONE, 10)
    assert log.log_end_offset == recovery_point_of(tmp_path, ONE) == 2
    manager.close()


def damaged_below_its_recovery_point(later, home):
    """A log of 2 to 6, all of it flushed, whose last batch went bad."""
    manager = filled(later, home)
    manager.advance_start(ONE, 2)
    for log in manager.logs.values():
        log.flush()
    manager.checkpoint()
    crash(manager)
    (path,) = (home / "t-0").glob("*.log")
    path.write_bytes(path.read_bytes()[:-1] + b"!")


def test_a_start_that_cuts_a_log_lowers_its_recovery_point_on_the_disk(later, tmp_path):
    damaged_below_its_recovery_point(later, tmp_path)
    assert recovery_point_of(tmp_path, ONE) == 6
    manager = opened(later, tmp_path)
    assert manager.logs[ONE].log_end_offset == recovery_point_of(tmp_path, ONE) == 4
    manager.close()


def test_a_log_whose_recovery_point_a_full_disk_cannot_lower_is_not_served(later, tmp_path):
    damaged_below_its_recovery_point(later, tmp_path)
    with FaultyFiles(tmp_path, fail_at=0, lasting=True, error=errno.ENOSPC, steps=("write",)):
        manager = opened(later, tmp_path)
    assert set(manager.unusable) == {ONE}
    assert set(manager.logs) == {TWO}
    manager.checkpoint()
    crash(manager)
    manager = opened(later, tmp_path)
    assert (manager.logs[ONE].log_start_offset, manager.logs[ONE].log_end_offset) == (2, 4)
    manager.close()


def tried_again(manager):
    made = manager.plan([NewPartition(ONE, None, ID)])()
    return manager.get_or_create(ONE, None, ID, made=made[ONE])


def test_a_log_that_a_full_disk_kept_from_being_opened_is_opened_when_there_is_room(later, tmp_path, caplog):
    damaged_below_its_recovery_point(later, tmp_path)
    with FaultyFiles(tmp_path, fail_at=0, lasting=True, error=errno.ENOSPC, steps=("write",)):
        manager = opened(later, tmp_path)
        assert "has no room" in caplog.text, "the log says at the start what to do"
        with pytest.raises(DiskFull):
            tried_again(manager)
        assert set(manager.unusable) == {ONE}
    log = tried_again(manager)
    assert (manager.unusable, manager.logs[ONE]) == ({}, log)
    assert (log.log_start_offset, log.log_end_offset) == (2, 4)
    log.append_as_leader(batch_of(1), 0)
    manager.checkpoint()
    crash(manager)
    manager = opened(later, tmp_path)
    assert (manager.logs[ONE].log_start_offset, manager.logs[ONE].log_end_offset) == (2, 5)
    manager.close()


def test_a_log_that_waited_for_room_is_scanned_whatever_the_last_stop_was(later, tmp_path):
    filled(later, tmp_path).close()
    with FaultyFiles(tmp_path / "t-0", fail_at=0, lasting=True, error=errno.ENOSPC, steps=("open",)):
        manager = opened(later, tmp_path)
    assert set(manager.unusable) == {ONE}
    path = tmp_path / "t-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert tried_again(manager).log_end_offset == 4
    manager.close()


def test_a_log_that_waited_for_room_stays_the_one_of_its_topic(later, tmp_path):
    damaged_below_its_recovery_point(later, tmp_path)
    with FaultyFiles(tmp_path, fail_at=0, lasting=True, error=errno.ENOSPC, steps=("write",)):
        manager = opened(later, tmp_path)
    made = manager.plan([NewPartition(ONE, None, OTHER_ID)])()
    with pytest.raises(InconsistentTopicId):
        manager.get_or_create(ONE, None, OTHER_ID, made=made[ONE])
    assert (made[ONE].log.topic_id, read_topic_id(tmp_path / "t-0")) == (ID, ID)
    manager.close()


def test_a_checkpoint_written_while_a_log_is_opened_after_all_keeps_its_start(later, tmp_path):
    damaged_below_its_recovery_point(later, tmp_path)
    with FaultyFiles(tmp_path, fail_at=0, lasting=True, error=errno.ENOSPC, steps=("write",)):
        manager = opened(later, tmp_path)
    made = manager.plan([NewPartition(ONE, None, ID)])()

    class OpenedMeanwhile(dict[TopicPartition, Log]):
        def copy(self):
            found, manager.logs = dict(self), dict(self)
            manager.get_or_create(ONE, None, ID, made=made[ONE])
            return found

    manager.logs = OpenedMeanwhile(manager.logs)
    manager.checkpoint()
    crash(manager)
    manager = opened(later, tmp_path)
    assert manager.logs[ONE].log_start_offset == 2
    manager.close()


def test_a_log_that_waits_for_room_is_opened_also_while_another_directory_is_out_of_service(later, tmp_path):
    good, bad = tmp_path / "good", tmp_path / "bad"
    damaged_below_its_recovery_point(later, good)
    with FaultyFiles(good, fail_at=0, lasting=True, error=errno.ENOSPC, steps=("write",)):
        manager = opened(later, good, bad, load=False)
        manager.load({"t": TopicConfig(), "t-x": TopicConfig()})
    manager.fail(bad, "it has burnt")
    reason = manager.unusable[ONE]
    with pytest.raises(LogError, match=re.escape(reason)):
        manager.get_or_create(ONE, None, ID, is_new=False)
    made = manager.plan([NewPartition(ONE, None, ID, is_new=False)])()
    log = manager.get_or_create(ONE, None, ID, is_new=False, made=made[ONE])
    assert (log.log_start_offset, log.log_end_offset, manager.unusable) == (2, 4, {})
    manager.close()


def test_a_log_that_waited_for_room_and_cannot_be_used_says_why(later, tmp_path):
    damaged_below_its_recovery_point(later, tmp_path)
    with FaultyFiles(tmp_path, fail_at=0, lasting=True, error=errno.ENOSPC, steps=("write",)):
        manager = opened(later, tmp_path)
    path = tmp_path / "t-0" / f"{0:020d}.log"
    path.rename(tmp_path / "kept")
    path.mkdir()
    with pytest.raises(LogError, match="Is a directory; move it away"):
        tried_again(manager)
    assert "Is a directory; move it away" in manager.unusable[ONE]
    assert manager.plan([NewPartition(ONE, None, ID)])() == {}
    manager.close()


def test_a_log_that_waited_for_room_on_a_disk_that_fails_says_so(later, tmp_path):
    good, bad = tmp_path / "good", tmp_path / "bad"
    damaged_below_its_recovery_point(later, bad)
    with FaultyFiles(bad, fail_at=0, lasting=True, error=errno.ENOSPC, steps=("write",)):
        manager = opened(later, good, bad)
    manager.fail(bad, "it has burnt")
    assert manager.unusable[ONE] == f"its log directory {bad} failed: it has burnt"
    assert manager.plan([NewPartition(ONE, None, ID)])() == {}
    manager.close()


def test_a_damaged_log_is_not_tried_again(later, tmp_path):
    damaged_below_its_recovery_point(later, tmp_path)
    (tmp_path / "t-0" / "00000000000000000000.log").rename(tmp_path / "t-0" / "kept")
    (tmp_path / "t-0" / "00000000000000000000.log").mkdir()
    manager = opened(later, tmp_path)
    reason = manager.unusable[ONE]
    assert manager.plan([NewPartition(ONE, None, ID)])() == {}
    with pytest.raises(LogError, match=re.escape(reason)):
        manager.get_or_create(ONE, None, ID)
    manager.close()


def test_a_log_that_waits_for_room_can_be_deleted(later, tmp_path):
    damaged_below_its_recovery_point(later, tmp_path)
    with FaultyFiles(tmp_path, fail_at=0, lasting=True, error=errno.ENOSPC, steps=("write",)):
        manager = opened(later, tmp_path)
        manager.delete(ONE)
    made = manager.plan([NewPartition(ONE, None, OTHER_ID)])()
    log = manager.get_or_create(ONE, None, OTHER_ID, made=made[ONE])
    assert (log.log_start_offset, log.log_end_offset, log.topic_id) == (0, 0, OTHER_ID)
    manager.close()


def test_a_log_that_waits_for_room_is_not_opened_while_it_is_taken_away(later, tmp_path):
    damaged_below_its_recovery_point(later, tmp_path)
    with FaultyFiles(tmp_path, fail_at=0, lasting=True, error=errno.ENOSPC, steps=("write",)):
        manager = opened(later, tmp_path)
    manager.depart(ONE, None)
    assert manager.plan([NewPartition(ONE, None, ID)])() == {}
    manager.close()


def test_a_broker_starts_though_it_cannot_say_where_a_moved_partition_is(later, tmp_path, caplog):
    """As of any other partition that cannot be read: it alone is not served, and its start stays known."""
    homes = tmp_path / "a", tmp_path / "b"
    manager = filled(later, homes[0])
    manager.advance_start(ONE, 3)
    manager.close()
    shutil.copytree(homes[0] / str(ONE), homes[1] / str(ONE))
    moved.mark(homes[1] / str(ONE))
    (homes[1] / str(ONE) / ADOPTION).write_text("?")
    manager = opened(later, *homes)
    assert (set(manager.logs), set(manager.unusable)) == ({TWO}, {ONE})
    with pytest.raises(LogError, match="it cannot be said which of them is the partition"):
        manager.get_or_create(ONE, None, ID)
    (line,) = (each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR)
    assert line.startswith(f"{ONE} is not served: {ONE} was being moved from")
    manager.close()
    (homes[1] / str(ONE) / ADOPTION).unlink()
    manager = opened(later, *homes)
    assert (manager.home_of(ONE), manager.logs[ONE].log_start_offset) == (homes[1], 3)
    crash(manager)


def test_a_directory_in_use_is_refused(later, tmp_path):
    manager = opened(later, tmp_path / "a")
    with pytest.raises(ConfigError, match="in use by another broker"):
        opened(later, tmp_path / "b", tmp_path / "a")
    opened(later, tmp_path / "b").close()  # and the first of the two was let go
    manager.close()
    opened(later, tmp_path / "a").close()


@pytest.mark.parametrize(("cluster", "broker", "name"), [("other", 1, "cluster.id"), ("cluster", 2, "broker.id")])
def test_anothers_directory_is_refused(later, tmp_path, cluster, broker, name):
    opened(later, tmp_path).close()
    manager = LogManager([tmp_path], TopicConfig(), ManualClock(), later)
    with pytest.raises(ConfigError, match=rf"belongs to {name}=.*log\.dirs"):
        manager.own(cluster, broker)
    manager.close()


def test_a_directory_that_cannot_be_made_is_refused(later, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(LogDirFailed, match="cannot use log directory"):
        LogManager([tmp_path / "file" / "dir"], TopicConfig(), ManualClock(), later)


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
def test_a_checkpoint_of_garbage_costs_a_scan_and_is_named(later, tmp_path, caplog, name):
    manager = opened(later, tmp_path)
    manager.get_or_create(ONE, None, None).append_as_leader(batch_of(), 0)
    manager.close()
    (tmp_path / name).write_bytes(b"\xff garbage")
    manager = opened(later, tmp_path)
    assert name in caplog.text
    assert (manager.logs[ONE].log_end_offset, manager.logs[ONE].log_start_offset) == (1, 0)
    assert (manager.logs[ONE].scanned_bytes > 0) == name.startswith("recovery")
    manager.close()


def test_a_directory_whose_start_failed_is_left_as_it_was(later, tmp_path):
    manager = opened(later, tmp_path)
    log = manager.get_or_create(ONE, None, None)
    for _ in range(3):
        log.append_as_leader(batch_of(), 0)
    manager.advance_start(ONE, 2)
    manager.checkpoint()
    abandoned = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    manager.dirs.in_service[0].close()
    refused = LogManager([tmp_path], TopicConfig(), ManualClock(), later)
    with pytest.raises(ConfigError):
        refused.own("cluster", 2)
    refused.close()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == abandoned
    assert opened(later, tmp_path).logs[ONE].log_start_offset == 2


def test_what_is_no_partition_is_left_alone(later, tmp_path):
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "t-0.backup").mkdir()
    (tmp_path / "file-0").touch()
    manager = opened(later, tmp_path)
    assert manager.logs == {}
    manager.close()
    assert (tmp_path / "t-0.backup").exists()


def test_a_deleted_partition_is_gone_at_once_and_can_be_made_again(later, tmp_path):
    manager = filled(later, tmp_path)
    piece = manager.logs[ONE].read(0, 1 << 20, manager.logs[ONE].end, min_one_batch=True)
    content = read_bytes(piece)
    manager.delete(ONE)
    manager.delete(ONE)
    assert ONE not in manager.logs
    assert not (tmp_path / "t-0").exists()
    assert len(list(tmp_path.glob("t-0.*-delete"))) == 1
    assert manager.get_or_create(ONE, None, None).log_end_offset == 0
    later.run()
    assert not list(tmp_path.glob("*-delete"))
    assert read_bytes(piece) == content
    manager.close()


def test_what_is_made_again_does_not_count_as_flushed_as_far_as_its_former_log(later, tmp_path):
    manager = filled(later, tmp_path)
    manager.logs[ONE].flush()
    manager.checkpoint()
    assert recovery_point_of(tmp_path, ONE) == 6
    manager.delete(ONE)
    crash(manager)
    manager = opened(later, tmp_path)
    manager.get_or_create(ONE, None, OTHER_ID)
    assert ONE not in read_offsets(tmp_path / RECOVERY_POINTS)
    manager.close()


def test_a_deletion_that_was_not_finished_is_finished_at_the_next_start(later, tmp_path):
    manager = filled(later, tmp_path)
    manager.delete(ONE)
    crash(manager)
    assert list(tmp_path.glob("*-delete"))
    manager = opened(Later(), tmp_path)
    assert not list(tmp_path.glob("*-delete"))
    assert list(manager.logs) == [TWO]
    manager.close()


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_what_a_person_has_removed_of_deleted_partitions_is_removed(later, tmp_path, monkeypatch, when):
    """Who needs the room types ``rm -rf *-delete``, while the broker is at it."""
    manager = filled(later, tmp_path)
    manager.delete(ONE)
    (doomed,) = tmp_path.glob("*-delete")
    if when == "before":
        shutil.rmtree(doomed)
    else:
        unlink = os.unlink

        def unlink_twice(*args, **how):
            unlink(*args, **how)
            unlink(*args, **how)

        monkeypatch.setattr(os, "unlink", unlink_twice)
    later.run()
    monkeypatch.undo()
    assert (manager.dirs.failed, list(manager.logs), doomed.exists()) == ({}, [TWO], False)
    manager.close()


@pytest.mark.parametrize("how", ["its new name was not made to last", "a person has removed it"])
def test_what_was_made_ahead_in_vain_and_is_gone_is_no_failure(later, tmp_path, how):
    manager = filled(later, tmp_path)
    third = TopicPartition("third", 0)
    unwanted = manager.plan([NewPartition(third, None, ID)])()
    if how == "a person has removed it":
        shutil.rmtree(unwanted[third].path)
    else:
        with FaultyFiles(tmp_path, fail_at=0, error=errno.ENOSPC, steps=("fsync",)):
            manager.discard(unwanted)
        assert not unwanted[third].path.exists()
    manager.discard(unwanted)
    assert manager.dirs.failed == {}
    manager.close()


def test_deleting_needs_no_room_and_flushes_nothing(later, tmp_path):
    manager = filled(later, tmp_path)
    with FaultyFiles(tmp_path, fail_at=0, lasting=True, error=errno.ENOSPC, steps=NEED_ROOM) as files:
        manager.delete(ONE)
        manager.set_aside(TWO, "a test")
        assert files.count == 0
    assert (manager.logs, manager.unusable) == ({}, {})
    assert sorted(path.name.rpartition("-")[2] for path in tmp_path.iterdir() if path.is_dir()) == ["delete", "stray"]
    later.run()
    assert not list(tmp_path.glob("*-delete"))
    manager.close()


def test_deleting_is_one_rename_and_one_sync(later, tmp_path):
    manager = filled(later, tmp_path)
    with FaultyFiles(tmp_path) as files:
        manager.delete(ONE)
        assert files.count == 2
    manager.close()


@pytest.mark.parametrize("take_away", [LogManager.delete, lambda manager, tp: manager.set_aside(tp, "a test")])
@pytest.mark.parametrize("step", [0, 1])
def test_a_partition_that_could_not_be_taken_away_is_not_served_and_can_be_later(later, tmp_path, take_away, step):
    manager = filled(later, tmp_path)
    log = manager.logs[ONE]
    manager.advance_start(ONE, 4)
    with (
        FaultyFiles(tmp_path, fail_at=step, error=errno.ENOSPC),
        pytest.raises(DiskFull, match="No space left"),
    ):
        take_away(manager, ONE)
    with pytest.raises(LogError, match="could not be taken away"):
        manager.get_or_create(ONE, None, ID)
    with pytest.raises(LogError, match="closed"):
        log.append_as_leader(batch_of(), 0)
    manager.checkpoint()
    assert read_offsets(tmp_path / LOG_START_OFFSETS) == {ONE: 4}, "or a start would serve what was deleted"
    assert list(read_offsets(tmp_path / RECOVERY_POINTS)) == [TWO]
    take_away(manager, ONE)
    assert ONE not in manager.unusable
    assert manager.get_or_create(ONE, None, OTHER_ID).log_end_offset == 0
    assert read_offsets(tmp_path / LOG_START_OFFSETS) == {}
    manager.close()


def test_a_partition_that_cannot_be_used_can_be_deleted(later, tmp_path):
    filled(later, tmp_path).close()
    (tmp_path / "t-0" / "partition.metadata").write_bytes(b"\xff garbage")
    manager = opened(later, tmp_path)
    assert list(manager.unusable) == [ONE]
    assert manager.topic_id(ONE) is None
    manager.delete(ONE)
    assert not (tmp_path / "t-0").exists()
    assert manager.get_or_create(ONE, None, OTHER_ID).log_end_offset == 0
    manager.close()


def test_a_partition_whose_directory_a_person_has_removed_can_be_deleted(later, tmp_path):
    manager = filled(later, tmp_path / "logs")
    (tmp_path / "logs" / "t-0").rename(tmp_path / "elsewhere")
    manager.delete(ONE)
    later.run()
    assert (manager.unusable, len(manager.dirs.in_service)) == ({}, 1)
    manager.close()


@pytest.mark.parametrize(("length", "number"), [(220, 0), (249, 99_999)])
def test_a_topic_with_a_long_name_can_be_deleted(later, tmp_path, length, number):
    long = TopicPartition("x" * length, number)
    manager = opened(later, tmp_path)
    manager.get_or_create(long, None, ID)
    manager.delete(long)
    assert not (tmp_path / str(long)).exists()
    later.run()
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []
    manager.close()


def test_what_belongs_to_another_topic_of_that_name_is_never_served(later, tmp_path, caplog):
    filled(later, tmp_path).close()
    manager = opened(later, tmp_path)
    before = whole(manager.logs[ONE])
    for _ in range(2):
        with pytest.raises(InconsistentTopicId, match=f"t-0 belongs to topic id {ID}, not to {OTHER_ID}"):
            manager.get_or_create(ONE, None, OTHER_ID)
    assert read_topic_id(tmp_path / "t-0") == manager.topic_id(ONE) == ID
    manager.set_aside(ONE, "it is another's")
    log = manager.get_or_create(ONE, None, OTHER_ID)
    assert (log.log_end_offset, read_topic_id(tmp_path / "t-0")) == (0, OTHER_ID)
    (stray,) = tmp_path.glob("t-0.*-stray")
    assert f"{tmp_path / 't-0'} is set aside as {stray.name}: it is another's" in caplog.text
    assert b"".join(path.read_bytes() for path in sorted(stray.glob("*.log"))) == before
    manager.close()
    opened(later, tmp_path).close()
    assert stray.exists()
    assert f"{stray} was set aside" in caplog.text


@pytest.mark.parametrize("dirs", [["a"], ["a", "b"]])
def test_a_checkpoint_that_was_queued_says_nothing_of_a_log_that_was_deleted(later, tmp_path, dirs):
    manager = opened(later, *(tmp_path / name for name in dirs))
    log = manager.get_or_create(ONE, None, ID)
    for _ in range(40):
        log.append_as_leader(batch_of(), 0)
    log.flush()
    manager.advance_start(ONE, 40)
    manager.checkpoint_later()
    manager.delete(ONE)
    log = manager.get_or_create(ONE, None, OTHER_ID)
    for _ in range(5):
        log.append_as_leader(batch_of(), 0)
    expected = whole(log)
    later.run()
    for name in dirs:
        assert read_offsets(tmp_path / name / LOG_START_OFFSETS) == {}
        assert 40 not in read_offsets(tmp_path / name / RECOVERY_POINTS).values()
    crash(manager)
    manager = opened(later, *(tmp_path / name for name in dirs))
    log = manager.logs[ONE]
    assert (log.log_start_offset, log.log_end_offset, whole(log)) == (0, 5, expected)
    manager.close()


def test_a_checkpoint_under_way_while_its_topic_is_made_again_is_overwritten(later, tmp_path, monkeypatch):
    manager = opened(later, tmp_path)
    log = manager.get_or_create(ONE, None, ID)
    for _ in range(40):
        log.append_as_leader(batch_of(), 0)
    manager.advance_start(ONE, 40)
    replace, under_way, go_on = os.replace, threading.Event(), threading.Event()

    def pause(source, target):
        if str(target).endswith(RECOVERY_POINTS) and not under_way.is_set():
            under_way.set()
            assert go_on.wait(WAIT_S)
        replace(source, target)

    monkeypatch.setattr(os, "replace", pause)
    writer = threading.Thread(target=manager.checkpoint)
    writer.start()
    assert under_way.wait(WAIT_S)
    manager.delete(ONE)
    maker = threading.Thread(target=manager.get_or_create, args=(ONE, None, OTHER_ID))
    maker.start()
    go_on.set()
    for thread in (writer, maker):
        thread.join(WAIT_S)
    assert read_offsets(tmp_path / LOG_START_OFFSETS) == {}
    assert manager.logs[ONE].log_start_offset == 0
    manager.close()


def test_two_who_write_the_checkpoints_write_one_after_the_other(later, tmp_path, monkeypatch):
    manager = filled(later, tmp_path)
    replace, writing, most = os.replace, [], []

    def watch(source, target):
        writing.append(target)
        most.append(len(writing))
        replace(source, target)
        writing.remove(target)

    monkeypatch.setattr(os, "replace", watch)
    failures = []
    manager.on_failure = lambda *failure: failures.append(failure)
    background = threading.Thread(target=lambda: [manager.checkpoint() for _ in range(50)])
    background.start()
    for _ in range(50):
        manager._checkpoint_dir_of(manager.logs[ONE])
    background.join(WAIT_S)
    assert (set(most), failures) == ({1}, [])
    manager.close()


def test_what_a_crash_left_unfinished_is_removed_at_the_start(later, tmp_path):
    filled(later, tmp_path).close()
    left = [tmp_path / "recovery-point-offset-checkpoint.tmp", tmp_path / "t-0" / "leader-epoch-checkpoint.7.tmp"]
    for path in left:
        path.write_bytes(b"half")
    opened(later, tmp_path).close()
    assert [path.exists() for path in left] == [False, False]


@pytest.mark.parametrize(
    ("tp", "code"),
    [
        (TopicPartition("../outside", 0), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicPartition("/tmp/absolute", 0), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicPartition("two words", 0), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicPartition("", 0), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicPartition("..", 0), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicPartition("x" * 250, 0), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TopicPartition("t", -1), ErrorCode.INVALID_PARTITIONS),
        (TopicPartition("x" * 249, 100_000), ErrorCode.INVALID_PARTITIONS),
        (TopicPartition("t", 2**31), ErrorCode.INVALID_PARTITIONS),
    ],
)
def test_no_file_is_made_for_what_can_be_no_partition(later, tmp_path, tp, code):
    manager = opened(later, tmp_path / "a" / "logs")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ApiError) as caught:
        manager.get_or_create(tp, None, ID)
    assert caught.value.code is code
    assert sorted(tmp_path.rglob("*")) == before
    manager.close()


@pytest.mark.parametrize("name", ["t-01", "t-2147483648", "t-\u0661", "t-", "-0", "t-1" + "0" * 5000])
def test_a_directory_that_is_named_almost_like_a_partitions_is_none(name):
    assert parse_partition_dir(name) is None


def test_partitions_are_spread_over_the_directories(later, tmp_path):
    manager = opened(later, tmp_path / "a", tmp_path / "b")
    for number in range(4):
        manager.get_or_create(TopicPartition("t", number), None, None).append_as_leader(batch_of(), 0)
    homes = [log.directory.parent.name for log in manager.logs.values()]
    assert homes.count("a") == homes.count("b") == 2
    manager.close()
    manager = opened(later, tmp_path / "b", tmp_path / "a")
    assert sorted(log.log_end_offset for log in manager.logs.values()) == [1] * 4
    manager.close()


def test_what_was_made_in_a_directory_that_failed_meanwhile_is_not_served(later, tmp_path):
    manager = opened(later, tmp_path / "a", tmp_path / "b")
    made = manager.plan([NewPartition(ONE, None, ID)])()
    home = made[ONE].path.parent
    manager.fail(home, "it has burnt")
    with pytest.raises(LogError, match=f"its log directory {home} failed: it has burnt"):
        manager.get_or_create(ONE, None, ID, made=made[ONE])
    assert set(manager.unusable) == {ONE}
    manager.close()


MAKING = 24
"""More steps than it takes to make a partition."""
TOPICS = {"t": TopicConfig(), "t-x": TopicConfig()}


def homes_of(tp, *dirs):
    return [home for home in dirs if (home / str(tp)).exists()]


def made_now(manager, tp, *, is_new=True):
    made = manager.plan([NewPartition(tp, None, ID, 0, is_new)])()
    return manager.get_or_create(tp, None, ID, is_new=is_new, made=made.get(tp))


def without(home):
    """The directory cannot be used until it is brought back with what is returned."""
    aside = home.rename(home.with_name("aside"))
    home.write_text("no directory")

    def bring_back():
        home.unlink()
        aside.rename(home)

    return bring_back


def check_that_its_record_is_never_missed(later, dirs):
    """Whichever directory cannot be used at the next start, ``ONE`` is served with its one record, or not at all."""
    (home,) = homes_of(ONE, *dirs)
    for missing in (None, *dirs):
        bring_back = without(missing) if missing else None
        manager = opened(later, *dirs, load=False)
        manager.load(TOPICS)
        if missing == home:
            with pytest.raises(LogError, match="may lie in a directory that is out of service"):
                made_now(manager, ONE, is_new=False)
        else:
            assert made_now(manager, ONE, is_new=False).log_end_offset == 1
        manager.close()
        if bring_back:
            bring_back()


@pytest.mark.parametrize("how", ["goes on", "stops", "crashes"])
@pytest.mark.parametrize("step", range(MAKING))
def test_a_partition_that_a_full_disk_kept_from_being_made_has_one_home(later, tmp_path, step, how):
    dirs = [tmp_path / "a", tmp_path / "b"]
    manager = opened(later, *dirs)
    with FaultyFiles(tmp_path, fail_at=step, lasting=True, error=errno.ENOSPC), suppress(DiskFull):
        made_now(manager, ONE)
    if how == "stops":
        manager.close()
    if how == "crashes":
        crash(manager)
    if how != "goes on":
        manager = opened(later, *dirs)
    made_now(manager, TWO)  # which makes another directory the emptiest
    made_now(manager, ONE).append_as_leader(batch_of(), 0)
    manager.close()
    check_that_its_record_is_never_missed(later, dirs)


@pytest.mark.parametrize("step", range(MAKING))
def test_a_crash_while_a_partition_is_made_leaves_it_one_home(later, tmp_path, step):
    dirs = [tmp_path / "a", tmp_path / "b"]
    manager = opened(later, *dirs)
    with FaultyFiles(tmp_path, crash_at=step), suppress(Crash):
        made_now(manager, ONE)
    crash(manager)
    for home in homes_of(ONE, *dirs):
        bring_back = without(home)
        manager = opened(later, *dirs, load=False)
        manager.load(TOPICS)
        with pytest.raises(LogError, match="may lie in a directory that is out of service"):
            made_now(manager, ONE, is_new=False)
        manager.close()
        bring_back()
    manager = opened(later, *dirs)
    made_now(manager, TWO)
    made_now(manager, ONE).append_as_leader(batch_of(), 0)
    manager.close()
    check_that_its_record_is_never_missed(later, dirs)


def left_of_a_making_beside_its_log(later, dirs):
    """ONE has its log in one of two directories, and a blank directory in the other, both are returned."""
    manager = opened(later, *dirs)
    made_now(manager, ONE).append_as_leader(batch_of(), 0)
    manager.close()
    (home,) = homes_of(ONE, *dirs)
    (other,) = set(dirs) - {home}
    (other / "t-0").mkdir()
    return home, other


@pytest.mark.parametrize("files", [[], [f"{0:020d}.log"], [f"{0:020d}.log", f"{0:020d}.index"], ["partition.metadata"]])
def test_a_start_takes_what_is_left_of_a_making_for_no_partition_that_has_its_log_elsewhere(later, tmp_path, files):
    dirs = [tmp_path / "a", tmp_path / "b"]
    home, other = left_of_a_making_beside_its_log(later, dirs)
    for name in files:
        (other / "t-0" / name).touch()
        if name == "partition.metadata":
            (other / "t-0" / name).write_bytes((home / "t-0" / name).read_bytes())
    bring_back = without(home)
    manager = opened(later, *dirs, load=False)
    manager.load(TOPICS)
    assert ONE not in manager.logs
    with pytest.raises(LogError, match="may lie in a directory that is out of service"):
        made_now(manager, ONE, is_new=False)
    manager.close()
    bring_back()
    manager = opened(later, *dirs)
    assert manager.logs[ONE].log_end_offset == 1
    assert homes_of(ONE, *dirs) == [home]
    assert list(other.glob("t-0*")) == []
    manager.close()
    check_that_its_record_is_never_missed(later, dirs)


@pytest.mark.parametrize("exists", [True, False])
def test_a_topic_that_was_made_anew_while_a_directory_was_out_of_service_is_served(later, tmp_path, caplog, exists):
    dirs = [tmp_path / "a", tmp_path / "b"]
    manager = opened(later, *dirs)
    made_now(manager, ONE).append_as_leader(batch_of(), 0)
    manager.close()
    (home,) = homes_of(ONE, *dirs)
    bring_back = without(home)
    manager = opened(later, *dirs)
    log = manager.get_or_create(ONE, None, OTHER_ID)
    log.append_as_leader(batch_of(0, 1), 0)
    manager.close()
    bring_back()
    manager = opened(later, *dirs, load=False)
    with pytest.raises(ConfigError, match="move one away"):
        manager.load(TOPICS)
    manager.close()
    manager = opened(later, *dirs, load=False)
    manager.load(TOPICS, lambda tp, topic_id: None if exists and topic_id == OTHER_ID else f"{tp} is none of ours")
    assert {tp: log.log_end_offset for tp, log in manager.logs.items()} == ({ONE: 2} if exists else {})
    (stray,) = home.glob("t-0*")
    assert re.fullmatch(r"t-0\.[0-9a-f]{32}-stray", stray.name)
    assert read_topic_id(stray) == ID
    assert (stray / f"{0:020d}.log").stat().st_size == len(batch_of())
    assert f"set aside as {stray.name}: t-0 is none of ours. Remove it" in caplog.text
    assert len(list(log.directory.parent.glob("t-0*-stray"))) == (not exists)
    manager.close()
    manager = opened(later, *dirs)
    assert set(manager.logs) == ({ONE} if exists else set())
    manager.close()


@pytest.mark.parametrize("step", ["rename", "fsync"])
def test_a_directory_that_keeps_what_is_to_go_is_out_of_service(later, tmp_path, step):
    dirs = [tmp_path / "a", tmp_path / "b"]
    _, other = left_of_a_making_beside_its_log(later, dirs)
    with FaultyFiles(other, fail_at=0, lasting=True, steps=(step,)):
        manager = opened(later, *dirs)
    assert [use.path for use in finish(manager.usage()) if use.failure] == [other]
    assert manager.logs[ONE].log_end_offset == 1
    manager.close()


def test_what_is_left_of_a_making_can_be_deleted(later, tmp_path):
    dirs = [tmp_path / "a", tmp_path / "b"]
    manager = opened(later, *dirs)
    with FaultyFiles(tmp_path, fail_at=1, lasting=True, error=errno.ENOSPC), pytest.raises(DiskFull):
        made_now(manager, ONE)
    (home,) = homes_of(ONE, *dirs)
    manager.delete(ONE)
    later.run()
    assert list(home.glob("t-0*")) == []
    made_now(manager, TWO)
    assert made_now(manager, ONE).directory.parent != home
    assert manager.unusable == {}
    manager.close()


def test_what_may_be_elsewhere_can_be_deleted(later, tmp_path):
    dirs = [tmp_path / "a", tmp_path / "b"]
    (dirs[0] / "t-0").mkdir(parents=True)
    dirs[1].write_text("no directory")
    manager = opened(later, *dirs)
    assert set(manager.unusable) == {ONE}
    manager.delete(ONE)
    later.run()
    assert list(dirs[0].glob("t-0*")) == []
    manager.close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_what_was_made_and_could_not_be_discarded_is_made_nowhere_else(later, tmp_path, error):
    dirs = [tmp_path / "a", tmp_path / "b"]
    manager = opened(later, *dirs)
    made = manager.plan([NewPartition(ONE, None, ID)])()
    home = made[ONE].path.parent
    with FaultyFiles(tmp_path, fail_at=0, lasting=True, error=error, steps=("rename",)):
        manager.discard(made)
    made_now(manager, TWO)
    if error == errno.EIO:
        with pytest.raises(LogError, match=f"its log directory {home} failed"):
            made_now(manager, ONE)
    else:
        assert made_now(manager, ONE).directory.parent == home
    assert homes_of(ONE, *dirs) == [home]
    manager.close()


def test_a_partition_whose_making_its_disk_failed_is_made_in_another_directory(later, tmp_path):
    dirs = [tmp_path / "a", tmp_path / "b"]
    manager = opened(later, *dirs)
    with FaultyFiles(tmp_path, fail_at=1, lasting=True), pytest.raises(LogDirFailed):
        made_now(manager, ONE)
    (home,) = homes_of(ONE, *dirs)
    log = made_now(manager, ONE)
    assert log.directory.parent != home
    log.append_as_leader(batch_of(), 0)
    manager.close()
    bring_back = without(log.directory.parent)
    manager = opened(later, *dirs)
    assert ONE not in manager.logs
    manager.close()
    bring_back()
    manager = opened(later, *dirs)
    assert manager.logs[ONE].log_end_offset == 1
    assert homes_of(ONE, *dirs) == [log.directory.parent]
    manager.close()


def test_what_the_disk_refuses_takes_its_directory_out_of_service_if_nobody_else_sees_to_it(later, tmp_path):
    manager = opened(later, tmp_path / "a", tmp_path / "b")
    log = manager.get_or_create(ONE, None, ID)
    manager.report(LogDirFailed("it has burnt"), log.directory)
    assert ONE not in manager.logs
    assert {use.path: use.failure for use in finish(manager.usage())} == {
        path: "it has burnt" if path == log.directory.parent else None for path in (tmp_path / "a", tmp_path / "b")
    }
    manager.close()


def rolled(later, home, **settings):
    """A manager whose partition has three segments, of which retention wants the last alone."""
    manager = opened(later, home)
    log = manager.get_or_create(ONE, parse(TopicConfig, {"retention.bytes": "0", **settings}), ID)
    for _ in range(3):
        log.append_as_leader(batch_of(1, 2), 0)
        log.roll()
    return manager


def test_deleted_segments_stay_on_the_disk_for_their_delay(later, tmp_path):
    manager = rolled(later, tmp_path, **{"file.delete.delay.ms": "1000"})
    manager.delete_old_segments(ONE, 6)
    assert manager.logs[ONE].log_start_offset == 6
    doomed = set((tmp_path / "t-0").glob("*.deleted"))
    assert {path.name for path in doomed} >= {f"{offset:020d}.log.deleted" for offset in (0, 2, 4)}
    manager._clock.advance(0.999)
    list(manager.unlink_due())
    assert set((tmp_path / "t-0").glob("*.deleted")) == doomed
    min(doomed).unlink()  # somebody was faster
    manager._clock.advance(0.001)
    list(manager.unlink_due())
    assert not list((tmp_path / "t-0").glob("*.deleted"))
    manager.close()


def test_deleted_segments_wait_no_longer_when_the_wall_clock_is_set_back(later, tmp_path):
    manager = rolled(later, tmp_path, **{"file.delete.delay.ms": "1000"})
    manager.delete_old_segments(ONE, 6)
    manager._clock.set_wall(0)
    manager._clock.advance(1)
    list(manager.unlink_due())
    assert not list((tmp_path / "t-0").glob("*.deleted"))
    manager.close()


def test_what_a_removal_that_was_broken_off_has_left_goes_with_the_next(later, tmp_path):
    manager = rolled(later, tmp_path, **{"file.delete.delay.ms": "0"})
    manager.delete_old_segments(ONE, 6)
    doomed = set((tmp_path / "t-0").glob("*.deleted"))
    removal = manager.unlink_due()
    next(removal)
    removal.close()
    assert len(set((tmp_path / "t-0").glob("*.deleted"))) == len(doomed) - 1 > 0
    finish(manager.unlink_due())
    assert not list((tmp_path / "t-0").glob("*.deleted"))
    manager.close()


def test_a_file_that_cannot_be_removed_is_the_failure_of_its_directory(later, tmp_path):
    manager = rolled(later, tmp_path, **{"file.delete.delay.ms": "0"})
    failures = []
    manager.on_failure = lambda path, reason: failures.append((path, reason))
    manager.delete_old_segments(ONE, 2)
    (doomed,) = (tmp_path / "t-0").glob("*.log.deleted")
    doomed.unlink()
    doomed.mkdir()
    list(manager.unlink_due())
    ((path, reason),) = failures
    assert path == tmp_path
    assert reason.startswith(f"cannot remove {doomed}: ")
    list(manager.unlink_due())
    assert len(failures) == 1, "it is not tried again"
    manager.close()


def test_what_has_waited_for_its_time_is_flushed_in_the_background(later, tmp_path):
    manager = opened(later, tmp_path)
    soon, late = (
        manager.get_or_create(tp, parse(TopicConfig, {"flush.ms": ms}), ID) for tp, ms in ((ONE, "100"), (TWO, "900"))
    )
    for log in (soon, late):
        log.append_as_leader(batch_of(1), 0)
    manager._clock.advance(0.1)
    manager.flush_due()
    assert (soon.recovery_point, late.recovery_point) == (0, 0)
    later.run()
    assert (soon.recovery_point, late.recovery_point) == (1, 0)
    manager.close()


def test_what_is_unflushed_waits_no_longer_when_the_wall_clock_is_set_back(later, tmp_path):
    manager = opened(later, tmp_path)
    log = manager.get_or_create(ONE, parse(TopicConfig, {"flush.ms": "100"}), ID)
    log.append_as_leader(batch_of(1), 0)
    manager._clock.set_wall(0)
    manager._clock.advance(0.1)
    manager.flush_due()
    later.run()
    assert log.recovery_point == 1
    manager.close()


def test_how_long_producers_are_remembered_holds_for_all_logs_and_those_to_come(later, tmp_path):
    manager = opened(later, tmp_path)
    manager.get_or_create(ONE, None, ID)
    manager.remember_producers(1000)
    manager.get_or_create(TWO, None, ID)
    for log in manager.logs.values():
        log.append_as_leader(transactional(7, 0), 0, AppendOrigin.COORDINATOR)
        log.append_as_leader(marker_of(7, ControlType.COMMIT), 0, AppendOrigin.COORDINATOR)
    manager._clock.advance(0.999)
    list(manager.expire_producers())
    assert [log.producer_count for log in manager.logs.values()] == [1, 1]
    manager._clock.advance(0.001)
    list(manager.expire_producers())
    assert [log.producer_count for log in manager.logs.values()] == [0, 0]
    manager.close()


def test_what_was_opened_is_said_with_what_it_cost(later, tmp_path, caplog):
    manager = filled(later, tmp_path)
    size = sum(log.size for log in manager.logs.values())
    crash(manager)
    with open(tmp_path / "t-0" / f"{0:020d}.log", "ab") as file:
        file.write(b"\0" * 7)
    (tmp_path / "gone-0").mkdir()
    (tmp_path / "gone-0" / "partition.metadata").write_text("garbage")
    with caplog.at_level(logging.INFO):
        opened(later, tmp_path).close()
    (said,) = (line for line in caplog.messages if line.startswith("opened "))
    assert said == f"opened 2 logs in 0.0 s; {size // 1_000_000} MB scanned, 7 bytes dropped, 1 logs unusable"


def test_nothing_is_said_after_a_clean_stop(later, tmp_path, caplog):
    filled(later, tmp_path).close()
    with caplog.at_level(logging.INFO):
        opened(later, tmp_path).close()
    assert not [line for line in caplog.messages if line.startswith("opened ")]


def test_checkpoints_are_written_in_the_background_as_they_stand_then(later, tmp_path):
    manager = filled(later, tmp_path)
    manager.checkpoint_later()
    manager.logs[ONE].flush()
    later.run()
    assert read_offsets(tmp_path / RECOVERY_POINTS) == {ONE: 6, TWO: 0}
    ((path, write),) = manager.checkpoints()
    assert path == tmp_path / RECOVERY_POINTS
    manager.logs[TWO].flush()
    write()
    assert read_offsets(path) == {ONE: 6, TWO: 6}
    manager.close()


def test_what_fails_in_the_background_is_told_and_harms_no_directory(later, tmp_path, caplog, monkeypatch):
    manager = filled(later, tmp_path)

    def fails(_):
        raise ValueError("a mistake of ours")

    monkeypatch.setattr(Log, "flush", fails)
    monkeypatch.setattr(Log, "flush_is_due", lambda *_: True)
    manager.flush_due()
    later.run()
    assert "a disk operation failed" in caplog.text
    assert "a mistake of ours" in caplog.text
    assert manager.dirs.in_service
    monkeypatch.undo()
    manager.close()


def test_a_truncation_is_in_the_checkpoint_before_anything_is_cut(later, tmp_path, monkeypatch):
    manager = filled(later, tmp_path)
    log = manager.logs[ONE]
    log.flush()
    manager.checkpoint()
    seen, cut = [], Log.truncate_to

    def noted(self, offset):
        seen.append((offset, read_offsets(tmp_path / RECOVERY_POINTS)[ONE]))
        cut(self, offset)

    monkeypatch.setattr(Log, "truncate_to", noted)
    for offset in (6, 4, 4):
        manager.truncate_to(ONE, offset)
    assert seen == [(6, 6), (4, 4), (4, 4)]
    assert (log.log_end_offset, log.recovery_point) == (4, 4)
    manager.close()


def test_a_start_beyond_the_end_is_refused_and_changes_nothing(later, tmp_path):
    manager = filled(later, tmp_path)
    with pytest.raises(LogError, match="t-0 ends at 6; it cannot begin at 7"):
        manager.advance_start(ONE, 7)
    assert manager.logs[ONE].log_start_offset == 0
    manager.advance_start(ONE, 6)
    assert manager.logs[ONE].log_start_offset == 6
    manager.close()


def test_the_topic_of_a_partition_is_known_also_of_one_that_cannot_be_used(later, tmp_path):
    filled(later, tmp_path).close()
    (tmp_path / "t-0" / f"{0:020d}.index").unlink()
    (tmp_path / "t-0" / f"{0:020d}.index").mkdir()
    manager = opened(later, tmp_path)
    assert set(manager.unusable) == {ONE}
    assert [manager.topic_id(tp) for tp in (ONE, TWO, TopicPartition("t", 1))] == [ID, ID, None]
    (tmp_path / "t-0" / "partition.metadata").write_text("garbage")
    assert manager.topic_id(ONE) is None
    manager.close()


def test_one_directory_may_crash_alone(later, tmp_path):
    manager = opened(later, tmp_path / "a", tmp_path / "b")
    for number in range(2):
        log = manager.get_or_create(TopicPartition("t", number), None, None)
        log.append_as_leader(batch_of(), 0)
        expected = whole(log)
    manager.close()
    (tmp_path / "b" / ".kafka_cleanshutdown").unlink()
    manager = opened(later, tmp_path / "a", tmp_path / "b")
    assert [whole(log) for log in manager.logs.values()] == [expected] * len(manager.logs)
    manager.close()


class Uncounted(dict[TopicPartition, Log]):
    """Logs that nobody may look through."""

    def values(self):
        raise AssertionError("each slice of new partitions would cost a look at all that there are")

    items = __iter__ = values


def test_a_partition_is_planned_without_a_look_at_all_others(later, tmp_path):
    def homes(manager, *numbers):
        manager.logs, logs = Uncounted(manager.logs), manager.logs
        made = manager.plan([NewPartition(TopicPartition("t", number), None, None) for number in numbers])()
        manager.logs = logs
        for tp, each in made.items():
            manager.get_or_create(tp, None, None, made=each)
        return [each.path.parent for each in made.values()]

    a, b = tmp_path / "a", tmp_path / "b"
    manager = opened(later, a, b)
    assert sorted(homes(manager, 0, 1, 2)) == [a, a, b]
    assert homes(manager, 3) == [b]
    in_b = [tp for tp, log in manager.logs.items() if log.directory.parent == b]
    for tp in in_b:
        manager.delete(tp)
    assert homes(manager, 4) == [b]
    manager.close()
    later.run()
    manager = opened(later, a, b)
    assert homes(manager, 5) == [b]
    assert sorted(homes(manager, 6, 7)) == [a, b]
    manager.close()


def test_the_use_of_directories_is_told_in_steps(later, tmp_path, monkeypatch):
    monkeypatch.setattr("sparklog.log.directories.usage._SLICE", 2)
    manager = opened(later, tmp_path)
    partitions = [TopicPartition("t", number) for number in range(5)]
    for tp in partitions:
        manager.get_or_create(tp, None, None)
    steps = manager.usage()
    next(steps)
    manager.delete(partitions[-1])
    number, (use,) = counted(steps)
    assert number == 1
    assert sorted(use.partitions) == partitions[:-1]
    manager.close()


def test_the_use_of_each_directory_is_told_also_of_one_that_failed(later, tmp_path):
    good, bad = tmp_path / "good", tmp_path / "bad"
    manager = opened(later, good, bad)
    for tp in (ONE, TWO):
        manager.get_or_create(tp, None, ID).append_as_leader(batch_of(), 0)
    sizes = {use.path: dict(use.partitions) for use in finish(manager.usage())}
    assert sorted(sizes) == [bad, good]
    assert {tp: size for each in sizes.values() for tp, size in each.items()} == {
        ONE: LogUse(len(batch_of())),
        TWO: LogUse(len(batch_of())),
    }
    assert all(0 < use.usable_bytes <= use.total_bytes and use.failure is None for use in finish(manager.usage()))
    manager.fail(bad, "cable pulled")
    kept, lost = finish(manager.usage())
    assert (kept.path, kept.failure, dict(kept.partitions)) == (good, None, sizes[good])
    assert (lost.path, lost.failure, dict(lost.partitions), lost.total_bytes) == (bad, "cable pulled", {}, -1)
    good.rename(tmp_path / "gone")
    assert "No such file" in finish(manager.usage())[0].failure
    (tmp_path / "gone").rename(good)
    manager.close()


def test_what_is_made_ahead_and_not_wanted_leaves_nothing_and_takes_nothing_that_was_there(later, tmp_path):
    manager = opened(later, tmp_path)
    (tmp_path / "t-0").mkdir()  # what an attempt left for which there was no room
    made = manager.plan([NewPartition(tp, None, ID, 3) for tp in (ONE, TWO)])()
    assert {tp: (each.is_fresh, each.error) for tp, each in made.items()} == {ONE: (False, None), TWO: (True, None)}
    assert manager.logs == {}
    manager.discard(made)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["t-0"]
    assert manager.get_or_create(TWO, None, OTHER_ID).topic_id == OTHER_ID
    manager.close()


def test_what_is_made_ahead_has_its_topic_and_its_epoch_on_the_disk(later, tmp_path):
    manager = opened(later, tmp_path)
    made = manager.plan([NewPartition(ONE, None, ID, 3)])()[ONE]
    assert (made.log.topic_id, read_topic_id(made.path), made.log.epochs.latest) == (ID, ID, (3, 0))
    assert (made.path / "leader-epoch-checkpoint").read_text() == "0\n1\n3 0\n"
    manager.discard({ONE: made})
    manager.close()


def test_partitions_made_together_go_where_the_fewest_are(later, tmp_path):
    manager = opened(later, tmp_path / "a", tmp_path / "b")
    manager.get_or_create(ONE, None, ID)
    partitions = [TopicPartition("new", number) for number in range(5)]
    made = manager.plan([NewPartition(tp, None, ID) for tp in (ONE, *partitions)])()
    assert list(made) != []
    assert ONE not in made
    for tp in partitions:
        manager.get_or_create(tp, None, ID, made=made[tp])
    held = [sum(log.directory.parent == tmp_path / name for log in manager.logs.values()) for name in "ab"]
    assert held == [3, 3]
    manager.close()


def test_of_what_has_left_it_is_forgotten_how_far_it_was_cleaned(later, tmp_path):
    manager = filled(later, tmp_path)
    for tp in (ONE, TWO):
        manager.set_cleaner_point(tp, 3)
    home = manager.dirs.of(manager.logs[ONE].directory)
    manager.depart(ONE, None)
    assert (home.cleaner_points.of(ONE), home.cleaner_points.of(TWO)) == (None, 3)
    manager.close()


def test_what_has_left_a_directory_counts_there_no_longer(later, tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    manager = opened(later, a, b)
    first, rest = [TopicPartition("t", number) for number in range(8)], [TopicPartition("u", n) for n in range(3)]
    for tp in first:
        manager.get_or_create(tp, None, ID)
    manager.depart(next(tp for tp in first if manager.logs[tp].directory.parent == a), None)
    for tp in rest:
        manager.get_or_create(tp, None, ID)
    held = [sum(log.directory.parent == home for log in manager.logs.values()) for home in (a, b)]
    assert held == [5, 5]
    manager.close()


@pytest.mark.parametrize(
    ("epoch", "is_new", "is_told"), [(1, False, True), (0, False, True), (0, True, False), (-1, False, False)]
)
def test_a_partition_that_is_led_and_lacks_all_that_it_had_is_told_of(later, tmp_path, caplog, epoch, is_new, is_told):
    """A disk is not mounted. Who follows copies what lacks."""
    manager = opened(later, tmp_path)
    asked = [NewPartition(TopicPartition("t", number), None, ID, epoch, is_new) for number in range(5)]
    manager.plan(asked)()
    said = f"5 partition(s) that this broker leads and that are not new, so they begin empty in {tmp_path}: t-0, t-1, "
    assert (said in caplog.text) == is_told
    caplog.clear()
    manager.plan([each._replace(is_new=False, leader_epoch=1) for each in asked])()
    assert "nothing is here" not in caplog.text, "what is there is not made"


@pytest.mark.parametrize(("name", "stays"), [(str(ONE), False), ("other-0", True)])
def test_a_deleted_partition_that_was_a_link_goes_with_what_has_its_name(later, tmp_path, name, stays):
    filled(later, tmp_path / "home").close()
    elsewhere = (tmp_path / "home" / str(ONE)).rename(tmp_path / name)
    (tmp_path / "home" / str(ONE)).symlink_to(elsewhere)
    manager = opened(later, tmp_path / "home")
    manager.delete(ONE)
    later.run()
    assert elsewhere.exists() == stays
    assert not [path for path in (tmp_path / "home").iterdir() if path.name.endswith("-delete")]
    assert (len(manager.dirs.failed), set(manager.logs)) == (0, {TWO})
    manager.close()


@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOTEMPTY, errno.EBUSY])
def test_what_cannot_be_removed_of_a_deleted_partition_is_left_and_told_of(later, tmp_path, caplog, error):
    """A file that a person has made immutable, one that another program makes meanwhile, a mount point."""
    manager = filled(later, tmp_path)
    manager.delete(ONE)
    with FaultyFiles(tmp_path, fail_at=0, error=error, lasting=True, steps=("unlink", "rmdir")):
        later.run()
    assert f"is left of a deleted partition and cannot be removed: {os.strerror(error)}" in caplog.text
    assert (len(manager.dirs.failed), set(manager.logs)) == (0, {TWO})
    manager.close()
    opened(later, tmp_path).close()
    assert not [path for path in tmp_path.iterdir() if path.name.endswith("-delete")]
