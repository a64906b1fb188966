"""What flush.messages and flush.ms promise, told by the fsyncs that happen."""

import os

import pytest
from log.samples import SMALL, batch_of, open_log

from sparklog.errors import DiskFull, LogDirFailed
from sparklog.testing.clock import ManualClock


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


def test_flush_messages_1_syncs_before_each_append_returns(home, synced):
    log = open_log(home, {"flush.messages": "1"})
    for number in range(1, 4):
        log.append_as_leader(batch_of(), 0)
        assert len(logs_synced(synced)) == number
        assert log.recovery_point == log.log_end_offset == number


def test_flush_messages_counts_records(home, synced):
    log = open_log(home, {"flush.messages": "5"})
    points = []
    for _ in range(5):
        log.append_as_leader(batch_of(1, 2), 0)
        points.append(log.recovery_point)
    assert points == [0, 0, 6, 6, 6]
    assert len(logs_synced(synced)) == 1


def test_by_default_an_append_syncs_nothing(home, synced):
    log = open_log(home)
    log.append_as_leader(batch_of(), 0)
    synced.clear()  # the first append of an epoch writes its checkpoint
    log.append_as_leader(batch_of(), 0)
    assert (synced, log.recovery_point) == ([], 0)


def test_flush_ms_is_due_from_the_first_unflushed_append_on(home):
    clock = ManualClock()
    log = open_log(home, {"flush.ms": "1000"}, clock=clock)
    assert not log.flush_is_due(clock.now_ms())
    log.append_as_leader(batch_of(), 0)
    clock.advance(0.999)
    log.append_as_leader(batch_of(), 0)
    assert not log.flush_is_due(clock.now_ms())
    clock.advance(0.001)
    assert log.flush_is_due(clock.now_ms())
    log.flush()
    assert log.recovery_point == 2
    clock.advance(5)
    assert not log.flush_is_due(clock.now_ms())


def test_a_new_segments_name_is_synced_with_its_first_flush(home, synced):
    log = open_log(home, SMALL)
    log._submit = lambda _: None
    while log.segment_count < 2:
        log.append_as_leader(batch_of(size=100), 0)
    synced.clear()
    log.flush()
    assert "t-0/" in synced
    synced.clear()
    log.append_as_leader(batch_of(), 0)
    log.flush()
    assert "t-0/" not in synced


def test_the_indexes_of_a_segment_are_on_the_disk_before_it_counts_as_flushed(home, synced):
    waiting = []
    log = open_log(home, SMALL)
    log._submit = waiting.append
    log.append_as_leader(batch_of(size=100), 0)
    log.flush()  # so that a roll finds nothing to flush in the .log
    synced.clear()
    log.roll()
    assert {"00000000000000000000.index", "00000000000000000000.timeindex"} <= set(synced)
    assert log.recovery_point == 1
    assert len(waiting) == 1


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
