"""A roll cut short at every step by a power cut: what counts as flushed is read with the right indexes."""

from contextlib import suppress

from log.samples import batch_of, open_log, read_bytes

from sparklog.record.records import iter_batches
from sparklog.testing.files import Crash, FaultyFiles

MOST_STEPS = 100
CUTS = 4
EACH_BATCH = {"index.interval.bytes": "0"}


def prepared(home):
    """A log whose batches are all flushed, and whose index had one entry more before a truncation."""
    log = open_log(home, EACH_BATCH)
    for number in range(3):
        log.append_as_leader(batch_of(number, size=100), 0)
    log.flush()
    log.truncate_to(log.log_end_offset - 1)
    log.flush()
    assert log.recovery_point == log.log_end_offset
    return log


def rolled(home, crash_at=None):
    """A roll under faults, and the number of steps before it."""
    (home / "t-0").mkdir(parents=True)
    files = FaultyFiles(home, crash_at=crash_at)
    with suppress(Crash), files:
        log = prepared(home / "t-0")
        before = files.count
        log.roll()
    return log, files, before


def test_rolling(tmp_path):
    _, _, before = rolled(tmp_path / "whole")
    for n in range(MOST_STEPS):
        home = tmp_path / f"try-{n}"
        log, files, _ = rolled(home, before + n)
        for seed in range(CUTS):
            left = tmp_path / f"cut-{n}-{seed}" / "t-0"
            files.cut(left.parent, seed)
            if len(list(left.glob("*.log"))) > 1:  # so that the first is not scanned: its indexes are believed
                for name in ("0" * 20 + suffix for suffix in (".index", ".timeindex")):
                    assert (left / name).read_bytes() == (home / "t-0" / name).read_bytes(), f"{name}, step {n}"
            found = open_log(left, EACH_BATCH, clean=False, recovery_point=log.recovery_point)
            assert found.log_end_offset == log.recovery_point
            for offset in range(found.log_end_offset):
                piece = found.read(offset, 1, found.end, min_one_batch=True)
                assert [each.base_offset for each in iter_batches(read_bytes(piece))] == [offset]
            found.close()
        if not files.crashed:
            break
    else:
        raise AssertionError("a roll has no end of steps")
