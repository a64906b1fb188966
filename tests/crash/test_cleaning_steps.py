"""A cleaning cut short at any step: by the death of the process, by a power cut, by a disk that is full or fails. Of
the broker's worker, and by the tasks of a job, whose drafts the broker takes over.

What is found then replays to the same table, has its offsets in order and lost no record that is the last of its key;
nothing is half swapped, the checkpoint is not ahead of what is clean, and the next run finishes.
"""

import errno
import shutil
from concurrent.futures import Executor, Future
from contextlib import suppress
from uuid import UUID

import pytest
from compaction import ours
from compaction.by_tasks import split_clean, target_of
from compaction.keyed import NOBODY, Producer, append, fill, leftovers, mark, records_of, table_of

from sparklog.compaction.cleaner import LogCleaning
from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import DiskFull, LogDirFailed
from sparklog.log import swap
from sparklog.log.checkpoints import CLEANER_OFFSETS, read_offsets
from sparklog.log.directories.manager import LogManager
from sparklog.log.loader import Knowledge
from sparklog.record.control import ControlType
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.files import Crash, FaultyFiles

TP, ID = TopicPartition("t", 0), UUID(int=1)
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": "900", "index.interval.bytes": "100"}
CONFIG = parse(TopicConfig, SETTINGS)
ABORTED = b"aborted"
CUTS = 2
NOW_MS = 1_700_000_100_000


class Now(Executor):
    """Does at once what is for another thread; a crash there is one of the process."""

    def submit(self, work, /, *arguments, **more):
        done = Future()
        try:
            done.set_result(work(*arguments, **more))
        except Exception as error:
            done.set_exception(error)
        return done


def opened(home):
    known = Knowledge(high_watermark=2**62)
    logs = LogManager([home], CONFIG, ManualClock(), Now(), defaults=known)
    logs.load({TP.topic: CONFIG})
    if TP in logs.logs:
        logs.logs[TP].on_high_watermark(logs.logs[TP].log_end_offset)
    return logs


def let_go(logs):
    for each in list(logs.dirs.in_service):
        each.close()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A log directory with a partition of several segments, in which a transaction was aborted; all is flushed."""
    home = tmp_path_factory.mktemp("prepared") / "logs"
    logs = opened(home)
    log = logs.get_or_create(TP, CONFIG, ID)
    fill(log, segments=1)
    producer = Producer(7, 0, 0, is_transactional=True)
    append(log, (b"k0", ABORTED), (b"x", ABORTED), producer=producer)
    mark(log, producer, ControlType.ABORT)
    append(log, (b"k1", None))
    fill(log, segments=1, keys=3)
    append(log, (b"end", b"of the log"), producer=NOBODY)
    logs.close()
    return home


def clean_once(logs):
    """What the broker and its worker do with one log, in one process: each step is one under the log directory."""
    log = logs.logs[TP]
    swap.undo(log.directory)
    sections = ours.sections_of(log, logs.cleaner_point(TP), NOW_MS)
    if not sections.cleanable_bytes:
        return
    task = ours.task_of(log, sections, NOW_MS)
    cleaning = LogCleaning(task, ManualClock(), ours.SEED)
    for group in cleaning.run():
        for path in log.replace_segments(group.new, group.old):
            logs.unlink_later(path)
    logs.set_cleaner_point(TP, cleaning.stats.end_offset)


def clean_by_tasks(logs):
    """What a job and the broker do with it, likewise; each group of segments is another task's."""
    log = logs.logs[TP]
    target = target_of(log, ours.sections_of(log, logs.cleaner_point(TP), NOW_MS), NOW_MS, 1 << 20)
    end, stretches = split_clean(log, target, 2, 1)
    assert stretches > 1
    logs.set_cleaner_point(TP, end)


def committed(log):
    """The table that a read_committed reader comes to."""
    aborted = log.aborted_transactions(0, log.log_end_offset)
    found = {}
    for offset, key, value in records_of(log):
        if value == ABORTED and any(each.first_offset <= offset < each.last_offset for each in aborted):
            continue
        found[key] = value
    return {key: value for key, value in found.items() if value is not None}


class Expected:
    """What must be found of a log, whatever became of its cleaning."""

    def __init__(self, home):
        logs = opened(home)
        log = logs.logs[TP]
        self.table, self.records, self.end = committed(log), records_of(log), log.log_end_offset
        last = {}
        for record in self.records:
            if record[2] != ABORTED:
                last[record[1]] = record
        self.last = [record for record in last.values() if record[2] is not None]
        logs.close()

    def check(self, home):
        """Whether the cleaning had replaced anything."""
        with FaultyFiles(home):  # which spares the disk the syncs
            return self._check(home)

    def _check(self, home):
        points = read_offsets(home / CLEANER_OFFSETS)
        logs = opened(home)
        log = logs.logs[TP]
        assert leftovers(log.directory) == []
        assert [each for each in log.directory.iterdir() if each.suffix == ".tmp"] == [], "drafts"
        assert log.log_end_offset == self.end
        self.check_log(log)
        is_clean = len(records_of(log)) < len(self.records)
        if points.get(TP):
            assert self._is_clean(log, points[TP]), "the checkpoint is ahead of what is clean"
        clean_once(logs)
        self.check_log(log)
        assert self._is_clean(log, log.end.segment_base), "the next run finishes"
        logs.close()
        return is_clean

    def check_log(self, log):
        assert committed(log) == self.table
        found = records_of(log)
        assert [each for each in found if each not in self.records] == []
        assert [each[0] for each in found] == sorted({each[0] for each in found})
        assert [each for each in self.last if each not in found] == []
        for offset in range(0, log.log_end_offset, 5):
            assert log.read(offset, 1, log.end, min_one_batch=True) is not None

    @staticmethod
    def _is_clean(log, end):
        keys = [key for offset, key, _ in records_of(log) if offset < end]
        return len(keys) == len(set(keys))


@pytest.fixture(scope="module")
def expected(prepared, tmp_path_factory):
    home = tmp_path_factory.mktemp("expected") / "logs"
    shutil.copytree(prepared, home)
    return Expected(home)


def crashed_at(source, home, n, *, half=False, clean=clean_once):
    """A cleaning that ends at its n-th step, the files seen from before the log was opened; None if it has fewer."""
    shutil.copytree(source, home)
    with FaultyFiles(home):
        logs = opened(home)
    files = FaultyFiles(home, crash_at=n, half=half)
    with suppress(Crash), files:
        clean(logs)
    let_go(logs)
    return files if files.crashed else None


by_whom = pytest.mark.parametrize(
    "clean", [pytest.param(clean_once, id="worker"), pytest.param(clean_by_tasks, id="job", marks=pytest.mark.slow)]
)


@by_whom
@pytest.mark.parametrize("half", [pytest.param(False, marks=pytest.mark.slow), True], ids=["", "half a write"])
def test_a_process_that_dies_at_any_step_loses_nothing(prepared, expected, tmp_path, half, clean):
    outcomes, n = [], 0
    while crashed_at(prepared, tmp_path / str(n), n, half=half, clean=clean) is not None:
        outcomes.append(expected.check(tmp_path / str(n)))
        n += 1
    assert n > 20
    assert outcomes == sorted(outcomes), "a swap that has become certain is never undone"
    assert (outcomes[0], outcomes[-1]) == (False, True)


@by_whom
def test_power_that_goes_at_any_step_loses_nothing(prepared, expected, tmp_path, clean):
    n = 0
    while (files := crashed_at(prepared, tmp_path / f"{n}-before", n, clean=clean)) is not None:
        for seed in range(CUTS):
            after = tmp_path / f"{n}-after-{seed}"
            files.cut(after, seed)
            expected.check(after)
        n += 1


@pytest.mark.slow
def test_a_start_after_that_may_be_cut_short_as_well(prepared, expected, tmp_path):
    """The start finishes or undoes the swap, and dies at any step of it, too."""
    n = 0
    while crashed_at(prepared, tmp_path / f"{n}-first", n) is not None:
        if leftovers(tmp_path / f"{n}-first" / str(TP)):
            for m in (1, 4, 9):
                home = tmp_path / f"{n}-{m}"
                shutil.copytree(tmp_path / f"{n}-first", home)
                files = FaultyFiles(home, crash_at=m)
                with suppress(Crash), files:
                    swap.finish_interrupted(home / str(TP))
                after = tmp_path / f"{n}-{m}-cut"
                files.cut(after, m)
                expected.check(home)
                expected.check(after)
        n += 1


@pytest.mark.slow
@pytest.mark.parametrize("half", [False, True], ids=["", "half a write"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE, errno.EIO], ids=["full", "no descriptor", "failing"])
def test_a_disk_that_refuses_any_step_loses_nothing_and_the_next_run_finishes(
    prepared, expected, tmp_path, error, half
):
    n, is_over = 0, False
    while not is_over:
        home = tmp_path / str(n)
        shutil.copytree(prepared, home)
        with FaultyFiles(home):
            logs = opened(home)
        log = logs.logs[TP]
        before = records_of(log)
        files = FaultyFiles(home, fail_at=n, error=error, half=half)
        refused = None
        with files:
            try:
                clean_once(logs)
            except (DiskFull, LogDirFailed, OSError) as caught:
                refused = caught
        is_over = files.count <= n
        if logs.logs.get(TP) is log:
            expected.check_log(log)
        if isinstance(refused, DiskFull):
            names = [path.name for path in log.directory.iterdir() if path.name.endswith(".swap")]
            assert names == [], f"step {n}: nothing is to be swapped"
            with FaultyFiles(home):
                swap.undo(log.directory)
                assert leftovers(log.directory) == []
                clean_once(logs)
            expected.check_log(log)
            assert len(records_of(log)) < len(before)
        let_go(logs)
        expected.check(home)
        n += 1
    assert n > 20


def test_a_disk_that_stays_full_loses_nothing(prepared, expected, tmp_path):
    n, is_over = 0, False
    while not is_over:
        home = tmp_path / str(n)
        shutil.copytree(prepared, home)
        logs = opened(home)
        files = FaultyFiles(
            home, fail_at=n, error=errno.ENOSPC, lasting=True, steps=("write", "pwrite", "open", "fsync")
        )
        with files, suppress(LogDirFailed, OSError):
            clean_once(logs)
        is_over = files.count <= n
        let_go(logs)
        expected.check(home)
        n += 1


def test_a_group_of_which_nothing_stays_is_swapped_whole(tmp_path):
    """The new segment is empty: by its file alone nobody could tell which old ones it replaces."""
    home = tmp_path / "prepared"
    logs = opened(home)
    log = logs.get_or_create(TP, CONFIG, ID)
    fill(log, segments=3, keys=1)
    fill(log, segments=1, keys=1)
    table, last = table_of(log), records_of(log)[-1]
    logs.close()
    n = 0
    while crashed_at(home, tmp_path / str(n), n) is not None:
        logs = opened(tmp_path / str(n))
        log = logs.logs[TP]
        assert table_of(log) == table
        assert records_of(log)[-1] == last
        offsets = [each[0] for each in records_of(log)]
        assert offsets == sorted(set(offsets))
        clean_once(logs)
        assert table_of(log) == table
        logs.close()
        n += 1
