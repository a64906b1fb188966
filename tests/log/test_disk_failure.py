"""Several log directories, and disks that fail: each alone, and never silently."""

import asyncio
import errno
import os
import shutil
import struct
import threading
import zlib
from collections import Counter
from concurrent.futures import Executor, Future
from contextlib import suppress
from types import SimpleNamespace

import pytest
from log.samples import SMALL, abandon, batch_of, whole

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, ConfigError, DiskFull, ErrorCode, LogDirFailed, LogError
from sparklog.log import log as log_module
from sparklog.log.directories import manager as manager_module
from sparklog.log.directories.directory import LogDir
from sparklog.log.directories.manager import LogManager
from sparklog.log.files import sync_directory
from sparklog.log.log import Log
from sparklog.replica.manager import ReplicaManager
from sparklog.structs import IsolationLevel, TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.files import FaultyFiles
from sparklog.testing.steps import finish
from sparklog.zk.znodes import PartitionState

ME = 1
CONFIG = parse(TopicConfig, SMALL | {"retention.ms": "1000", "file.delete.delay.ms": "0", "flush.ms": "5000"})
PARTITIONS = [TopicPartition("t", number) for number in range(6)]
OURS, NEW = PARTITIONS[0], TopicPartition("new", 0)
MEETING_S = 10.0
MARKER = ".kafka_cleanshutdown"


class Later(Executor):
    """Runs what was submitted when it is told to."""

    def __init__(self):
        self.waiting = []

    def submit(self, call, /, *args, **kwargs):
        self.waiting.append((call, args))
        return Future()

    def run(self):
        while self.waiting:
            call, args = self.waiting.pop(0)
            call(*args)


@pytest.fixture
def homes(tmp_path):
    return [tmp_path / name for name in "abc"]


@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def start(homes, loop):
    """Opens the directories as a broker does: the logs, the replicas over them, and which disks failed.

    What a failure means is done later, with ``settle``, as in a broker whose loop is busy.
    """
    running: list[LogManager] = []

    def start(**how):
        later, clock, failures = Later(), ManualClock(), []
        logs = LogManager(homes, CONFIG, clock, later, **how)
        running.append(logs)
        logs.own("cluster", ME)
        logs.load({OURS.topic: CONFIG})

        logs.on_failure = lambda *failure: failures.append(failure)
        replicas = ReplicaManager(ME, logs, loop)
        return SimpleNamespace(logs=logs, replicas=replicas, later=later, clock=clock, failures=failures)

    yield start
    for logs in running:
        for log in logs.logs.values():
            abandon(log)


@pytest.fixture
def broker(start):
    """Two partitions a directory, led here, four batches in each."""
    broker = start()
    for tp in PARTITIONS:
        assert lead(broker, tp) is ErrorCode.NONE
        for _ in range(4):
            append(broker, tp)
    broker.later.run()
    return broker


def lead(broker, tp, epoch=0, *, is_new=True):
    return broker.replicas.apply(tp, PartitionState(ME, epoch, (ME,), 1), CONFIG, None, is_new=is_new)


def append(broker, tp):
    return broker.replicas.append(tp, batch_of(1000, size=100), -1)


def fetch(broker, tp, offset=0):
    return broker.replicas.read(tp, None, offset, 1 << 20, IsolationLevel.READ_UNCOMMITTED, min_one_batch=True)


def home_of(broker, tp):
    return broker.logs.logs[tp].directory.parent


def crash(broker):
    """What a killed process leaves: the locks go, nothing else happens."""
    for log in broker.logs.logs.values():
        abandon(log)
    for log_dir in broker.logs.dirs.in_service:
        log_dir.close()
    broker.logs.logs.clear()


def settle(broker):
    for failure in broker.failures:
        broker.logs.fail(*failure)
    broker.replicas.forget_unusable()


# Opening


def test_the_directories_are_opened_at_the_same_time(broker, start, monkeypatch):
    broker.logs.close()
    meet_in(monkeypatch, threading.Barrier(3))
    assert sorted(start().logs.logs) == PARTITIONS


@pytest.mark.parametrize("threads", [1, 2])
def test_as_many_logs_of_a_directory_are_opened_at_a_time_as_there_are_recovery_threads(
    broker, start, monkeypatch, threads
):
    broker.logs.close()
    seen = meet_in(monkeypatch, threading.Barrier(3 * threads))
    assert sorted(start(recovery_threads=threads).logs.logs) == PARTITIONS
    assert max(seen) == threads


def meet_in(monkeypatch, barrier):
    """No log is opened before as many are being opened as the barrier wants. How many were at a time, a directory."""
    opening, seen, lock = [], [], threading.Lock()

    def open_slowly(path, *args, **named):
        with lock:
            opening.append(path.parent)
            seen.append(opening.count(path.parent))
        barrier.wait(MEETING_S)
        with lock:
            opening.remove(path.parent)
        return Log(path, *args, **named)

    monkeypatch.setattr(manager_module, "Log", open_slowly)
    return seen


def no_directory(home):
    os.rename(home, home.with_name(f"{home.name}-elsewhere"))
    home.touch()


def no_access(home):
    (home / "meta.properties").unlink()
    (home / "meta.properties").mkdir()


def no_checkpoint(home):
    (home / "recovery-point-offset-checkpoint").unlink()
    (home / "recovery-point-offset-checkpoint").mkdir()


@pytest.mark.parametrize("break_it", [no_directory, no_access, no_checkpoint])
def test_a_directory_that_cannot_be_used_at_the_start_is_out_of_service_alone(broker, start, homes, caplog, break_it):
    there = {tp for tp in PARTITIONS if home_of(broker, tp) == homes[1]}
    broker.logs.close()
    break_it(homes[1])
    broker = start()
    assert set(broker.logs.logs) == set(PARTITIONS) - there
    assert f"log directory {homes[1]} is out of service until the broker is started again" in caplog.text
    for tp in there:  # a controller that took office meanwhile may take for new what nobody has written to since
        assert lead(broker, tp, is_new=True) is ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(ApiError, match=str(homes[1])) as caught:
            append(broker, tp)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert append_everywhere(broker) == set(PARTITIONS) - there
    assert lead(broker, NEW) is ErrorCode.NONE
    assert home_of(broker, NEW) != homes[1]
    broker.logs.close()
    assert [(home / MARKER).exists() for home in (homes[0], homes[2])] == [True, True]
    assert "cannot open" not in caplog.text, "of its partitions one by one"


def test_a_topic_that_is_made_again_is_new_whatever_is_out_of_service(broker, start, homes):
    (lost, *_) = (tp for tp in PARTITIONS if home_of(broker, tp) == homes[1])
    broker.logs.close()
    no_directory(homes[1])
    broker = start()
    broker.replicas.stop(lost, delete=True)
    assert lead(broker, lost, is_new=True) is ErrorCode.NONE


@pytest.mark.parametrize("step", range(6))
def test_a_disk_that_fails_while_its_logs_are_opened_is_out_of_service_alone(broker, start, homes, step):
    there = {tp for tp in PARTITIONS if home_of(broker, tp) == homes[1]}
    broker.logs.close()
    with FaultyFiles(homes[1], fail_at=step, lasting=True, steps=["open"]) as files:
        broker = start()
        assert files.count > step
        assert set(broker.logs.logs) == set(PARTITIONS) - there
        assert append_everywhere(broker) == set(PARTITIONS) - there
        for tp in there:
            assert lead(broker, tp) is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("break_it", [no_directory, no_access, no_checkpoint])
def test_a_broker_without_any_directory_does_not_start(broker, start, homes, break_it):
    broker.logs.close()
    for home in homes:
        break_it(home)
    with pytest.raises(LogDirFailed, match="no log directory can be used") as caught:
        start()
    assert [str(home) in str(caught.value) for home in homes] == [True] * 3


def test_a_partition_in_two_directories_is_refused(broker, start, homes, monkeypatch):
    home = home_of(broker, OURS)
    other = next(each for each in homes if each != home)
    broker.logs.close()
    shutil.copytree(home / str(OURS), other / str(OURS))
    # Each has looked before either has opened a log: what one finds in the other is no matter of who comes first.
    barrier, real = threading.Barrier(3), LogDir.partitions

    def look_together(log_dir):
        barrier.wait(MEETING_S)
        return real(log_dir)

    monkeypatch.setattr(LogDir, "partitions", look_together)
    with pytest.raises(ConfigError, match=f"{OURS} is both in .*: move one away") as caught:
        start()
    assert str(home / str(OURS)) in str(caught.value)
    assert str(other / str(OURS)) in str(caught.value)


# Failing


def while_appending(broker):
    with pytest.raises(ApiError) as caught:
        append(broker, OURS)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def while_reading(broker):
    with pytest.raises(ApiError) as caught:
        fetch(broker, OURS)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def while_flushing(broker):
    broker.clock.advance(6)
    broker.logs.flush_due()
    broker.later.run()


def while_flushing_what_was_rolled(broker):
    broker.logs.logs[OURS].roll()
    broker.later.run()


def while_checkpointing(broker):
    broker.logs.checkpoint_later()
    broker.later.run()


def while_applying_retention(broker):
    broker.clock.advance(10)
    finish(broker.replicas.apply_retention())


def while_removing_old_segments(broker):
    broker.clock.advance(10)
    finish(broker.replicas.apply_retention())
    broker.clock.advance(10)
    finish(broker.replicas.apply_retention())


def while_removing_a_partition(broker):
    broker.replicas.stop(OURS, delete=True)
    broker.later.run()


def while_changing_leaders(broker):
    assert lead(broker, OURS, epoch=7) is ErrorCode.NONE
    broker.later.run()


FAILURES = {
    while_appending: ["pwrite"],
    while_reading: ["pread"],
    while_flushing: ["fdatasync"],
    while_flushing_what_was_rolled: ["fdatasync"],
    while_checkpointing: ["open"],
    while_applying_retention: ["rename"],
    while_removing_old_segments: ["unlink"],
    while_removing_a_partition: ["unlink"],
    while_changing_leaders: ["open"],
}


@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS])
@pytest.mark.parametrize(("work", "steps"), FAILURES.items(), ids=lambda each: getattr(each, "__name__", ""))
def test_a_failing_disk_takes_its_directory_out_of_service_and_no_other(broker, caplog, work, steps, error):
    home = home_of(broker, OURS)
    there = {tp for tp in PARTITIONS if home_of(broker, tp) == home}
    with FaultyFiles(home, fail_at=0, lasting=True, error=error, steps=steps) as files:
        work(broker)
        assert files.count
        settle(broker)
        assert_out_of_service(broker, home, there - ({OURS} if work is while_removing_a_partition else set()))
        assert {path for path, _ in broker.failures} == {home}
        assert os.strerror(error) in broker.failures[0][1]
        assert caplog.text.count(f"log directory {home} is out of service") == 1
        assert "cannot open" not in caplog.text, "of its partitions one by one"
        broker.later.run()
        broker.logs.checkpoint()
        broker.logs.close()
    assert [path.name for path in home.parent.iterdir() if (path / MARKER).exists()] == [
        path.name for path in home.parent.iterdir() if path != home
    ]


def test_the_line_of_a_disk_that_fails_says_how_many_partitions_go_with_it(broker, caplog):
    broker.logs.fail(home_of(broker, OURS), "the disk is gone")
    (said,) = caplog.messages
    assert said.endswith(" until the broker is started again: the disk is gone; 2 partition(s) go with it")


def assert_out_of_service(broker, home, lost):
    assert set(broker.logs.unusable) == lost
    assert all(str(home) in reason for reason in broker.logs.unusable.values())
    for tp in lost:
        with pytest.raises(ApiError, match=str(home)) as caught:
            append(broker, tp)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert lead(broker, tp) is ErrorCode.KAFKA_STORAGE_ERROR
    assert append_everywhere(broker) == set(broker.logs.logs)
    assert len(broker.logs.logs) == 4
    assert lead(broker, NEW) is ErrorCode.NONE
    assert home_of(broker, NEW) != home
    append(broker, NEW)
    assert lead(broker, TopicPartition("old", 0), is_new=False) is ErrorCode.KAFKA_STORAGE_ERROR


def append_everywhere(broker):
    """The partitions that take a batch and give it back."""
    served = set()
    for tp in PARTITIONS:
        with suppress(ApiError):
            lead(broker, tp, is_new=False)
            offset = append(broker, tp).first_offset
            fetch(broker, tp, offset)
            served.add(tp)
    return served


def test_without_any_directory_nothing_is_made(broker, homes):
    for home in homes:
        broker.logs.fail(home, "test")
    assert not broker.logs.dirs.in_service
    assert broker.logs.logs == {}
    with pytest.raises(LogDirFailed, match="no log directory is left"):
        broker.logs.get_or_create(NEW, None, None)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_failed_fsync_is_never_tried_again(broker, homes, error):
    log, home = broker.logs.logs[OURS], home_of(broker, OURS)
    before = log.recovery_point
    with FaultyFiles(home, fail_at=0, error=error, steps=["fsync", "fdatasync"]) as files:
        with pytest.raises(LogDirFailed) as first:
            log.flush()
        assert not isinstance(first.value, DiskFull), "what was written may be lost, whatever room there will be"
        log.config = parse(TopicConfig, SMALL | {"flush.messages": "1"})
        log.append_as_leader(batch_of(), 0)
        assert log.awaits_flush
        for again in (log.flush, log.close):
            with pytest.raises(LogDirFailed, match="cannot flush"):
                again()
        broker.later.run()
        assert files.count == 1
    assert log.recovery_point == before
    broker.logs.close()
    assert not (home / MARKER).exists()


def test_a_flush_that_comes_after_the_end_of_the_log_is_no_failure(broker, monkeypatch):
    log, real = broker.logs.logs[OURS], sync_directory

    def delete_meanwhile(directory):
        monkeypatch.setattr(log_module, "sync_directory", real)
        broker.replicas.stop(OURS, delete=True)
        real(directory)

    log.roll()
    log.roll()  # its flush comes when the log is gone
    monkeypatch.setattr(log_module, "sync_directory", delete_meanwhile)
    broker.later.run()
    assert broker.failures == []


# Full


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
@pytest.mark.parametrize(
    ("work", "steps"),
    [
        (while_appending, ["pwrite"]),
        (while_checkpointing, ["open"]),
        (while_applying_retention, ["open"]),
        (while_removing_a_partition, ["unlink"]),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_full_disk_stays_in_service_and_is_told_of(broker, caplog, work, steps, error):
    home = home_of(broker, OURS)
    with FaultyFiles(home, fail_at=0, lasting=True, error=error, steps=steps) as files:
        work(broker)
        assert files.count
    lack = "cannot open another file" if error == errno.EMFILE else "has no room"
    assert [f"log directory {home} {lack}" in line for line in caplog.messages] == [True]
    assert (broker.failures, broker.logs.unusable) == ([], {})
    assert append_everywhere(broker) == set(PARTITIONS)


def test_a_checkpoint_that_could_be_written_tells_that_there_is_room_again(broker, caplog):
    home = home_of(broker, OURS)
    with FaultyFiles(home, fail_at=0, error=errno.EMFILE, steps=["pwrite"]):
        while_appending(broker)
    broker.logs.checkpoint()
    assert [f"log directory {home} can open files again" in line for line in caplog.messages] == [False, True]


@pytest.mark.parametrize("step", range(5))
def test_a_partition_for_which_there_was_no_room_can_be_made_when_there_is(broker, homes, caplog, step):
    for home in homes[1:]:
        broker.logs.fail(home, "test")
    with FaultyFiles(homes[0], fail_at=step, error=errno.ENOSPC):
        first = lead(broker, NEW)
    assert first is ErrorCode.KAFKA_STORAGE_ERROR
    assert f"log directory {homes[0]} has no room" in caplog.text
    assert lead(broker, NEW) is ErrorCode.NONE
    assert append(broker, NEW).first_offset == 0
    assert broker.failures == []


# Damage


def garbage_metadata(directory):
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: garbage")


def binary_metadata(directory):
    (directory / "partition.metadata").write_bytes(b"\xff\xfe\x00")


def message_of_old(directory):
    """The last segment holds one message of format 1."""
    body = struct.pack(">bbqii", 1, 0, 1000, -1, 2) + b"hi"
    message = struct.pack(">I", zlib.crc32(body)) + body
    log = sorted(directory.glob("*.log"))[-1]
    log.write_bytes(struct.pack(">qi", int(log.stem), len(message)) + message)


DAMAGES = [garbage_metadata, binary_metadata, message_of_old]


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crash"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_that_nobody_can_decide_on_concerns_one_partition(broker, start, caplog, damage, clean):
    directory = broker.logs.logs[OURS].directory
    if clean:
        broker.logs.close()
    else:
        crash(broker)
    damage(directory)
    kept = sorted(path.read_bytes() for path in directory.glob("*.log"))
    broker = start()
    assert set(broker.logs.unusable) == {OURS}
    assert f"{OURS} is not served: {directory}" in caplog.text
    assert append_everywhere(broker) == set(PARTITIONS) - {OURS}
    assert lead(broker, OURS) is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(LogError, match=str(directory)):
        broker.logs.get_or_create(OURS, None, None)
    broker.logs.close()
    assert broker.failures == []
    assert (directory.parent / MARKER).exists(), "every log that was open was closed"
    assert sorted(path.read_bytes() for path in directory.glob("*.log")) == kept


def test_what_could_not_be_served_keeps_its_start_and_is_scanned_when_it_can_be(broker, start):
    directory, log = broker.logs.logs[OURS].directory, broker.logs.logs[OURS]
    broker.logs.advance_start(OURS, 2)
    content = whole(log)
    broker.logs.close()
    garbage_metadata(directory)
    for _ in range(2):
        broker = start()
        assert OURS in broker.logs.unusable
        broker.logs.checkpoint()
        broker.logs.close()
    (directory / "partition.metadata").unlink()
    log = start().logs.logs[OURS]
    assert (log.log_start_offset, log.log_end_offset, whole(log)) == (2, 4, content)
    assert log.scanned_bytes > 0


def test_the_mark_of_a_clean_stop_is_left_only_where_all_logs_were_closed(broker, start, homes):
    home = home_of(broker, OURS)
    append(broker, OURS)
    with FaultyFiles(home, fail_at=0, lasting=True, steps=["fdatasync"]):
        broker.logs.close()
    assert [each for each in homes if not (each / MARKER).exists()] == [home]
    broker = start()
    scanned = {tp for tp, log in broker.logs.logs.items() if log.scanned_bytes}
    assert scanned == {tp for tp in PARTITIONS if home_of(broker, tp) == home}


@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS])
def test_a_disk_that_takes_no_new_directory_is_out_of_service(broker, homes, error):
    held = Counter(log.directory.parent for log in broker.logs.logs.values())
    home = min(homes, key=lambda each: held[each])
    there = {tp for tp in PARTITIONS if home_of(broker, tp) == home}
    with FaultyFiles(home, fail_at=0, lasting=True, error=error, steps=["mkdir"]):
        assert lead(broker, NEW) is ErrorCode.KAFKA_STORAGE_ERROR
        settle(broker)
        assert_out_of_service(broker, home, there)
        assert {path for path, _ in broker.failures} == {home}


def test_a_full_disk_that_takes_no_new_directory_stays_in_service(broker, homes):
    held = Counter(log.directory.parent for log in broker.logs.logs.values())
    home = min(homes, key=lambda each: held[each])
    with FaultyFiles(home, fail_at=0, error=errno.ENOSPC, steps=["mkdir"]):
        assert lead(broker, NEW) is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.failures == []
    assert lead(broker, NEW) is ErrorCode.NONE


def test_what_is_left_of_a_deleted_partition_and_stays_keeps_nothing_from_service(broker, start, homes, caplog):
    home = homes[0]
    leftover = home / f"gone-0.{'0' * 32}-delete"
    leftover.mkdir()
    (leftover / "00000000000000000000.log").touch()
    crash(broker)
    with FaultyFiles(home, fail_at=0, lasting=True, steps=["unlink", "rmdir"]):
        again = start()
    assert set(again.logs.logs) == set(PARTITIONS)
    assert again.failures == []
    assert [record.levelname for record in caplog.records if str(leftover) in record.getMessage()] == ["WARNING"]
    crash(again)
    start()
    assert not leftover.exists()
