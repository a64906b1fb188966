"""What flush.messages and flush.ms promise, told by the fsyncs that happen."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from log.samples import SMALL, TP, abandon, batch_of, open_log, transactional

from sparklog.clock import monotonic_ms
from sparklog.config.topic import TopicConfig
from sparklog.errors import DiskFull, LogDirFailed
from sparklog.log.directories.directory import LogDir
from sparklog.log.durability import Flushes
from sparklog.log.leader_epochs import read_epochs
from sparklog.log.log import Log
from sparklog.log.origin import AppendOrigin
from sparklog.testing.clock import ManualClock
from sparklog.testing.files import FaultyFiles


@pytest.fixture
def home(tmp_path):
    return tmp_path / "t-0"


@pytest.fixture
def synced(monkeypatch):
    """The names of the files synced, in order; a directory ends in a slash."""
    names = []
    for call in ("fsync", "fdatasync"):
        real = getattr(os, call)

        def record(fd, real=real):
            path = os.readlink(f"/proc/self/fd/{fd}")
            names.append(os.path.basename(path) + ("/" if os.path.isdir(path) else ""))
            real(fd)

        monkeypatch.setattr(os, call, record)
    return names


def logs_synced(names):
    return [name for name in names if name.endswith(".log")]


def append(log, batch):
    """As whoever answers for it: the batch counts when the flush that it awaits has returned."""
    log.append_as_leader(batch, 0)
    if log.awaits_flush:
        log.flush()
    assert not log.awaits_flush


def test_a_log_directory_that_is_made_is_there_after_a_crash(tmp_path, synced):
    made = LogDir(tmp_path / "disk" / "logs")
    made.close()
    assert {"disk/", f"{tmp_path.name}/"} <= {*synced}
    synced.clear()
    LogDir(tmp_path / "disk" / "logs").close()
    assert synced == []


def test_flush_messages_1_wants_each_append_flushed(home, synced):
    log = open_log(home, {"flush.messages": "1"})
    for number in range(1, 4):
        before = list(logs_synced(synced))
        log.append_as_leader(batch_of(), 0)
        assert log.awaits_flush
        assert logs_synced(synced) == before, "an append waits for no disk"
        log.flush()
        assert not log.awaits_flush
        assert len(logs_synced(synced)) == number
        assert log.recovery_point == log.log_end_offset == number


def test_what_a_crash_left_unflushed_is_flushed_when_it_is_found(home, synced):
    """Else a producer that sends its batch again would be told that it is there, and a follower would say so."""
    log = open_log(home, {"flush.messages": "1"})
    log.append_as_leader(batch_of(), 0)
    abandon(log)
    assert logs_synced(synced) == []
    log = open_log(home, {"flush.messages": "1"}, clean=False)
    assert log.recovery_point == log.log_end_offset == 1
    assert logs_synced(synced) == ["00000000000000000000.log"]


def test_what_a_crash_left_unflushed_waits_where_no_flush_is_wanted(home, synced):
    log = open_log(home)
    log.append_as_leader(batch_of(), 0)
    abandon(log)
    assert open_log(home, clean=False).recovery_point == 0
    assert logs_synced(synced) == []


def test_flush_messages_counts_records(home, synced):
    log = open_log(home, {"flush.messages": "5"})
    points = []
    for _ in range(5):
        append(log, batch_of(1, 2))
        points.append(log.recovery_point)
    assert points == [0, 0, 6, 6, 6]
    assert len(logs_synced(synced)) == 1


def test_by_default_an_append_syncs_nothing(home, synced):
    log = open_log(home)
    log.append_as_leader(batch_of(), 0)
    synced.clear()  # the first append of an epoch writes its checkpoint
    log.append_as_leader(batch_of(), 0)
    assert (synced, log.recovery_point) == ([], 0)


def test_a_roll_waits_for_no_disk_whatever_is_remembered_of_producers(home, synced):
    log = open_log(home)
    log._submit = lambda _: None  # what is done behind it
    log.append_as_leader(transactional(1, 0), 0, AppendOrigin.COORDINATOR)
    synced.clear()
    log.roll()
    assert synced == []
    assert (home / f"{1:020d}.snapshot").exists()


def test_flush_ms_is_due_from_the_first_unflushed_append_on(home):
    clock = ManualClock()
    log = open_log(home, {"flush.ms": "1000"}, clock=clock)
    assert not log.flush_is_due(monotonic_ms(clock))
    log.append_as_leader(batch_of(), 0)
    clock.advance(0.999)
    log.append_as_leader(batch_of(), 0)
    assert not log.flush_is_due(monotonic_ms(clock))
    clock.advance(0.001)
    assert log.flush_is_due(monotonic_ms(clock))
    log.flush()
    assert log.recovery_point == 2
    clock.advance(5)
    assert not log.flush_is_due(monotonic_ms(clock))


def test_a_new_segments_name_is_synced_with_its_first_flush(home, synced):
    log = open_log(home, SMALL)
    log._submit = lambda _: None
    while log.segment_count < 2:
        log.append_as_leader(batch_of(size=100), 0)
    log.write_epochs()  # or the flush would, and sync the directory for that
    synced.clear()
    log.flush()
    assert "t-0/" in synced
    synced.clear()
    log.append_as_leader(batch_of(), 0)
    log.flush()
    assert "t-0/" not in synced


def test_a_clean_stop_has_its_snapshot_of_producers_on_the_disk(home, synced):
    log = open_log(home)
    log.append_as_leader(transactional(1, 0, 3), 0, AppendOrigin.COORDINATOR)
    synced.clear()
    log.close()
    assert any(name.startswith("00000000000000000003.snapshot") for name in synced)


def test_the_indexes_of_a_segment_are_on_the_disk_before_it_counts_as_flushed(home, synced):
    waiting = []
    log = open_log(home, SMALL)
    log._submit = waiting.append
    log.append_as_leader(batch_of(size=100), 0)
    waiting.clear()  # its epoch
    log.flush()  # so that a roll finds nothing to flush in the .log
    synced.clear()
    log.roll()
    assert {"00000000000000000000.index", "00000000000000000000.timeindex"} <= set(synced)
    assert log.recovery_point == 1
    assert len(waiting) == 1


def test_a_flush_counts_when_the_roll_is_over_that_came_between(home, monkeypatch):
    log = open_log(home)
    log.append_as_leader(batch_of(), 0)
    real, flushed = os.fdatasync, []

    def sync(fd):
        real(fd)
        flushed.append(log.recovery_point)
        assert log._durability.begin_roll() is False
        if len(flushed) == 3:
            log._durability.end_roll()

    monkeypatch.setattr(os, "fdatasync", sync)
    log.flush()
    assert (flushed, log.recovery_point) == ([0, 0, 0], 1)


def test_a_flush_behind_a_roll_is_of_what_lies_before_it(home, synced):
    """The roll behind it has a flush of its own."""
    waiting = []
    log = open_log(home)
    log._submit = lambda _: None  # epochs
    log.append_as_leader(batch_of(), 0)
    log.write_epochs()
    log._submit = waiting.append
    for _ in range(2):
        log.roll()
        log.append_as_leader(batch_of(), 0)
    synced.clear()
    for flushed, work in enumerate(waiting, 1):
        work()
        assert log.recovery_point == flushed
        assert logs_synced(synced) == [f"{number:020d}.log" for number in range(flushed)]
    assert flushed == 2


def test_a_start_after_a_crash_syncs_no_snapshot_of_producers(home, synced):
    log = open_log(home, SMALL)
    for sequence in range(20):
        log.append_as_leader(transactional(1, sequence, 1), 0, AppendOrigin.COORDINATOR)
    abandon(log)
    for path in home.glob("*.snapshot"):
        path.unlink()
    synced.clear()
    open_log(home, SMALL, clean=False)
    assert [*home.glob("*.snapshot")] != []
    assert [name for name in synced if "snapshot" in name] == []


def test_what_a_start_has_recovered_counts_as_flushed_with_the_indexes_that_it_made(home, synced):
    log = open_log(home, SMALL)
    while log.segment_count < 4:
        log.append_as_leader(batch_of(size=100), 0)
    abandon(log)
    log = open_log(home, SMALL, clean=False)
    synced.clear()
    log.flush()
    assert log.recovery_point == log.log_end_offset
    sealed = [f"{each.base_offset:020d}" for each in log.segment_facts()[:-1]]
    assert {f"{each}{kind}" for each in sealed for kind in (".log", ".index", ".timeindex")} <= {*synced}


def test_a_start_after_a_clean_stop_syncs_no_index(home, synced):
    log = open_log(home, SMALL)
    while log.segment_count < 4:
        log.append_as_leader(batch_of(size=100), 0)
    log.close()
    synced.clear()
    open_log(home, SMALL, clean=True)
    assert [name for name in synced if name.endswith("index")] == []


@pytest.fixture
def listed(home, monkeypatch):
    """The names in the log's directory each time that it is synced."""
    lists, real = [], os.fsync

    def record(fd):
        if os.readlink(f"/proc/self/fd/{fd}") == str(home):
            lists.append(os.listdir(home))
        real(fd)

    monkeypatch.setattr(os, "fsync", record)
    return lists


def test_no_snapshot_of_what_was_cut_off_comes_back_after_a_crash(home, listed):
    log = open_log(home)
    for sequence in range(3):
        log.append_as_leader(transactional(1, sequence), 0, AppendOrigin.COORDINATOR)
        log.roll()
    log.truncate_to(1)
    assert {name for name in listed[-1] if name.endswith(".snapshot")} == {f"{1:020d}.snapshot"}


def test_what_was_set_aside_is_so_after_a_crash(home, listed):
    log = open_log(home)
    for _ in range(2):
        log.append_as_leader(batch_of(), 0)
        log.append_as_leader(batch_of(), 0)
        log.roll()
    abandon(log)
    with open(home / f"{0:020d}.log", "r+b") as file:
        file.truncate(len(batch_of()) + 70)
    open_log(home, clean=False)
    assert f"{2:020d}.log.corrupt" in listed[-1]


def test_what_is_cut_off_awaits_no_flush(home):
    log = open_log(home, {"flush.messages": "1"})
    for _ in range(3):
        append(log, batch_of())
    log.append_as_leader(batch_of(), 0)
    log.truncate_to(3)
    assert not log.awaits_flush
    log.append_as_leader(batch_of(), 0)
    log.restart_at(9)
    assert not log.awaits_flush


def test_a_new_epoch_waits_for_no_disk_and_is_there_before_its_batches_count_as_flushed(home, synced):
    waiting = []
    log = open_log(home)
    log._submit = waiting.append
    for epoch in (4, 7):
        log.begin_epoch(epoch)
        log.append_as_leader(batch_of(), epoch)
    assert synced == []
    log.flush()
    assert synced[0].startswith("leader-epoch"), "before the batches"
    assert logs_synced(synced) == synced[-1:]
    assert log.recovery_point == 2
    written = read_epochs(home / "leader-epoch-checkpoint")
    assert written == [(4, 0), (7, 1)]
    synced.clear()
    for work in waiting:
        work()
    assert synced == [], "there is nothing left to write"


@pytest.mark.parametrize("flushed", [False, True])
def test_epochs_that_a_crash_kept_from_the_checkpoint_are_taken_from_the_batches(home, flushed):
    log = open_log(home)
    append(log, batch_of())
    if flushed:
        log.flush()
    log._submit = lambda work: None
    for epoch in (4, 7):
        log.begin_epoch(epoch)
        for _ in range(2):
            log.append_as_leader(batch_of(), epoch)
    abandon(log)
    again = open_log(home, recovery_point=log.recovery_point, clean=False)
    assert again.epochs.entries == ((0, 0), (4, 1), (7, 3))
    assert read_epochs(home / "leader-epoch-checkpoint") == [(0, 0), (4, 1), (7, 3)]


def test_an_epoch_that_cannot_be_written_keeps_the_recovery_point_where_it_is(home):
    log = open_log(home)
    log._submit = lambda work: None
    append(log, batch_of())
    with FaultyFiles(home, fail_at=0, error=errno.ENOSPC, lasting=True), pytest.raises(DiskFull, match="leader epochs"):
        log.flush()
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 1


def test_a_flush_that_a_truncation_overtook_promises_nothing(home, monkeypatch):
    log = open_log(home)
    for _ in range(5):
        log.append_as_leader(batch_of(), 0)
    real = os.fdatasync

    def truncate_meanwhile(fd):
        real(fd)
        monkeypatch.setattr(os, "fdatasync", real)
        log.truncate_to(2)

    monkeypatch.setattr(os, "fdatasync", truncate_meanwhile)
    log.flush()
    assert (log.recovery_point, log.log_end_offset) == (0, 2)
    log.flush()
    assert log.recovery_point == 2


@pytest.mark.parametrize(("number", "kind"), [(28, DiskFull), (122, DiskFull), (5, LogDirFailed), (30, LogDirFailed)])
def test_a_full_disk_is_not_a_failed_one(home, monkeypatch, number, kind):
    log = open_log(home)
    log.append_as_leader(batch_of(), 0)

    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(LogDirFailed, match=os.strerror(number)) as caught:
        log.append_as_leader(batch_of(), 0)
    assert type(caught.value) is kind
    assert log.log_end_offset == 1


@pytest.mark.parametrize("change", [lambda log: log.roll(), lambda log: log.truncate_to(1)], ids=["roll", "truncation"])
def test_what_a_sync_failed_to_write_never_counts_as_flushed(home, change):
    """A disk that finds itself full at a sync loses what was written before, and says so once."""
    log = open_log(home)
    for _ in range(2):
        log.append_as_leader(batch_of(), 0)
    log.flush()
    with (
        FaultyFiles(home, fail_at=0, error=errno.ENOSPC, steps=("fdatasync",)),
        pytest.raises(LogDirFailed, match="cannot flush") as caught,
    ):
        change(log)
    assert not isinstance(caught.value, DiskFull)
    flushed = log.recovery_point
    with suppress(LogDirFailed):  # where the truncation is not over
        log.append_as_leader(batch_of(), 0)
    with pytest.raises(LogDirFailed, match="cannot flush"):
        log.flush()
    assert log.recovery_point == flushed


def test_a_flush_without_a_descriptor_left_is_due_still_and_knows_what_it_was_to_sync(home, monkeypatch):
    clock = ManualClock()
    log = open_log(home, {"flush.ms": "1000"}, clock=clock)
    log.append_as_leader(batch_of(), 0)
    log._submit = lambda _: None
    log.roll()
    log.append_as_leader(batch_of(), 0)
    clock.advance(1)
    real_open, opened = os.open, []

    def without_descriptors(path, *args, **kwargs):
        raise OSError(errno.EMFILE, "Too many open files", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", without_descriptors)
        with pytest.raises(DiskFull, match="ulimit -n"):
            log.flush()
    assert log.flush_is_due(monotonic_ms(clock))

    def noted(path, *args, **kwargs):
        opened.append(str(path))
        return real_open(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", noted)
    log.flush()
    assert str(home) in opened
    assert log.recovery_point == 2
    log.close()


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_flush_is_counted_with_the_time_that_it_took(home, monkeypatch, is_refused):
    clock, flushes = ManualClock(), Flushes()
    clock.advance(1000)
    home.mkdir()
    log = Log(home, TP, TopicConfig(), clock, lambda work: work(), flushes=flushes)
    log.append_as_leader(batch_of(), 0)

    def sync(_fd):
        clock.advance(0.25)
        if is_refused:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", sync)
    with suppress(LogDirFailed):
        log.flush()
    assert (flushes.count, flushes.seconds) == (1, 0.25)
    assert log.recovery_point == (0 if is_refused else 1)


def test_flushes_of_several_threads_are_all_counted():
    flushes = Flushes()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(flushes.note, [0.5] * 1000))
    assert (flushes.count, flushes.seconds) == (1000, 500.0)


def test_a_log_that_the_disk_did_not_let_be_closed_seals_what_comes_later(tmp_path):
    """As a copy is, for whose name there is no room: else a start would believe indexes that nobody flushed."""
    log = open_log(tmp_path)
    log.append_as_leader(batch_of(1), 0)
    with FaultyFiles(tmp_path, fail_at=0, error=errno.ENOSPC, steps=("rename",)), pytest.raises(DiskFull):
        log.close()
    log.append_as_leader(batch_of(2), 0)
    log.append_as_leader(batch_of(3), 0)
    first = log._segments.active
    log.roll()
    assert first.time_index.last == (3, 2)
    log.close()
