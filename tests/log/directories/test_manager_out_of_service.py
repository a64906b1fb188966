"""Directories that a manager goes on without, from the first look at them to the last."""

import errno
import fcntl
import os
import threading
from pathlib import Path

import pytest
from log.directories.test_manager import ID, ONE, WAIT_S, Later, crash
from log.samples import batch_of

from sparklog.config.topic import TopicConfig
from sparklog.errors import ConfigError, LogDirFailed
from sparklog.log.directories import moved
from sparklog.log.directories.clean_stop import unbroken_since, write_marker
from sparklog.log.directories.manager import LogManager
from sparklog.log.directories.privacy import require_private
from sparklog.log.loader import Knowledge
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.files import FaultyFiles
from sparklog.testing.steps import finish

MARKER = ".kafka_cleanshutdown"


@pytest.fixture
def dirs(tmp_path):
    return [tmp_path / "a", tmp_path / "b"]


def locked(dirs, **how):
    return LogManager(dirs, TopicConfig(), ManualClock(), Later(), **how)


def opened(dirs, **how):
    logs = locked(dirs, **how)
    logs.own("cluster", 1)
    logs.load({})
    return logs


def failures_of(logs):
    return {use.path: use.failure for use in finish(logs.usage()) if use.failure}


def test_a_directory_that_cannot_be_used_is_gone_on_without(dirs, caplog):
    dirs[1].write_text("no directory")
    logs = locked(dirs)
    assert failures_of(logs) == {dirs[1]: f"cannot use log directory {dirs[1]}: File exists"}
    assert (len(logs.dirs.failed), len(logs.dirs.in_service)) == (1, 1)
    assert f"log directory {dirs[1]} is out of service until the broker is started again: cannot use" in caplog.text
    logs.close()


def test_a_directory_whose_lock_the_disk_refuses_is_not_another_brokers(dirs, monkeypatch):
    """A broker of one disk that fails would not start, and its operator look for another broker."""
    flock = fcntl.flock

    def refuse(fd, operation):
        if os.readlink(f"/proc/self/fd/{fd}") == str(dirs[1] / ".lock"):
            raise OSError(errno.ENOLCK, "No locks available")
        flock(fd, operation)

    monkeypatch.setattr("fcntl.flock", refuse)
    logs = locked(dirs)
    assert failures_of(logs) == {dirs[1]: f"cannot lock log directory {dirs[1]}: No locks available"}
    logs.close()


def test_a_slow_disk_does_not_keep_the_others_from_a_stop_in_order(dirs, monkeypatch):
    """A stop has so much time; what is not closed by then has to be recovered."""
    logs = opened(dirs)
    is_closed, slow_saw_it = threading.Event(), []

    def mark(path, stop):
        if path == dirs[0]:
            slow_saw_it.append(is_closed.wait(WAIT_S))
        write_marker(path, stop)
        if path == dirs[1]:
            is_closed.set()

    monkeypatch.setattr("sparklog.log.directories.directory.write_marker", mark)
    logs.close()
    assert slow_saw_it == [True]
    assert all((path / MARKER).exists() for path in dirs)


def test_a_lock_that_may_not_be_opened_is_named(dirs, monkeypatch):
    opening = os.open

    def refuse(path, *how):
        if path == dirs[1] / ".lock":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opening(path, *how)

    monkeypatch.setattr("os.open", refuse)
    logs = locked(dirs)
    (why,) = failures_of(logs).values()
    assert why == f"cannot use log directory {dirs[1]}: Permission denied ({dirs[1] / '.lock'})"
    logs.close()


def test_what_is_asked_of_all_directories_spares_those_whose_disk_says_nothing(dirs, monkeypatch):
    """As of a disk that is gone from under its file system: even the look at a name fails."""
    opened(dirs).close()
    look = Path.stat

    def refuse(path, **how):
        if path.is_relative_to(dirs[1]):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return look(path, **how)

    monkeypatch.setattr(Path, "stat", refuse)
    logs = locked(dirs)
    logs.own("cluster", 1)
    logs.load({})
    assert list(failures_of(logs)) == [dirs[1]]
    require_private([path for path in dirs if path != dirs[0]])
    assert unbroken_since(dirs) is None
    logs.close()


def test_without_any_directory_there_is_no_manager(dirs):
    for path in dirs:
        path.write_text("no directory")
    with pytest.raises(LogDirFailed) as refused:
        locked(dirs)
    why = [f"cannot use log directory {path}: File exists" for path in dirs]
    assert str(refused.value).endswith(f"no log directory can be used: {why[0]}; {why[1]}")
    with pytest.raises(LogDirFailed, match=f"cannot use log directory {dirs[0]}: File exists$"):
        locked(dirs[:1])


def test_a_directory_that_cannot_be_claimed_is_gone_on_without(dirs):
    logs = locked(dirs)
    with FaultyFiles(dirs[0], fail_at=0, error=errno.EROFS):
        logs.own("cluster", 1)
    assert failures_of(logs)[dirs[0]].startswith(f"cannot claim log directory {dirs[0]}: Read-only file system")
    logs.load({})
    assert logs.get_or_create(ONE, None, ID).directory.parent == dirs[1]
    logs.close()


def test_where_no_directory_can_be_claimed_that_is_the_end(dirs):
    logs = locked(dirs[:1])
    with (
        FaultyFiles(dirs[0], fail_at=0, error=errno.EROFS),
        pytest.raises(LogDirFailed, match=f"no log directory can be used: cannot claim log directory {dirs[0]}"),
    ):
        logs.own("cluster", 1)


def test_anothers_directory_is_not_gone_on_without(dirs):
    opened(dirs[1:]).close()
    logs = locked(dirs)
    with pytest.raises(ConfigError, match=r"belongs to cluster\.id=cluster, not other"):
        logs.own("other", 1)
    logs.close()


@pytest.mark.parametrize("step", ["scandir", "unlink"])
def test_a_directory_that_cannot_be_looked_through_is_gone_on_without(dirs, step):
    opened(dirs).close()
    logs = locked(dirs)
    with FaultyFiles(dirs[0], fail_at=0, lasting=True, steps=(step,)):
        logs.load({})
    assert failures_of(logs)[dirs[0]].startswith(f"cannot use log directory {dirs[0]}: Input/output error")
    assert [log_dir.path for log_dir in logs.dirs.in_service] == [dirs[1]]
    logs.close()


def test_where_no_directory_can_be_looked_through_that_is_the_end(dirs):
    opened(dirs[:1]).close()
    logs = locked(dirs[:1])
    with (
        FaultyFiles(dirs[0], fail_at=0, lasting=True, steps=("unlink",)),
        pytest.raises(LogDirFailed, match=f"no log directory can be used: cannot use log directory {dirs[0]}"),
    ):
        logs.load({})


def test_partitions_of_a_directory_that_fails_are_not_served_and_say_why(dirs, caplog):
    logs = opened(dirs)
    homes = {}
    for number in range(4):
        tp = TopicPartition("t", number)
        homes[tp] = logs.get_or_create(tp, None, ID).directory.parent
    lost = {tp for tp, home in homes.items() if home == dirs[0]}
    held = {tp: logs.logs[tp] for tp in lost}
    logs.fail(dirs[0], "it has burnt")
    logs.fail(dirs[0], "again")
    assert [line.partition(": ")[2] for line in caplog.messages] == ["it has burnt; 2 partition(s) go with it"]
    assert set(logs.logs) == set(homes) - lost
    assert logs.unusable == dict.fromkeys(lost, f"its log directory {dirs[0]} failed: it has burnt")
    assert failures_of(logs) == {dirs[0]: "it has burnt"}
    for log in held.values():
        log.write_epochs()
        with pytest.raises(Exception, match="is closed"):
            log.append_as_leader(batch_of(1), 0)
    locked(dirs[:1]).close()  # its lock is let go
    logs.close()


def test_a_directory_that_was_not_closed_in_order_bears_no_marker_and_says_so(dirs, caplog):
    logs = opened(dirs)
    for number in range(2):
        logs.get_or_create(TopicPartition("t", number), None, ID).append_as_leader(batch_of(1), 0)
    with FaultyFiles(dirs[0], fail_at=0, lasting=True):
        logs.close()
    assert [(path / MARKER).exists() for path in dirs] == [False, True]
    assert f"{dirs[0]} was not closed in order, so its logs are recovered next time: cannot" in caplog.text
    logs = opened(dirs)
    assert sorted(logs.logs) == [TopicPartition("t", 0), TopicPartition("t", 1)]
    logs.close()


def with_a_move_to_finish(dirs):
    """Closed logs, of which one was moved to its directory, which is returned; what it was moved from is gone."""
    logs = opened(dirs)
    log = logs.get_or_create(ONE, None, ID)
    log.append_as_leader(batch_of(1), 0)
    moved.mark(log.directory)
    logs.close()
    return log.directory


def test_a_move_is_over_when_the_directories_are_all_there(dirs):
    directory = with_a_move_to_finish(dirs)
    (other,) = set(dirs) - {directory.parent}
    other.rename(other.with_name("away"))
    other.write_text("no directory")
    opened(dirs).close()
    assert moved.is_marked(directory), "the log that it was copied from may be in the one that is away"
    other.unlink()
    other.with_name("away").rename(other)
    logs = opened(dirs)
    assert not moved.is_marked(directory)
    assert logs.logs[ONE].log_end_offset == 1
    logs.close()


def test_a_move_that_cannot_be_finished_is_the_failure_of_its_directory(dirs):
    directory = with_a_move_to_finish(dirs)
    mark = directory / moved.MARK
    mark.unlink()
    mark.mkdir()  # which the system does not unlink, and says so with its name
    logs = locked(dirs)
    logs.load({})
    assert failures_of(logs).keys() == {directory.parent}
    assert failures_of(logs)[directory.parent].startswith("cannot finish moving a partition: ")
    assert (ONE in logs.logs, len(logs.dirs.in_service)) == (False, 1)
    logs.close()


def test_a_move_that_cannot_be_finished_nobody_knows_where_is_the_end(dirs):
    directory = with_a_move_to_finish(dirs)
    logs = locked(dirs)
    with (
        FaultyFiles(directory.parent, fail_at=0, lasting=True, steps=("unlink",)),
        pytest.raises(LogDirFailed, match="cannot finish moving a partition: Input/output error"),
    ):
        logs.load({})
    logs.close()


def test_a_copy_that_nothing_can_come_of_is_removed_when_the_manager_starts_and_another_is_kept(dirs):
    logs = opened(dirs)
    logs.get_or_create(ONE, None, ID)
    home = logs.logs[ONE].directory.parent
    (other,) = set(dirs) - {home}
    logs.close()
    useless, useful = home / f"t-0.{'1' * 32}-future", other / f"t-0.{'2' * 32}-future"
    for path in (useless, useful):
        path.mkdir()
    logs = opened(dirs)
    assert (useless.exists(), logs.dormant) == (False, {ONE: useful})
    logs.close()


@pytest.mark.parametrize("threads", [1, 3])
def test_every_partition_is_opened_and_closed_whatever_the_threads(dirs, threads):
    logs = opened(dirs[:1], recovery_threads=threads)
    partitions = [TopicPartition("t", number) for number in range(7)]
    for tp in partitions:
        logs.get_or_create(tp, None, ID).append_as_leader(batch_of(1), 0)
    logs.close()
    logs = opened(dirs[:1], recovery_threads=threads)
    assert sorted(logs.logs) == partitions
    assert all(log.scanned_bytes == 0 for log in logs.logs.values())
    logs.close()


def test_logs_that_are_made_are_known_as_by_default(dirs):
    logs = opened(dirs[:1], defaults=Knowledge(producer_expiration_ms=7))
    assert logs.get_or_create(ONE, None, ID)._producers.expiration_ms == 7
    logs.close()
    logs = opened(dirs[:1], defaults=Knowledge(producer_expiration_ms=8))
    assert logs.logs[ONE]._producers.expiration_ms == 8
    crash(logs)
