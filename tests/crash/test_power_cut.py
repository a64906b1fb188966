"""The machine loses its power: what was flushed is there, nothing is invented, and work goes on."""

import errno
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from crash.ledger import check_retry, unique_batch
from crash.workload import Workload, let_go

from sparklog.errors import LogError
from sparklog.log.files import CLEAN_SHUTDOWN_MARKER
from sparklog.structs import TopicPartition
from sparklog.testing.files import STEPS, Crash, FaultyFiles

CUTS = 3
ROUNDS = 3
SECTOR = 512


def contents(home: Path, suffixes: frozenset[str]) -> dict[str, bytes]:
    paths = [path for path in sorted(home.rglob("*")) if path.is_file() and path.suffix in suffixes]
    return {str(path.relative_to(home)): path.read_bytes() for path in paths}


def check(work: Workload, home: Path) -> dict[TopicPartition, Any]:
    """The directory opens and keeps every promise, twice over and after a clean stop; the batches of each partition."""
    stopped = (home / CLEAN_SHUTDOWN_MARKER).exists()
    manager = work.open(home)
    expected = {tp for tp in work.ledgers if tp not in work.in_doubt}
    assert expected <= set(manager.logs), f"gone: {expected - set(manager.logs)} {manager.unusable}"
    assert not work.deleted & set(manager.logs), f"deleted, and back: {work.deleted & set(manager.logs)}"
    found = {tp: work.ledgers[tp].check(manager.logs[tp]) for tp in expected}
    let_go(manager)
    kept = frozenset({".log", ".corrupt"} if stopped else {".log", ".corrupt", ".index", ".timeindex", ".txnindex", ""})
    before = contents(home, kept)
    again = work.open(home)
    assert {tp: work.ledgers[tp].check(again.logs[tp]) for tp in expected} == found
    let_go(again)
    after = contents(home, kept)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert not changed, f"the second opening changed {sorted(changed)}"
    check_goes_on(work, home, found)
    return found


def check_goes_on(work: Workload, home: Path, found: dict[TopicPartition, Any]) -> None:
    manager = work.open(home)
    for number, (tp, batches) in enumerate(found.items()):
        log = manager.logs[tp]
        check_retry(log, batches)
        records = unique_batch(10**9 + number, 1, 10)
        assert log.append_as_leader(records, 10**6).first_offset == log.log_end_offset - 1
        work.ledgers[tp].attempt_behind(batches, bytes(records))
    manager.close()
    closed = work.open(home)
    for tp, batches in found.items():
        assert work.ledgers[tp].check(closed.logs[tp])[:-1] == batches
    let_go(closed)


def crashing(home: Path, chance: Random) -> FaultyFiles:
    return FaultyFiles(home, crash_at=chance.randrange(400), half=chance.random() < 0.5)


def failing(home: Path, chance: Random) -> FaultyFiles:
    error = chance.choice((errno.EIO, errno.ENOSPC, errno.EROFS))
    kinds = chance.choice((STEPS, ("fsync", "fdatasync"), ("pwrite",)))
    at = chance.randrange(400 if kinds is STEPS else 60)
    lasting, half = chance.random() < 0.5, chance.random() < 0.5
    return FaultyFiles(home, fail_at=at, error=error, lasting=lasting, half=half, steps=kinds)


Faults = Callable[[Path, Random], FaultyFiles]


def cut_short(work: Workload, home: Path, files: FaultyFiles) -> None:
    with suppress(Crash, LogError), files:
        work.run(home, 150)
    work.died()


def cut_and_check(seed: int, tmp_path: Path, faults: Faults) -> None:
    chance = Random(seed)
    work = Workload(chance)
    home = tmp_path / "disk"
    home.mkdir()
    for number in range(ROUNDS):
        files = faults(home, chance)
        cut_short(work, home, files)
        for attempt in range(CUTS):
            page = chance.choice((SECTOR, 4096))
            cut_seed = chance.getrandbits(32)
            copies = [tmp_path / f"{number}-{attempt}", tmp_path / f"{number}-{attempt}-checked"]
            for copy in copies:
                files.cut(copy, cut_seed, page=page)
            try:
                found = check(work, copies[1])
            except BaseException as error:
                error.add_note(
                    f"seed {seed}, round {number}, cut {attempt} (seed {cut_seed}, page {page}): {copies[0]}"
                )
                raise
            shutil.rmtree(copies[1])
        home = copies[0]
        work.restarted(found)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 15))])
@pytest.mark.parametrize("faults", [crashing, failing])
def test_what_was_flushed_outlives_a_power_cut(faults, seed, tmp_path):
    cut_and_check(seed, tmp_path, faults)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1300))
@pytest.mark.parametrize("faults", [crashing, failing])
def test_what_was_flushed_outlives_many_power_cuts(faults, seed, tmp_path):
    cut_and_check(seed, tmp_path, faults)
