"""Segments that take the place of others: all of it or nothing, whatever was left half done."""

import os
from contextlib import suppress
from pathlib import Path

import pytest
from log.samples import SMALL, batch_of, marker_of, open_log, read_bytes, transactional, whole, write_cleaned

from sparklog.errors import CorruptRecord, LogDirFailed, LogError
from sparklog.log.drafts import adopt_drafts
from sparklog.log.files import draft_suffix
from sparklog.log.origin import AppendOrigin
from sparklog.log.swap import call_off, finish_interrupted, is_interrupted, prepare, undo
from sparklog.record.control import ControlType
from sparklog.record.records import iter_batches
from sparklog.testing.files import Crash, FaultyFiles

COMPACTED = SMALL | {"cleanup.policy": "compact"}  # so that holes between segments are no damage


@pytest.fixture
def home(tmp_path):
    return tmp_path / "t-0"


@pytest.fixture
def log(home):
    """Four segments and more, a record a batch."""
    log = open_log(home, COMPACTED)
    while log.segment_count < 5:
        log.append_as_leader(batch_of(1000 + log.log_end_offset, size=100, key=b"k"), 0)
    return log


def bases(log):
    return list(log._segments.bases)


def batches_of(log):
    return [bytes(batch.buffer) for batch in iter_batches(whole(log))]


def every_other(log, start, end):
    """The batches that a compaction of ``start`` to ``end`` keeps."""
    inside = [data for data in batches_of(log) if start <= int.from_bytes(data[:8], "big") < end]
    return inside[::2]


def test_two_segments_become_one(log, home):
    first, second, third, *_ = bases(log)
    before = batches_of(log)
    kept = every_other(log, first, third)
    write_cleaned(home, first, kept, log.config)
    doomed = log.replace_segments([first], [first, second])
    assert sorted(path.name for path in doomed) == sorted(
        f"{base:020d}{kind}.deleted" for base in (first, second) for kind in (".log", ".index", ".timeindex")
    )
    expected = kept + [data for data in before if int.from_bytes(data[:8], "big") >= third]
    assert batches_of(log) == expected
    assert not list(home.glob("*.swap")) + list(home.glob("*.cleaned"))
    for offset in range(log.log_end_offset):
        found = log.read(offset, 1, log.end, min_one_batch=True)
        assert next(iter_batches(read_bytes(found))).last_offset >= offset
    log.close()
    for clean in (True, False):
        again = open_log(home, COMPACTED, clean=clean)
        assert batches_of(again) == expected
        again.close()


def test_a_reader_of_a_replaced_segment_reads_on(log, home):
    first, second, *_ = bases(log)
    piece = log.read(first, 1 << 20, log.end, min_one_batch=True)
    before = read_bytes(piece)
    write_cleaned(home, first, every_other(log, first, second), log.config)
    for path in log.replace_segments([first], [first]):
        path.unlink()
    assert read_bytes(piece) == before
    log.close()


@pytest.mark.parametrize("case", ["active", "unknown", "nothing", "before"])
def test_what_cannot_be_replaced_is_refused_and_nothing_changes(log, home, case):
    first, second, *_ = bases(log)
    new, old = {
        "active": ([first], [first, bases(log)[-1]]),
        "unknown": ([first], [first, 12345]),
        "nothing": ([first], []),
        "before": ([first], [second]),
    }[case]
    before, files = batches_of(log), sorted(home.iterdir())
    with pytest.raises(LogError, match="cannot replace"):
        log.replace_segments(new, old)
    assert (batches_of(log), sorted(home.iterdir())) == (before, files)
    log.close()


def test_a_swap_that_the_disk_refuses_is_said_with_the_directory(log, home):
    first, second, *_ = bases(log)
    write_cleaned(home, first, every_other(log, first, second), log.config)
    before = batches_of(log)
    with FaultyFiles(home, fail_at=0, steps=("rename",)), pytest.raises(LogDirFailed, match=f"cannot swap .* {home}"):
        log.replace_segments([first], [first])
    assert batches_of(log) == before
    log.close()


def test_the_transaction_index_is_swapped_with_its_segment(home):
    log = open_log(home)
    log.append_as_leader(transactional(1, 0), 0, AppendOrigin.COORDINATOR)
    log.append_as_leader(marker_of(1, ControlType.ABORT), 0, AppendOrigin.COORDINATOR)
    log.roll()
    assert len(log.aborted_transactions(0, 9)) == 1
    write_cleaned(home, 0, batches_of(log), log.config)
    log.replace_segments([0], [0])
    assert log.aborted_transactions(0, 9) == [], "the rewrite wrote none, so there is none"
    log.close()


def test_a_swap_that_a_start_finishes_leaves_no_transaction_index_of_what_was_replaced(home):
    log = open_log(home)
    log.append_as_leader(transactional(1, 0), 0, AppendOrigin.COORDINATOR)
    log.append_as_leader(marker_of(1, ControlType.ABORT), 0, AppendOrigin.COORDINATOR)
    log.roll()
    write_cleaned(home, 0, batches_of(log), log.config)
    log.close()
    prepare(home, [0])
    again = open_log(home)
    assert again.aborted_transactions(0, 9) == [], "the rewrite wrote none"
    again.close()


def test_a_swap_file_that_cannot_be_read_replaces_nothing(log, home):
    first, second, *_ = bases(log)
    write_cleaned(home, first, every_other(log, first, second), log.config)
    log.close()
    (home / f"{first:020d}.log.cleaned").rename(home / f"{first:020d}.log.swap")
    for path in home.glob("*.cleaned"):
        path.rename(path.with_suffix(".swap"))
    with open(home / f"{first:020d}.log.swap", "r+b") as file:
        file.truncate(70)
    before = sorted(home.iterdir())
    with pytest.raises(CorruptRecord, match=r"\.log\.swap"):
        finish_interrupted(home)
    assert sorted(home.iterdir()) == before


def swapped_half(log, home, keep=slice(None)):
    """A rewrite of the first two segments is certain and not in place yet; the log is closed. What it is to hold."""
    first, _, third, *_ = bases(log)
    before = batches_of(log)
    inside = [data for data in before if int.from_bytes(data[:8], "big") < third]
    write_cleaned(home, first, inside[keep], log.config)
    log.close()
    prepare(home, [first])
    return inside[keep] + before[len(inside) :]


@pytest.mark.parametrize("keep", [slice(None), slice(None, -1), slice(0, 1)], ids=["all", "but the last", "one"])
def test_a_swap_that_is_certain_is_finished_by_the_next_start(log, home, keep, caplog):
    """Also where the rewrite reaches just to the next segment, which stays."""
    first, second, third, *_ = bases(log)
    expected = swapped_half(log, home, keep)
    for _ in range(2):
        finish_interrupted(home)
    assert not [*home.glob("*.swap"), *home.glob("*.cleaned"), *home.glob("*.deleted")]
    assert f"{home}: a swap of segments was interrupted; it is finished" in caplog.text
    left = sorted(int(path.stem) for path in home.glob("*.log"))
    assert left[0] == first
    assert third in left
    assert (second in left) is (keep == slice(0, 1)), "it is beyond what the rewrite holds"
    if second not in left:
        again = open_log(home, COMPACTED)
        assert batches_of(again) == expected
        again.close()


def test_a_rewrite_that_was_not_complete_is_undone_and_another_that_is_certain_stays(log, home, caplog):
    first, second, third, fourth, *_ = bases(log)
    write_cleaned(home, first, every_other(log, first, second), log.config)
    write_cleaned(home, third, every_other(log, third, fourth), log.config)
    before = batches_of(log)
    log.close()
    prepare(home, [third])
    undo(home)
    assert not [*home.glob("*.swap"), *home.glob("*.cleaned")], "what lies behind the first is undone with it"
    finish_interrupted(home)
    again = open_log(home, COMPACTED)
    assert batches_of(again) == before
    again.close()


def test_a_certain_swap_before_a_rewrite_that_was_not_complete_is_finished(log, home, caplog):
    first, second, third, fourth, *_ = bases(log)
    kept = every_other(log, first, second)
    write_cleaned(home, first, kept, log.config)
    write_cleaned(home, third, every_other(log, third, fourth), log.config)
    before = batches_of(log)
    log.close()
    prepare(home, [first])
    finish_interrupted(home)
    assert f"{home}: a rewrite from offset {third} on was interrupted; it is undone" in caplog.text
    again = open_log(home, COMPACTED)
    assert batches_of(again) == kept + [data for data in before if int.from_bytes(data[:8], "big") >= second]
    again.close()


def test_a_swap_that_was_called_off_is_undone_however_far_it_came(log, home):
    first, second, third, *_ = bases(log)
    before = batches_of(log)
    for base, end in ((first, second), (second, third)):
        write_cleaned(home, base, every_other(log, base, end), log.config)
    prepare(home, [first, second])
    call_off(home, [second, first])
    assert [path.name for path in home.glob("*.cleaned")] == [f"{first:020d}.log.cleaned"]
    call_off(home, [second, first])
    undo(home)
    undo(home)
    assert not [*home.glob("*.swap"), *home.glob("*.cleaned")]
    assert batches_of(log) == before
    log.close()


def test_what_is_to_be_swapped_is_on_the_disk_before_it_is_certain(log, home, monkeypatch):
    first, second, *_ = bases(log)
    write_cleaned(home, first, every_other(log, first, second), log.config)
    steps, fsync, rename = [], os.fsync, os.rename

    def synced(fd):
        steps.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        fsync(fd)

    def renamed(source, target):
        steps.append(f"to {Path(target).suffix}")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    prepare(home, [first])
    names = [f"{first:020d}{kind}.cleaned" for kind in (".log", ".index", ".timeindex")]
    assert set(steps[: steps.index(home.name)]) == set(names)
    assert steps[steps.index(home.name) :] == [home.name, "to .swap", "to .swap", "to .swap", home.name]
    log.close()


@pytest.mark.parametrize("step", range(7))
def test_a_swap_is_certain_when_the_last_of_its_files_has_its_name(log, home, step):
    """A crash before leaves all of the old segments, and none of the new ones."""
    first, second, third, *_ = bases(log)
    before, kept = batches_of(log), []
    for base, end in ((first, second), (second, third)):
        kept += every_other(log, base, end)
        write_cleaned(home, base, every_other(log, base, end), log.config)
    behind = [data for data in before if int.from_bytes(data[:8], "big") >= third]
    log.close()
    with FaultyFiles(home, crash_at=step, steps=("rename",)), suppress(Crash):
        prepare(home, [first, second])
    again = open_log(home, COMPACTED)
    assert batches_of(again) == (before if step < 6 else kept + behind)
    assert not [*home.glob("*.swap"), *home.glob("*.cleaned")]
    again.close()


@pytest.mark.parametrize(
    ("names", "is_so"),
    [
        ((), False),
        (("0.log", "0.index", "0.timeindex", "0.txnindex", "1.log", "leader-epoch-checkpoint"), False),
        (("0.log", "0.index.deleted"), True),
        (("0.log.7.tmp",), True),
        (("0.log", "0.log.cleaned"), True),
        (("0.log.swap",), True),
        (("0.log", "0.index", "1.timeindex"), True),
    ],
)
def test_what_a_crash_left_half_done_is_known_by_names(names, is_so):
    assert is_interrupted(names) is is_so


def test_what_is_missing_leaves_the_others_as_they_are(log, home):
    first, second, third, *_ = bases(log)
    write_cleaned(home, first, every_other(log, first, second), log.config)
    names = sorted(path.name for path in home.iterdir())
    with pytest.raises(FileNotFoundError):
        prepare(home, [first, third])
    assert sorted(path.name for path in home.iterdir()) == names
    log.close()


def test_an_index_without_its_log_is_removed(log, home):
    log.close()
    orphan = home / f"{99999:020d}.index"
    orphan.touch()
    finish_interrupted(home)
    assert not orphan.exists()


def test_a_draft_that_is_missing_takes_the_others_with_it(home, log):
    first, second, third, *_ = bases(log)
    before = batches_of(log)
    write_cleaned(home, first, every_other(log, first, third), log.config)
    for path in home.glob("*.cleaned"):
        path.rename(path.with_name(path.name.removesuffix(".cleaned") + draft_suffix("mine")))
    with pytest.raises(FileNotFoundError):
        adopt_drafts(home, [first, second], "mine")
    assert not list(home.glob("*.cleaned"))
    for tag in ("", "a.b", "../x", "x" * 65, "\u00e4"):
        with pytest.raises(LogError, match="cannot be in a file's name"):
            adopt_drafts(home, [first], tag)
    assert batches_of(log) == before
