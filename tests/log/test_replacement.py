"""One swap of segments: what holds while it is under way, and what is left where the disk refuses it."""

import errno
from contextlib import suppress

import pytest
from compaction.keyed import append, fill, leftovers, records_of, segment_files
from log.samples import open_log, read_bytes, write_cleaned

from sparklog.errors import DiskFull, LogDirFailed, LogError, SegmentsLeased
from sparklog.log.lease import Lease
from sparklog.record.records import iter_batches
from sparklog.testing.files import FaultyFiles

SEGMENT_RECORDS = 4
SETTINGS = {"cleanup.policy": "compact,delete", "retention.ms": "-1", "segment.bytes": "700"}


@pytest.fixture
def log(tmp_path):
    log = open_log(tmp_path / "t-0", SETTINGS)
    fill(log)
    yield log
    log.close()


def cleaned(log):
    """Half of the batches of the first three segments, written anew as one: new and old base offsets."""
    first, second, third, fourth, *_ = log._segments.bases
    whole = b"".join(map(bytes, log.read_all(1 << 20)))
    kept = [bytes(batch.buffer) for batch in iter_batches(whole) if batch.base_offset < fourth][::2]
    write_cleaned(log.directory, first, kept, log.config)
    return [first], [first, second, third]


def after_of(before, replacement):
    """What is left of the records when every other one of the old segments is gone; each is a batch."""
    end = replacement.gone[-1].base_offset
    inside = [each for each in before if each[0] < end or each[0] - end < SEGMENT_RECORDS]
    return inside[::2] + before[len(inside) :]


def test_until_it_is_adopted_the_old_segments_are_read(log):
    before = records_of(log)
    *_, behind = log._segments.bases[:4]
    replacement = log.begin_replacement(*cleaned(log))
    assert replacement.end_offset == behind
    assert records_of(log) == before
    replacement.perform()
    assert records_of(log) == before, "by the descriptors that are open"
    piece = log.read(0, 1 << 20, log.end, min_one_batch=True)
    old = read_bytes(piece)
    for path in log.adopt(replacement):
        path.unlink()
    assert read_bytes(piece) == old
    assert len(records_of(log)) < len(before)
    assert leftovers(log.directory) == []


def test_retention_passes_over_segments_that_are_being_replaced(log):
    replacement = log.begin_replacement(*cleaned(log))
    log.advance_start(log.log_end_offset - 1)
    assert log.delete_old_segments(log.log_end_offset) == []
    replacement.perform()
    log.adopt(replacement)
    assert log.delete_old_segments(log.log_end_offset) != []


def test_how_often_segments_gave_way_to_others_is_counted(log):
    counts = [log.replacements]
    log.replace_segments(*cleaned(log))
    counts.append(log.replacements)
    for _ in range(2):
        first, second, *_ = log._segments.bases
        whole = b"".join(map(bytes, log.read_all(1 << 20)))
        kept = [bytes(batch.buffer) for batch in iter_batches(whole) if batch.base_offset < second]
        write_cleaned(log.directory, first, kept, log.config)
        log.replace_segments([first], [first])
        counts.append(log.replacements)
    assert counts == [0, 1, 2, 3]


def test_a_replacement_that_is_given_up_holds_nothing(log):
    log.begin_replacement(*cleaned(log)).end()
    log.advance_start(log.log_end_offset - 1)
    assert log.delete_old_segments(log.log_end_offset) != []


def test_two_replacements_of_one_segment_do_not_meet(log):
    new, old = cleaned(log)
    first = log.begin_replacement(new, old)
    with pytest.raises(SegmentsLeased):
        log.begin_replacement(new, old)
    first.end()
    log.begin_replacement(new, old).end()


def test_a_leased_segment_is_not_replaced_until_the_lease_ends(log):
    new, old = cleaned(log)
    names = segment_files(log.directory)
    lease = Lease(0.0, 10.0)
    lease.hold(log._segments._segments[2].leases)
    with pytest.raises(SegmentsLeased, match="are leased to readers"):
        log.replace_segments(new, old)
    assert segment_files(log.directory) == names
    lease.end()
    log.replace_segments(new, old)


def test_a_closed_log_replaces_nothing(log):
    new, old = cleaned(log)
    log.abandon()
    with pytest.raises(LogError, match="is closed"):
        log.begin_replacement(new, old)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE])
def test_a_full_disk_changes_nothing_or_the_log_directory_is_given_up(log, error):
    """At any step; what is refused as DiskFull can be tried again in other groups, also by the next start."""
    before, names = records_of(log), segment_files(log.directory)
    kinds = []
    for step in range(100):
        new, old = cleaned(log)
        replacement = log.begin_replacement(new, old)
        with FaultyFiles(log.directory, fail_at=step, error=error) as files:
            try:
                replacement.perform()
            except DiskFull:
                kinds.append(DiskFull)
            except LogDirFailed:
                kinds.append(LogDirFailed)
            else:
                kinds.append(None)
        replacement.end()
        if kinds[-1] is not DiskFull:
            break
        assert records_of(log) == before
        assert segment_files(log.directory) == names, f"step {step}"
    assert files.count > step
    assert len(kinds) > 8, "as many steps as it takes to make the swap certain, the last sync with them"
    again = open_log(log.directory, SETTINGS, clean=False)
    assert leftovers(log.directory) == []
    assert len(records_of(again)) < len(before), "it was certain"
    again.close()


def test_a_swap_that_can_neither_be_made_nor_undone_is_left_to_the_next_start(tmp_path):
    """From any step on the disk refuses all; what a start finds then is the old segments or the new one."""
    for step in range(100):
        log = open_log(tmp_path / str(step) / "t-0", SETTINGS)
        fill(log)
        before = records_of(log)
        replacement = log.begin_replacement(*cleaned(log))
        faults = FaultyFiles(log.directory, fail_at=step, error=errno.EIO, lasting=True)
        with faults as files, suppress(LogDirFailed):
            replacement.perform()
        replacement.end()
        again = open_log(log.directory, SETTINGS, clean=False)
        found = records_of(again)
        assert leftovers(log.directory) == []
        assert found in (before, after_of(before, replacement))
        again.close()
        if files.count <= step:
            assert len(found) < len(before)
            return
    raise AssertionError("a swap has no end of steps")


def test_what_was_not_written_does_not_replace_anything(log):
    """The files under ``.cleaned`` are gone: those that they were to replace stay."""
    before, names = records_of(log), segment_files(log.directory)
    first, second, *_ = log._segments.bases
    replacement = log.begin_replacement([first], [first, second])
    with pytest.raises(LogError, match="nothing is replaced"):
        replacement.perform()
    replacement.end()
    assert segment_files(log.directory) == names
    assert records_of(log) == before


def test_the_snapshot_of_a_segment_that_is_no_more_goes(log):
    append(log, (b"k", b"v"))
    new, old = cleaned(log)
    log.replace_segments(new, old)
    kept = {int(path.name[:20]) for path in log.directory.glob("*.snapshot")}
    assert kept.isdisjoint(set(old) - set(new))


def test_a_snapshot_that_the_disk_keeps_keeps_no_segment(log):
    """It is all done by then; what stays of it a start removes."""
    new, old = cleaned(log)
    replacement = log.begin_replacement(new, old)
    replacement.perform()
    with FaultyFiles(log.directory, fail_at=0, error=errno.EIO, steps=("unlink",)) as files:
        doomed = log.adopt(replacement)
    assert files.count > 0
    assert doomed == replacement.doomed
    log.close()
    again = open_log(log.directory, SETTINGS)
    assert {int(path.name[:20]) for path in log.directory.glob("*.snapshot")}.isdisjoint(set(old) - set(new))
    again.close()
