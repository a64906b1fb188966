"""An erasure cut short at any step: by the death of the process, by a power cut, by a disk that is full or fails.

What is found then has all records of other keys, with their offsets, and no record twice; nothing is half swapped; and
the same erasure once more finishes.
"""

import errno
import shutil
from contextlib import suppress

import pytest
from compaction.dump import dump
from compaction.erasures import erase, expected_batches, without_crc
from compaction.keyed import NOBODY, Producer, append, fill, leftovers, mark, records_of
from crash.test_cleaning_steps import ID, TP, Now, let_go

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import DiskFull, LogDirFailed
from sparklog.log import swap
from sparklog.log.directories.manager import LogManager
from sparklog.log.loader import Knowledge
from sparklog.record.control import ControlType
from sparklog.testing.clock import ManualClock
from sparklog.testing.files import Crash, FaultyFiles

SETTINGS = {"cleanup.policy": "delete", "retention.ms": "-1", "segment.bytes": "900", "index.interval.bytes": "100"}
CONFIG = parse(TopicConfig, SETTINGS)
SECRET = b"k1"
CUTS = 2


def opened(home):
    logs = LogManager([home], CONFIG, ManualClock(), Now(), defaults=Knowledge(high_watermark=2**62))
    logs.load({TP.topic: CONFIG})
    if TP in logs.logs:
        logs.logs[TP].on_high_watermark(logs.logs[TP].log_end_offset)
    return logs


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A log directory with a partition of several segments; in one of them all is to be erased. All is flushed."""
    home = tmp_path_factory.mktemp("prepared") / "logs"
    logs = opened(home)
    log = logs.get_or_create(TP, CONFIG, ID)
    fill(log, segments=1, keys=3)
    producer = Producer(7, 0, 0, is_transactional=True)
    append(log, (b"k0", b"aborted"), (SECRET, b"aborted"), producer=producer)
    mark(log, producer, ControlType.ABORT)
    log.roll()
    append(log, (SECRET, b"alone"))
    log.roll()
    append(log, (b"end", b"of the log"), producer=NOBODY)
    log.roll()
    logs.close()
    return home


def erase_once(logs):
    """What the broker and its worker do with one log, in one process: each step is one under the log directory."""
    log = logs.logs[TP]
    swap.undo(log.directory)
    erase(log, [SECRET], log.log_end_offset)


class Expected:
    """What must be found of a log, whatever became of its erasure."""

    def __init__(self, home):
        logs = opened(home)
        log = logs.logs[TP]
        self.records, self.end, self.before = records_of(log), log.log_end_offset, dump(log.directory)
        self.aborted = log.aborted_transactions(0, self.end)
        self.batches = expected_batches(self.before, {SECRET}, self.end)
        logs.close()

    def check(self, home):
        """How many records of the key were there still."""
        with FaultyFiles(home):  # which spares the disk the syncs
            logs = opened(home)
            log = logs.logs[TP]
            assert leftovers(log.directory) == []
            assert log.log_end_offset == self.end
            left = self.check_log(log)
            erase_once(logs)
            assert self.check_log(log) == 0, "the next run finishes"
            found = dump(log.directory)
            assert without_crc(found.batches, self.batches) == self.batches
            assert found.bases == self.before.bases
            assert erase(log, [SECRET], self.end, scan_only=True).records_found == 0
            logs.close()
        return left

    def check_log(self, log):
        found = records_of(log)
        assert [each for each in found if each[1] != SECRET] == [each for each in self.records if each[1] != SECRET]
        mine = [each for each in found if each[1] == SECRET]
        assert [each for each in mine if each not in self.records] == []
        assert [each[0] for each in found] == sorted({each[0] for each in found})
        assert log.aborted_transactions(0, self.end) == self.aborted
        return len(mine)


@pytest.fixture(scope="module")
def expected(prepared, tmp_path_factory):
    home = tmp_path_factory.mktemp("expected") / "logs"
    shutil.copytree(prepared, home)
    return Expected(home)


def crashed_at(source, home, n, *, half=False):
    """An erasure that ends at its n-th step; None if it has fewer."""
    shutil.copytree(source, home)
    with FaultyFiles(home):
        logs = opened(home)
    files = FaultyFiles(home, crash_at=n, half=half)
    with suppress(Crash), files:
        erase_once(logs)
    let_go(logs)
    return files if files.crashed else None


@pytest.mark.parametrize("half", [pytest.param(False, marks=pytest.mark.slow), True], ids=["", "half a write"])
def test_a_process_that_dies_at_any_step_loses_nothing_else(prepared, expected, tmp_path, half):
    left, n = [], 0
    while crashed_at(prepared, tmp_path / str(n), n, half=half) is not None:
        left.append(expected.check(tmp_path / str(n)))
        n += 1
    assert n > 20
    assert left == sorted(left, reverse=True), "what is erased never comes back"
    assert (left[0] > 1, left[-1]) == (True, 0)


@pytest.mark.slow
def test_power_that_goes_at_any_step_loses_nothing_else(prepared, expected, tmp_path):
    n = 0
    while (files := crashed_at(prepared, tmp_path / f"{n}-before", n)) is not None:
        for seed in range(CUTS):
            after = tmp_path / f"{n}-after-{seed}"
            files.cut(after, seed)
            expected.check(after)
        n += 1


@pytest.mark.slow
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE, errno.EIO], ids=["full", "no descriptor", "failing"])
def test_a_disk_that_refuses_any_step_loses_nothing_else_and_the_next_run_finishes(prepared, expected, tmp_path, error):
    n, is_over = 0, False
    while not is_over:
        home = tmp_path / str(n)
        shutil.copytree(prepared, home)
        with FaultyFiles(home):
            logs = opened(home)
        log = logs.logs[TP]
        files = FaultyFiles(home, fail_at=n, error=error)
        refused = None
        with files:
            try:
                erase_once(logs)
            except (DiskFull, LogDirFailed, OSError) as caught:
                refused = caught
        is_over = files.count <= n
        if logs.logs.get(TP) is log:
            expected.check_log(log)
        if isinstance(refused, DiskFull):
            with FaultyFiles(home):
                swap.undo(log.directory)
                assert leftovers(log.directory) == []
                erase_once(logs)
            assert expected.check_log(log) == 0
        let_go(logs)
        expected.check(home)
        n += 1
