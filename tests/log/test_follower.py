"""What replication does to a log: batches as the leader gave them, truncation to where an epoch ended, a new start."""

import errno
import os

import pytest
from log.samples import batch_of, open_log, whole

from sparklog.errors import CorruptRecord, DiskFull, LogDirFailed, LogError
from sparklog.log.leader_epochs import read_epochs
from sparklog.record import layout
from sparklog.record.batch import RecordBatch, patch_header, patch_max_timestamp
from sparklog.record.compression import CompressionType
from sparklog.record.records import iter_batches, iter_records
from sparklog.testing.files import FaultyFiles
from sparklog.testing.steps import finish

ROLLS = {"segment.bytes": "250"}


@pytest.fixture
def home(tmp_path):
    return tmp_path / "t-0"


def sent(*batches):
    """(offset, epoch, records a batch) as one Fetch answer holds them."""
    out = bytearray()
    for offset, epoch, count in batches:
        one = bytearray(batch_of(*range(1000, 1000 + count)))
        patch_header(one, 0, offset, epoch)
        out += one
    return memoryview(out)


def offsets(log):
    return [batch.base_offset for batch in iter_batches(whole(log))]


@pytest.mark.parametrize("settings", [{}, ROLLS], ids=["one segment", "several"])
def test_batches_are_kept_as_they_came_holes_and_epochs_with_them(home, settings):
    log = open_log(home, settings)
    first, second = sent((0, 1, 2), (2, 1, 1), (10, 3, 2)), sent((12, 3, 1), (40, 7, 1))
    assert log.append_as_follower(first) == 12
    assert log.append_as_follower(second) == 41
    assert whole(log) == bytes(first) + bytes(second)
    assert [log.epochs.epoch_at(offset) for offset in (0, 9, 10, 39, 40)] == [1, 1, 3, 3, 7]
    log.close()
    log = open_log(home, settings)
    assert (log.log_end_offset, whole(log)) == (41, bytes(first) + bytes(second))
    found = log.read(5, 1, log.end, min_one_batch=True)
    assert next(iter_batches(os.pread(found.file.fileno(), found.size, found.position))).base_offset == 10
    log.close()


def test_the_records_of_a_batch_are_not_decoded(home):
    """They are no zstd though the batch says so: a reader is refused, and a copy has the leader's bytes."""
    one = bytearray(batch_of(1000, 1001, codec=CompressionType.ZSTD))
    one[layout.HEADER_SIZE :] = b"\xff" * (len(one) - layout.HEADER_SIZE)
    patch_max_timestamp(one, 0, RecordBatch(one).max_timestamp)  # and with it the CRC
    patch_header(one, 0, 0, 3)
    with pytest.raises(CorruptRecord):
        list(iter_records(RecordBatch(one)))
    log = open_log(home)
    assert log.append_as_follower(memoryview(one)) == 2
    assert whole(log) == bytes(one)
    log.close()
    assert (home / "00000000000000000000.log").read_bytes() == bytes(one)


def test_a_batch_cut_short_at_the_end_is_left_out(home):
    log = open_log(home)
    assert log.append_as_follower(sent((0, 0, 1), (1, 0, 1))[:-1]) == 1
    assert log.append_as_follower(memoryview(b"")) == 1
    assert offsets(log) == [0]
    log.close()


@pytest.mark.parametrize("times", [(5000, 1000, 2000), (1000, 5000, 2000), (1000, 2000, 5000), (5000, 2000, 5000)])
def test_the_latest_time_of_several_batches_is_known_whichever_bears_it(home, times):
    log, answer = open_log(home), bytearray()
    for offset, time in enumerate(times):
        one = bytearray(batch_of(time))
        patch_header(one, 0, offset, 0)
        answer += one
    log.append_as_follower(memoryview(answer))
    assert finish(log.latest_timestamp()) == (5000, times.index(5000))
    assert log.segment_facts()[0].latest_timestamp == 5000
    log.close()


def test_what_does_not_lie_behind_the_end_is_refused_whole(home):
    log = open_log(home)
    log.append_as_follower(sent((0, 0, 5)))
    for records in (sent((4, 0, 1)), sent((5, 0, 2), (6, 0, 1)), sent((5, 0, 1), (5, 0, 1))):
        with pytest.raises(LogError, match="is due"):
            log.append_as_follower(records)
    damaged = sent((5, 0, 1), (6, 0, 1))
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecord):
        log.append_as_follower(damaged)
    assert (offsets(log), log.log_end_offset) == ([0], 5)
    log.close()


def test_a_hole_wider_than_an_index_can_say_rolls_a_segment(home):
    log = open_log(home)
    far = 1 << 33
    log.append_as_follower(sent((0, 0, 1)))
    log.append_as_follower(sent((far, 0, 1)))
    assert (log.segment_count, log.log_end_offset) == (2, far + 1)
    assert (home / f"{far:020d}.log").exists()
    log.close()
    assert open_log(home).log_end_offset == far + 1


def test_an_empty_segment_before_a_hole_wider_than_an_index_can_say_goes(home):
    log = open_log(home)
    far = 1 << 33
    log.append_as_follower(sent((far, 0, 1)))
    assert (log._segments.bases, log.log_start_offset, offsets(log)) == ((far,), far, [far])
    log.close()
    assert [path.name for path in home.glob("*.log")] == [f"{far:020d}.log"]
    log = open_log(home)
    assert (log.log_start_offset, log.log_end_offset) == (far, far + 1)


@pytest.mark.parametrize(("beyond", "base"), [(0, 1), (1, (1 << 31) + 1)])
def test_a_segment_behind_a_hole_begins_where_the_one_before_it_ends_if_it_can(home, beyond, base):
    """So that a hole is told from a lost end."""
    log = open_log(home)
    log.append_as_follower(sent((0, 0, 1)))
    log.append_as_follower(sent(((1 << 31) + beyond, 0, 1)))
    assert log._segments.bases == (0, base)
    log.close()


@pytest.mark.parametrize(("epoch", "end"), [(9, 41), (7, 41), (6, 40), (3, 40), (2, 10), (1, 10), (0, 0)])
@pytest.mark.parametrize("settings", [{}, ROLLS], ids=["one segment", "several"])
def test_a_log_is_cut_to_where_an_epoch_ended(home, settings, epoch, end):
    log = open_log(home, settings)
    log.append_as_follower(sent((0, 1, 2), (2, 1, 8), (10, 3, 30), (40, 7, 1)))
    before = {batch.base_offset for batch in iter_batches(whole(log))}
    assert log.truncate_to_epoch_end(epoch) == end
    assert offsets(log) == sorted(offset for offset in before if offset < end)
    assert log.epochs.latest is None or log.epochs.latest.start_offset < end
    assert tuple(read_epochs(home / "leader-epoch-checkpoint")) == log.epochs.entries
    log.close()
    assert open_log(home, settings).log_end_offset == end


def test_without_any_epoch_there_is_no_end_to_cut_to(home):
    log = open_log(home)
    log.append_as_follower(sent((0, -1, 2)))
    with pytest.raises(LogError, match="knows no leader epoch"):
        log.truncate_to_epoch_end(3)
    assert log.log_end_offset == 2
    log.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_begins_anew_where_its_leader_does(home, clean):
    log = open_log(home, ROLLS)
    log.append_as_follower(sent(*((offset, 2, 1) for offset in range(9))))
    log.restart_at(500)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point, whole(log)) == (500, 500, 500, b"")
    assert log.epochs.latest is None
    log.append_as_follower(sent((500, 4, 1)))
    if clean:
        log.close()
    log = open_log(home, ROLLS, clean=clean)
    assert (log.log_start_offset, log.log_end_offset) == (500, 501)
    log.close()


def test_a_log_for_which_a_full_disk_has_no_new_beginning_is_as_it_was(home):
    log = open_log(home, ROLLS)
    log.append_as_follower(sent(*((offset, 2, 1) for offset in range(9))))
    files = sorted(path.name for path in home.iterdir())
    before = whole(log)
    for step in range(3):
        with FaultyFiles(home, fail_at=step, error=errno.ENOSPC, steps=("open", "ftruncate")), pytest.raises(DiskFull):
            log.restart_at(500)
        assert sorted(path.name for path in home.iterdir()) == files
        assert (log.log_end_offset, whole(log)) == (9, before)
    assert log.append_as_follower(sent((9, 2, 1))) == 10
    log.restart_at(500)
    assert (log.log_end_offset, log.segment_count) == (500, 1)
    log.close()


def test_a_log_may_begin_anew_where_it_ends(home):
    log = open_log(home, ROLLS)
    log.append_as_follower(sent(*((offset, 2, 1) for offset in range(9))))
    log.roll()
    log.restart_at(9)
    assert (log.log_start_offset, log.log_end_offset, log.segment_count) == (9, 9, 1)
    assert log.append_as_follower(sent((9, 2, 1))) == 10
    log.close()
    assert open_log(home, ROLLS).log_end_offset == 10


def test_a_truncation_needs_no_room_for_other_names(home):
    log = open_log(home, ROLLS)
    for offset in range(20):
        log.append_as_follower(sent((offset, 2, 1)))
    with FaultyFiles(home, fail_at=0, lasting=True, error=errno.ENOSPC, steps=("rename",)):
        log.truncate_to(3)
    assert (log.log_end_offset, offsets(log)) == (3, [0, 1, 2])
    assert {int(path.stem) for path in home.glob("*.log")} == set(log._segments.bases)
    log.close()


@pytest.mark.parametrize("step", range(8))
def test_what_a_truncation_could_not_take_away_is_taken_away_by_the_next(home, step):
    log = open_log(home, ROLLS)
    for offset in range(20):
        log.append_as_follower(sent((offset, 2, 1)))
    refusing = FaultyFiles(home, fail_at=step, lasting=True, error=errno.ENOSPC, steps=("rename", "unlink"))
    with refusing, pytest.raises(DiskFull):
        log.truncate_to(3)
    assert {int(path.stem) for path in home.glob("*.log")} == set(log._segments.bases)
    log.truncate_to(3)
    assert log.append_as_follower(sent((3, 2, 1))) == 4
    assert offsets(log) == [0, 1, 2, 3]
    log.close()


def test_a_truncation_below_the_start_begins_anew_there(home):
    log = open_log(home, ROLLS | {"retention.ms": "-1"})
    for offset in range(9):
        log.append_as_follower(sent((offset, 2, 1)))
    log.advance_start(6)
    for path in log.delete_old_segments(9):
        path.unlink()
    assert log.log_start_offset == 6
    log.truncate_to(3)
    assert (log.log_start_offset, log.log_end_offset, offsets(log)) == (3, 3, [])
    log.close()


def test_a_truncation_between_the_first_batch_and_the_start_takes_the_start_back(home):
    log = open_log(home)
    log.append_as_follower(sent(*((offset, 2, 1) for offset in range(9))))
    log.advance_start(6)
    log.truncate_to(3)
    assert (log.log_start_offset, log.log_end_offset, offsets(log)) == (3, 3, [0, 1, 2])
    log.close()


# A disk that refuses half way

CUTS = {
    "within a segment": (lambda log: log.truncate_to(7), 7),
    "several segments": (lambda log: log.truncate_to(1), 1),
    "an epoch's end": (lambda log: log.truncate_to_epoch_end(1), 3),
    "all, at the end": (lambda log: log.restart_at(8), 8),
    "all, beyond": (lambda log: log.restart_at(500), 500),
}


def log_to_cut(home):
    log = open_log(home, ROLLS)
    for offset in range(8):
        log.append_as_follower(sent((offset, 1 if offset < 3 else 2 if offset < 6 else 3, 1)))
    log.flush()
    return log


def cut_half_way(home, change, **fault):
    """A log of three epochs that the disk refused to cut, and whether it refused."""
    log = log_to_cut(home)
    with FaultyFiles(home, **fault):
        try:
            change(log)
        except LogDirFailed:
            return log, True
    return log, False


def steps_of(home, change):
    log = log_to_cut(home)
    with FaultyFiles(home) as files:
        change(log)
    log.close()
    return files.count


@pytest.mark.parametrize("name", CUTS)
def test_a_log_that_the_disk_refused_to_cut_ends_there_and_is_cut_before_it_is_written_to(tmp_path, name):
    change, end = CUTS[name]
    refusals = 0
    for step in range(steps_of(tmp_path / "counted", change)):
        log, refused = cut_half_way(tmp_path / str(step), change, fail_at=step, error=errno.ENOSPC)
        if refused and log.log_start_offset == 0 and name.startswith("all"):
            continue  # the new segment was refused, and nothing has changed
        refusals += refused
        assert log.log_end_offset == end
        assert log.recovery_point <= end
        assert log.epochs.latest is None or log.epochs.latest.start_offset < end
        assert log.position_of(end) == log.end
        if log._durability._failure is not None:  # a sync that failed is never tried again
            with pytest.raises(LogDirFailed):
                log.append_as_follower(sent((end, 4, 1)))
            log.abandon()
            continue
        log.begin_epoch(4)
        assert log.append_as_leader(batch_of(1000), 4).first_offset == end
        kept = [*range(end), end] if name.startswith(("within", "several", "an epoch")) else [end]
        assert offsets(log) == kept
        assert {int(path.stem) for path in log.directory.glob("*.log")} == set(log._segments.bases)
        log.flush()
        log.abandon()
        again = open_log(log.directory, ROLLS, clean=False)
        assert (offsets(again), again.epochs.latest) == (kept, (4, end))
        again.close()
    assert refusals


@pytest.mark.parametrize("name", [name for name in CUTS if name != "within a segment"])  # which removes no file
def test_what_a_lasting_refusal_left_to_cut_keeps_everything_from_being_written(tmp_path, name):
    change, end = CUTS[name]
    fault = {"fail_at": 0, "lasting": True, "error": errno.ENOSPC, "steps": ("unlink",)}
    log, refused = cut_half_way(tmp_path / "t-0", change, **fault)
    assert (refused, log.log_end_offset) == (True, end)
    writes = (
        lambda: log.append_as_follower(sent((end, 4, 1))),
        lambda: log.append_as_leader(batch_of(1000), 4),
        lambda: log.begin_epoch(4),
        log.roll,
        lambda: log.delete_old_segments(end),
        lambda: log.truncate_to(0),
        lambda: log.restart_at(900),
        lambda: log.read_all(1 << 20),
        log.close,
    )
    with FaultyFiles(log.directory, **fault):
        for write in writes:
            with pytest.raises(DiskFull, match="cannot truncate"):
                write()
    assert log.log_end_offset == end
    log.close()
    assert open_log(log.directory, ROLLS).log_end_offset == end
