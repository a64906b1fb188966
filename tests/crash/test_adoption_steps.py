"""An adoption of segments cut short at every step: all of them or none, whole, and the next start settles which."""

import shutil
from contextlib import suppress

import pytest
from crash.steps import crash_at
from log.samples import SMALL, abandon, batch_of, in_a_row, open_log, transactional, whole, write_offer

from sparklog.errors import DiskFull, LogDirFailed
from sparklog.log.adoption import AppendAdoption
from sparklog.record.records import iter_batches
from sparklog.testing.files import Crash, FaultyFiles

MOST_STEPS = 100
EPOCH = 3
BEFORE = 4


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A log with records, beside which an offer of three segments lies; its files as they are offered."""
    home = tmp_path_factory.mktemp("prepared") / "t-0"
    log = open_log(home, SMALL)
    for _ in range(BEFORE):
        log.append_as_leader(batch_of(1000, size=100), EPOCH)
    abandon(log)
    placed = in_a_row([transactional(7, n * 3, 3) for n in range(6)])
    offer = write_offer(home, [placed[:2], placed[2:4], placed[4:]])
    return home, offer


def begin(prepared, home):
    """A copy of the log, open, with the offer beside it."""
    source, offer = prepared
    shutil.copytree(source, home)
    held = {path.name: path.read_bytes() for path in home.glob("*.tmp")}
    log = open_log(home, SMALL, clean=False)  # removes them, for nobody is at work on them
    for name, data in held.items():
        (home / name).write_bytes(data)
    return log, AppendAdoption(home, offer, log.config, 0)


def adopt(log, adoption):
    adoption.check()
    adoption.prepare(log.log_end_offset, EPOCH)
    log.hold(adoption, lambda *_: None)
    log.flush()
    adoption.commit()
    log.take_adopted(adoption)
    log.release()


def check_whole(home, *, end=None):
    """Of the log as a start finds it: whether the offer is in it, all of it."""
    log = open_log(home, SMALL, clean=False)
    offsets = [batch.base_offset for batch in iter_batches(whole(log), partial_tail=False)]
    adopted = [4, 7, 10, 13, 16, 19]
    assert offsets in ([0, 1, 2, 3], [0, 1, 2, 3, *adopted])
    assert log.first_unstable_offset == (4 if len(offsets) > BEFORE else None)
    assert not [path.name for path in home.iterdir() if path.suffix in (".tmp", ".corrupt", ".deleted")]
    assert not (home / "adoption-checkpoint").exists()
    log.append_as_leader(batch_of(9000), EPOCH)
    log.close()
    return len(offsets) > BEFORE


@pytest.mark.parametrize("crash_again", [False, True])
def test_a_process_that_dies(prepared, tmp_path, crash_again):
    outcomes = []
    for n in range(MOST_STEPS):
        home = tmp_path / f"try-{n}" / "t-0"
        log, adoption = begin(prepared, home)
        crashed = crash_at(home, n, lambda log=log, adoption=adoption: adopt(log, adoption))
        abandon(log)
        if crash_again:
            crash_at(home, n // 3, lambda home=home: abandon(open_log(home, SMALL, clean=False)))
        outcomes.append(check_whole(home))
        if not crashed:
            break
    assert not crashed
    assert outcomes == sorted(outcomes), "once it is certain it is never undone"
    assert set(outcomes) == {False, True}


def test_power_that_fails(prepared, tmp_path):
    """What the disk may hold then, drawn anew at each step."""
    outcomes = set()
    for n in range(MOST_STEPS):
        home = tmp_path / f"try-{n}" / "t-0"
        log, adoption = begin(prepared, home)
        log.flush()
        for path in home.glob("*.tmp"):
            path.touch()
        files = FaultyFiles(home, crash_at=n)
        with suppress(Crash), files:
            adopt(log, adoption)
        abandon(log)
        for seed in range(3):
            elsewhere = tmp_path / f"cut-{n}-{seed}" / "t-0"
            elsewhere.parent.mkdir()
            files.cut(elsewhere, seed=seed)
            outcomes.add(check_whole(elsewhere))
        if not files.crashed:
            break
    assert not files.crashed
    assert outcomes == {False, True}


def test_a_full_disk(prepared, tmp_path):
    """Refused at any step, the log is as it was, or the log directory fails and the next start finishes it."""
    told = set()
    for n in range(MOST_STEPS):
        home = tmp_path / f"try-{n}" / "t-0"
        log, adoption = begin(prepared, home)
        files = FaultyFiles(home, fail_at=n, error=28)
        refused = None
        try:
            with files:
                adopt(log, adoption)
        except (OSError, LogDirFailed) as error:
            refused = error
        told.add(type(refused))
        if isinstance(refused, DiskFull | OSError):
            log.release()
            adoption.discard()
            assert log.log_end_offset == BEFORE
            log.append_as_leader(batch_of(9000), EPOCH)
            log.close()
            assert not list(home.glob("*.tmp"))
            assert not (home / "adoption-checkpoint").exists()
        else:
            adoption.discard()
            abandon(log)
            check_whole(home)
        if files.count <= n:
            break
    assert files.count <= n
    assert {type(None), DiskFull, LogDirFailed} <= told
