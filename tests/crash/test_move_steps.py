"""A move of a partition to another log directory that ends at any step: nothing is lost, nothing is served twice.

What was written is there after the death of the process; what was flushed, after a cut of the power.
"""

import shutil
from concurrent.futures import Executor, Future
from contextlib import suppress
from uuid import UUID

import pytest

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.log.directories.futures import FutureLogs
from sparklog.log.directories.manager import LogManager
from sparklog.record.builder import RecordBatchBuilder
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.files import Crash, FaultyFiles

TP, ID = TopicPartition("t", 0), UUID(int=1)
CONFIG = parse(TopicConfig, {"segment.bytes": "900", "retention.ms": "-1"})
BEFORE, START = 12, 4
LARGE = 1 << 20


class Now(Executor):
    """Does at once what is for another thread; a crash there is one of the process."""

    def submit(self, work, /, *arguments, **more):
        done = Future()
        done.set_result(work(*arguments, **more))
        return done


def batch(epoch=0, size=100):
    builder = RecordBatchBuilder(partition_leader_epoch=epoch)
    builder.append(1, None, b"v" * size)
    return memoryview(bytearray(builder.build()))


def opened(home):
    logs = LogManager([home / "a", home / "b"], CONFIG, ManualClock(), Now())
    logs.load({"t": CONFIG})
    return logs


def filled(home):
    """A partition in a, of which all is flushed, and which begins in the middle of its first segment."""
    logs = opened(home)
    logs.prefer(TP, logs.dirs.find(str((home / "a").absolute())))
    log = logs.get_or_create(TP, CONFIG, ID)
    for _ in range(BEFORE):
        log.append_as_leader(batch(), 0)
    log.on_high_watermark(BEFORE)
    log.advance_start(START)
    log.flush()
    logs.checkpoint()
    return logs


class Moved:
    """Moves the partition to b, while it is written to; knows what was written and what was flushed."""

    def __init__(self, home, logs):
        self.written = self.flushed = BEFORE
        self.logs = logs
        self.copies = FutureLogs(logs)
        self._b = logs.dirs.find(str((home / "b").absolute()))

    def write(self, *, flush):
        log = self.logs.logs[TP]
        log.append_as_leader(batch(), 0)
        self.written = log.log_end_offset
        if flush:
            log.flush()
            self.flushed = self.written

    def copy_all(self):
        while (piece := self._piece()) is not None:
            assert self.copies.copy(self.logs.futures[TP], piece) is None
        self.logs.futures[TP].advance_start(START)

    def _piece(self):
        return self.logs.logs[TP].read_for_copy(self.logs.futures[TP].log_end_offset, LARGE)

    def __call__(self):
        self.logs.add_future(TP, self.copies.begin(TP, self._b))
        self.copy_all()
        self.write(flush=True)
        self.copy_all()
        self.logs.futures[TP] = self.copies.give_name(TP, self.logs.futures[TP])
        self.write(flush=True)
        self.copy_all()
        new = self.logs.futures[TP]
        old = self.copies.swap(TP)
        self.write(flush=True)
        self.write(flush=False)
        self.copies.secure(new)
        self.flushed = self.written
        doomed = self.copies.retire(old, new)
        self.write(flush=True)
        shutil.rmtree(doomed)


def readable(log):
    """How many batches have the right CRC; each has one record."""
    return sum(len(view) for view in log.read_all(1 << 20)) // len(batch())


def check(home, at_least, at_most):
    """What a start finds, and that a move that was under way can be gone on with and leaves one directory."""
    logs = opened(home)
    log = logs.logs[TP]
    assert at_least <= log.log_end_offset <= at_most
    assert log.log_start_offset == START
    assert log.topic_id == ID
    places = [path for path in home.glob("?/t-0*") if not path.name.endswith(("-future", "-delete"))]
    assert places == [log.directory]
    assert len([*home.glob("?/t-0*-future")]) == len(logs.dormant) <= 1
    if TP in logs.dormant:
        end = log.log_end_offset
        move = Moved(home, logs)
        logs.add_future(TP, move.copies.go_on(TP, logs.dormant[TP]))
        future = logs.futures[TP]
        assert future.log_end_offset <= end or at_most > at_least
        future.truncate_to(min(end, future.log_end_offset))
        move.copy_all()
        logs.futures[TP] = move.copies.give_name(TP, logs.futures[TP])
        move.copies.swap(TP)
        assert logs.logs[TP].log_end_offset == end
    assert readable(logs.logs[TP]) == logs.logs[TP].log_end_offset
    logs.close()


def crashed_at(home, n):
    """The files and the move, cut short at its n-th step; None if it has fewer."""
    logs = filled(home)
    move = Moved(home, logs)
    files = FaultyFiles(home, crash_at=n)
    with suppress(Crash), files:
        move()
    for each in list(logs.dirs.in_service):
        each.close()
    return (files, move) if files.crashed else None


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_process_that_dies_at_any_step_loses_nothing(tmp_path):
    n = 0
    while (crash := crashed_at(tmp_path / str(n), n)) is not None:
        _, move = crash
        check(tmp_path / str(n), move.written, move.written + 1)
        n += 1
    assert n > 60


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_power_that_goes_at_any_step_loses_nothing_that_was_flushed(tmp_path):
    n = 0
    while (crash := crashed_at(tmp_path / f"{n}-before", n)) is not None:
        files, move = crash
        files.cut(tmp_path / f"{n}-after", n)
        check(tmp_path / f"{n}-after", move.flushed, move.written + 1)
        n += 1


def test_a_disk_that_was_away_at_the_next_start_does_not_bring_the_old_log_back(tmp_path):
    """Between the two halves of the last step: the old directory still has the partition's name."""
    logs = filled(tmp_path)
    move = Moved(tmp_path, logs)
    logs.add_future(TP, move.copies.begin(TP, move._b))
    move.copy_all()
    logs.futures[TP] = move.copies.give_name(TP, logs.futures[TP])
    new = logs.futures[TP]
    move.copies.swap(TP)
    move.copies.secure(new)
    move.write(flush=True)
    logs.close()
    (tmp_path / "a").rename(tmp_path / "away")
    (tmp_path / "a").write_text("no directory")
    alone = opened(tmp_path)
    assert alone.logs[TP].log_end_offset == BEFORE + 1
    alone.logs[TP].append_as_leader(batch(), 1)
    alone.close()
    (tmp_path / "a").unlink()
    (tmp_path / "away").rename(tmp_path / "a")
    whole = opened(tmp_path)
    assert whole.logs[TP].directory == tmp_path / "b" / "t-0"
    assert whole.logs[TP].log_end_offset == BEFORE + 2
    assert [*tmp_path.glob("a/t-0*")] == []
    whole.close()
