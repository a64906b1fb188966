"""``sparklog.log.inspection.verify``: every damage is found and named, nothing sound is, and nothing is changed."""

import fcntl
import os
import random
import shutil
import struct
import sys

import crc32c
import pytest
from log.inspection.damage import GOLDEN, STOPPED, check, copy_of, flip, notes, problems, state_of, the_problem
from log.samples import SMALL, abandon, batch_of, marker_of, open_log, transactional, write_cleaned

from sparklog.errors import LogError
from sparklog.log.cut import name_some
from sparklog.log.indexes.offset_index import OffsetIndex
from sparklog.log.inspection import verify
from sparklog.log.inspection.batch_walk import BatchWalk
from sparklog.log.inspection.dump import dump_file, expand
from sparklog.log.inspection.dump_batches import DumpOptions
from sparklog.log.inspection.index_check import read_index
from sparklog.log.inspection.segment_check import SegmentCheck, check_segment
from sparklog.log.inspection.segment_facts import SegmentFacts, SegmentJob
from sparklog.log.inspection.verify import Verification
from sparklog.log.origin import AppendOrigin
from sparklog.log.producer_snapshot import encode_snapshot, read_snapshot
from sparklog.record import layout
from sparklog.record.batch import RecordBatch, patch_header
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.control import ControlType

KAFKAS = sorted(each for each in GOLDEN.glob("kafka-3.9*") if each.is_dir())


@pytest.fixture
def log_dir(tmp_path):
    """A copy of the log directory of a Kafka 3.9.1 that was stopped: transactions, epochs, a compacted topic."""
    return copy_of(STOPPED, tmp_path)


def segments(partition):
    return sorted(partition.glob("*.log"))


def starts(path):
    with BatchWalk(path) as walk:
        return [position for position, _, _ in walk.batches()]


# Sound


@pytest.mark.parametrize("directory", KAFKAS, ids=lambda each: each.name)
def test_what_kafka_wrote_is_sound(directory):
    found, summary = check(directory, records=True)
    assert [each for each in found if each.is_problem] == []
    assert summary.is_sound
    assert summary.partitions == len({path.parent for path in directory.rglob("*.log")})
    assert summary.segments == len(list(directory.rglob("*.log")))
    assert summary.size == sum(path.stat().st_size for path in directory.rglob("*.log"))
    assert summary.records > 0


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "killed"])
def test_what_we_wrote_is_sound(tmp_path, closed):
    directory = tmp_path / "t-0"
    log = open_log(directory, SMALL)
    for number in range(40):
        log.append_as_leader(batch_of(1000 + number, 1001 + number, size=40), number // 15)
    (log.close if closed else lambda: abandon(log))()
    found, summary = check(directory, records=True)
    assert [each for each in found if each.is_problem] == []
    assert (summary.batches, summary.records) == (40, 80)
    assert summary.segments == len(segments(directory)) > 2


def test_threads_find_the_same_in_the_same_order(log_dir):
    flip(segments(log_dir / "txn-0")[1], 100)
    flip(segments(log_dir / "epochs-0")[0], 100)
    assert check(log_dir, threads=4) == check(log_dir)


def test_nothing_is_changed(log_dir):
    with segments(log_dir / "txn-0")[-1].open("ab") as file:
        file.write(b"torn")
    (log_dir / "epochs-0" / "00000000000000000000.index").unlink()
    before = state_of(log_dir)
    assert problems(log_dir, records=True)
    assert state_of(log_dir) == before


def test_no_file_is_opened_for_writing(log_dir):
    opened, watching = [], [True]

    def watch(event, arguments):
        if watching and event == "open":
            opened.append((str(arguments[0]), arguments[2]))

    sys.addaudithook(watch)  # There is no taking it away again.
    check(log_dir, records=True)
    for path in (path for each in (log_dir, log_dir / "txn-0") for path in expand(each)):
        list(dump_file(path, DumpOptions(records=True)))
    watching.clear()
    inside = [(path, flags) for path, flags in opened if path.startswith(str(log_dir))]
    assert len(inside) > 50
    assert [each for each in inside if each[1] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)] == []


def test_it_is_told_of_every_byte(log_dir):
    told = []
    _, summary = check(log_dir, advance=told.append)
    assert sum(told) == summary.size


def test_a_batch_may_be_larger_than_a_block(log_dir):
    path = segments(log_dir / "txn-0")[0]
    with BatchWalk(path) as whole, BatchWalk(path, block=70) as pieces:
        expected = [(position, fields, bytes(view)) for position, fields, view in whole.batches()]
        assert [(position, fields, bytes(view)) for position, fields, view in pieces.batches()] == expected
    assert len(expected) > 3


# Flipped bits


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
def test_a_flipped_bit_is_found_wherever_it_is(log_dir, suffix):
    partition = log_dir / "txn-0"
    path = partition / f"00000000000000000013{suffix}"
    sound = path.read_bytes()
    assert sound
    missed = []
    for position in range(0, len(sound), 3 if suffix == ".log" else 1):
        flip(path, position, position % 8)
        if not problems(partition):
            missed.append(position)
        path.write_bytes(sound)
    assert missed == []


@pytest.mark.parametrize(
    ("position", "named"),
    [
        (layout.BASE_OFFSET + 7, "a batch begins at offset"),
        (layout.LENGTH + 3, "CRC"),
        (layout.PARTITION_LEADER_EPOCH + 3, "leader epoch"),
        (layout.MAGIC, "are not batches"),
        (layout.CRC, "CRC"),
        (layout.RECORDS + 5, "CRC"),
    ],
)
def test_a_flipped_bit_in_the_middle_of_a_log_is_named(log_dir, position, named):
    path = segments(log_dir / "epochs-0")[0]
    flip(path, starts(path)[2] + position)
    found = problems(log_dir / "epochs-0")
    assert any(
        severity == "error" and path.name in (name + what) and named in what for severity, name, what in found
    ), found


@pytest.mark.parametrize(
    ("name", "position", "named"),
    [
        ("00000000000000000013.index", 3, "names offset"),
        ("00000000000000000013.index", 7, "no batch's first byte"),
        ("00000000000000000013.timeindex", 7, "the batch there is at"),
        ("00000000000000000013.timeindex", 10, "does not rise"),
        ("00000000000000000013.txnindex", 0, "entry 0"),
        ("00000000000000000013.txnindex", 9, "lists producer"),
        ("00000000000000000013.txnindex", 17, "lists producer"),
        ("00000000000000000013.txnindex", 25, "lists"),
        ("00000000000000000013.txnindex", 33, "last stable offset"),
        ("00000000000000000013.snapshot", 20, "does not hold together"),
        ("leader-epoch-checkpoint", 0, "cannot be read"),
        ("leader-epoch-checkpoint", 4, "leader epoch 0"),
        ("partition.metadata", 9, "version 0"),
        ("partition.metadata", 12, "topic_id"),
    ],
)
def test_a_flipped_bit_in_a_small_file_is_named(log_dir, name, position, named):
    flip(log_dir / "txn-0" / name, position)
    severity, found, what = problems(log_dir / "txn-0")[0]
    assert (severity, found) == ("error", name)
    assert named in what


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
        "cleaner-offset-checkpoint",
    ],
)
def test_a_flipped_bit_in_a_checkpoint_is_named(log_dir, name):
    flip(log_dir / name, 0)
    severity, found, what = the_problem(log_dir)
    assert (severity, found) == ("error", name)
    assert "is not a checkpoint of version 0" in what


def test_damaged_meta_properties_are_named(log_dir):
    path = log_dir / "meta.properties"
    path.write_text(path.read_text().replace("broker.id", "broker.ib"))
    assert the_problem(log_dir)[:2] == ("error", "meta.properties")
    path.write_bytes(b"\xff\xfe")
    assert the_problem(log_dir)[:2] == ("error", "meta.properties")


@pytest.mark.parametrize(
    ("lines", "is_sound"),
    [
        ("version=0\nbroker.id=3\ncluster.id=c", True),
        ("version=1\nnode.id=3\ncluster.id=c", True),
        ("version=2\nbroker.id=3\ncluster.id=c", False),
        ("broker.id=3\ncluster.id=c", False),
        ("version=0\ncluster.id=c", False),
        ("version=0\nbroker.id=three\ncluster.id=c", False),
        ("version=0\nbroker.id=3", False),
        ("version=0\nbroker.id=3\ncluster.id=", False),
        ("", False),
    ],
)
def test_the_owner_of_a_directory_has_a_version_a_number_and_a_cluster(log_dir, lines, is_sound):
    (log_dir / "meta.properties").write_text(f"#\n{lines}\n")
    wrong = ("error", "meta.properties", "lacks a version of 0 or 1, a broker.id or a cluster.id")
    assert problems(log_dir) == ([] if is_sound else [wrong])


def test_a_directory_that_no_broker_has_owned_yet_lacks_nothing(log_dir):
    (log_dir / "meta.properties").unlink()
    assert problems(log_dir) == []


# The end of a log


def test_a_torn_tail_is_found_wherever_it_was_cut(log_dir):
    partition = log_dir / "epochs-0"
    path = segments(partition)[-1]
    sound, last = path.read_bytes(), starts(path)[-1]
    for size in range(last + 1, len(sound)):
        path.write_bytes(sound[:size])
        found, _ = check(partition)
        (torn,) = [each for each in found if "torn tail" in each.what]
        assert (str(torn.severity), torn.path, torn.position) == ("error", path, last)
        assert f"the last {size - last} bytes" in torn.what
        assert sound[last : min(last + 4, size)].hex() in torn.what
    path.write_bytes(sound[:last])
    assert all("torn" not in what for _, _, what in problems(partition))


def test_a_lost_tail_is_known_by_the_recovery_point(log_dir):
    path = segments(log_dir / "epochs-0")[-1]
    os.truncate(path, starts(path)[-1])
    found = problems(log_dir / "epochs-0")
    assert any(what.startswith("the recovery point is 22, but the log ends at") for _, _, what in found)
    assert any(what.startswith("the high watermark is 22, but the log ends at") for _, _, what in found)


def test_zeros_at_the_end_are_named(log_dir):
    path = segments(log_dir / "epochs-0")[-1]
    size = path.stat().st_size
    os.truncate(path, size + 4096)
    severity, name, what = the_problem(log_dir / "epochs-0")
    assert (severity, name) == ("error", path.name)
    assert what.startswith("the last 4096 bytes are zeros only")


def test_garbage_at_the_end_is_named_and_shown(log_dir):
    path = segments(log_dir / "epochs-0")[-1]
    with path.open("ab") as file:
        file.write(b"garbage!" * 20)
    what = the_problem(log_dir / "epochs-0")[2]
    assert what.startswith("the last 160 bytes are no batch header: 67617262")


@pytest.mark.parametrize("indexed", [True, False])
def test_the_check_goes_on_behind_a_corrupt_middle(log_dir, indexed):
    partition = log_dir / "epochs-0"
    path = segments(partition)[0]
    _, second, third, *_ = starts(path)
    data = bytearray(path.read_bytes())
    data[second:third] = b"\xee" * (third - second)
    path.write_bytes(data)
    if not indexed:
        path.with_suffix(".index").unlink()
    found, summary = check(partition)
    (damage,) = [each for each in found if each.is_problem]
    assert damage.what == f"{third - second} bytes are not batches; good ones follow at position {third}"
    assert damage.position == second
    _, whole = check(STOPPED / "epochs-0")
    assert summary.batches == whole.batches - 1


def test_a_batch_that_is_being_written_is_no_damage_while_a_broker_is_at_work(log_dir):
    path = segments(log_dir / "epochs-0")[-1]
    with path.open("ab") as file:
        file.write(path.read_bytes()[:100])
    lock = os.open(log_dir / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        assert any("torn tail" in what for _, _, what in problems(log_dir))
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert problems(log_dir) == []
        assert (path.name, "the last 100 bytes are a batch that is cut short: being written") in notes(log_dir)
        assert problems(log_dir / "epochs-0") == []
    finally:
        os.close(lock)
    assert any("torn tail" in what for _, _, what in problems(log_dir))


def test_a_partition_that_its_broker_changes_is_looked_at_again(log_dir, monkeypatch):
    path = log_dir / "txn-0" / "00000000000000000013.timeindex"
    flip(path, -2)
    looks = []

    def look(job, advance=None):
        looks.append(job.base_offset)
        if len(looks) > len(segments(log_dir / "txn-0")):
            shutil.copy(STOPPED / "txn-0" / path.name, path)
        return check_segment(job, advance)

    monkeypatch.setattr(verify, "check_segment", look)
    lock = os.open(log_dir / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _, summary = check(log_dir / "txn-0")
        assert (summary.is_sound, len(looks)) == (True, 2 * summary.segments)
        looks.clear()
        monkeypatch.setattr(verify, "check_segment", check_segment)
        flip(path, -2)
        assert the_problem(log_dir / "txn-0")[1] == path.name
    finally:
        os.close(lock)


def test_a_kafka_at_work_is_known_by_its_lock_too(log_dir):
    path = segments(log_dir / "epochs-0")[-1]
    with path.open("ab") as file:
        file.write(path.read_bytes()[:100])
    lock = os.open(log_dir / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        assert problems(log_dir) == []
    finally:
        os.close(lock)


def test_a_file_that_grows_under_the_check_is_being_written(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    batch = bytes(batch_of())
    path.write_bytes(batch + batch[:50])
    facts = SegmentFacts(SegmentJob(tmp_path, 0, None, False, False), path, 0)
    with BatchWalk(path) as walk:
        with path.open("ab") as file:
            file.write(batch[50:])
        SegmentCheck(facts, walk, None, None).run()
    (found,) = facts.findings
    assert (str(found.severity), found.position) == ("note", len(batch))
    assert found.what.endswith("being written")


@pytest.mark.parametrize("seed", range(60))
def test_garbage_anywhere_is_a_finding_and_never_more(log_dir, seed):
    chance = random.Random(seed)
    path = chance.choice(sorted(each for each in log_dir.rglob("*") if each.is_file() and each.stat().st_size))
    data = bytearray(path.read_bytes())
    start = chance.randrange(len(data))
    data[start : start + chance.randrange(1, 80)] = chance.randbytes(chance.randrange(90))
    path.write_bytes(data)
    check(log_dir, records=True)
    if path.name != ".kafka_cleanshutdown":
        for entry in dump_file(path, DumpOptions(records=True)):
            assert entry.kind


def test_a_base_offset_out_of_all_bounds_is_said_once(log_dir):
    path = segments(log_dir / "epochs-0")[-1]
    flip(path, starts(path)[1] + layout.BASE_OFFSET, 3)
    found = [what for _, name, what in problems(log_dir / "epochs-0") if name == path.name]
    assert len(found) == 1
    assert "but the segment must end before" in found[0]


# Files that do not belong together


def test_swapped_segments_are_found(log_dir):
    first, second, *_ = segments(log_dir / "txn-0")
    held = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(held)
    found = problems(log_dir / "txn-0")
    assert {name for severity, name, _ in found if severity == "error"} >= {first.name, second.name}


def test_swapped_indexes_are_found(log_dir):
    first, second, *_ = sorted((log_dir / "txn-0").glob("*.index"))
    held = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(held)
    assert {name for _, name, _ in problems(log_dir / "txn-0")} == {first.name, second.name}


def test_an_index_of_odd_size_is_named(log_dir):
    path = log_dir / "txn-0" / "00000000000000000013.timeindex"
    with path.open("ab") as file:
        file.write(b"\x01")
    assert the_problem(log_dir / "txn-0") == (
        "error",
        path.name,
        "the file ends in the middle of an entry (1 bytes too many)",
    )


def test_an_index_entry_beyond_the_log_is_named(log_dir):
    path = segments(log_dir / "epochs-0")[-1]
    with path.with_suffix(".timeindex").open("ab") as file:
        file.write(struct.pack(">qi", 1 << 41, 500))
    severity, name, what = the_problem(log_dir / "epochs-0")
    assert (severity, name) == ("error", path.with_suffix(".timeindex").name)
    assert "lies beyond the end of the log" in what


_AHEAD = {".index": struct.pack(">ii", 500, 1 << 20), ".timeindex": struct.pack(">qi", 1 << 41, 500)}


@pytest.mark.parametrize("suffix", _AHEAD)
def test_an_index_ahead_of_its_log_is_an_error_where_no_start_rebuilds_it(log_dir, suffix):
    oldest, *_, newest = (path.with_suffix(suffix) for path in segments(log_dir / "epochs-0"))
    for path in (oldest, newest):
        with path.open("ab") as file:
            file.write(_AHEAD[suffix])
    assert {(severity, name) for severity, name, _ in problems(log_dir / "epochs-0")} == {
        ("error", oldest.name),
        ("error", newest.name),
    }
    (log_dir / ".kafka_cleanshutdown").unlink()
    assert [name for _, name, _ in problems(log_dir / "epochs-0")] == [oldest.name]
    found, _ = check(log_dir / "epochs-0")
    (ahead,) = [each for each in found if each.path.name == newest.name and "lies beyond the end" in each.what]
    assert (ahead.severity, ahead.advice) == ("note", "nothing: the next start rebuilds it from the .log file")


def test_indexes_ahead_of_their_log_are_rebuilt_by_the_next_start(tmp_path):
    directory = tmp_path / "t-0"
    log = open_log(directory, SMALL)
    for number in range(40):
        log.append_as_leader(batch_of(1000 + number, 1001 + number, size=40), 0)
    abandon(log)
    last = segments(directory)[-1]
    os.truncate(last, starts(last)[1])
    assert problems(directory) == []
    assert [name for name, what in notes(directory) if "lies beyond the end of the log" in what] != []
    open_log(directory, SMALL).close()
    assert notes(directory) == []


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_missing_index_is_only_noted(log_dir, suffix):
    path = log_dir / "txn-0" / f"00000000000000000013{suffix}"
    path.unlink()
    assert problems(log_dir / "txn-0") == []
    assert notes(log_dir / "txn-0") == [(path.name, "the index is missing")]


def test_room_set_aside_in_an_index_is_no_damage(log_dir):
    partition = log_dir / "txn-0"
    for path in (*partition.glob("*.index"), *partition.glob("*.timeindex")):
        entry = 8 if path.suffix == ".index" else 12
        os.truncate(path, path.stat().st_size + 100 * entry)
    assert problems(partition) == []
    # In the last segment it is as it should be; in the others it tells of a kill.
    told = [name for name, what in notes(partition) if what.startswith("100 unused entries")]
    assert sorted(told) == sorted(
        path.with_suffix(suffix).name for path in segments(partition)[:-1] for suffix in (".index", ".timeindex")
    )


def test_a_missing_segment_is_a_warning(log_dir):
    gone = segments(log_dir / "txn-0")[1]
    for path in (log_dir / "txn-0").glob(f"{gone.stem}.*"):
        path.unlink()
    found = problems(log_dir / "txn-0")
    assert ("warning", segments(log_dir / "txn-0")[1].name, "offsets 13 to 30 are in no segment") in found


def test_a_segment_that_is_missing_before_the_start_of_the_log_is_none(log_dir):
    _, gone, after, *_ = segments(log_dir / "txn-0")
    (log_dir / "log-start-offset-checkpoint").write_text(f"0\n1\ntxn 0 {int(after.stem)}\n")
    for path in (log_dir / "txn-0").glob(f"{gone.stem}.*"):
        path.unlink()
    assert not [found for found in problems(log_dir) if "are in no segment" in found[2]]


def test_gaps_of_a_compacted_topic_are_none(log_dir, tmp_path):
    assert problems(log_dir / "compacted-0") == []
    alone = copy_of(log_dir / "compacted-0", tmp_path / "alone")
    assert problems(alone) == []


def test_an_aborted_transaction_that_is_not_listed_is_an_error(log_dir):
    path = log_dir / "txn-0" / "00000000000000000013.txnindex"
    path.unlink()
    severity, name, what = the_problem(log_dir / "txn-0")
    assert (severity, name) == ("error", path.name)
    assert what.startswith("the aborted transaction of producer ")


def test_an_aborted_transaction_that_never_was_is_an_error(log_dir):
    path = log_dir / "txn-0" / "00000000000000000013.txnindex"
    with path.open("ab") as file:
        file.write(struct.pack(">hqqqq", 0, 7, 28, 30, 31))
    assert the_problem(log_dir / "txn-0") == (
        "error",
        path.name,
        "lists an aborted transaction that ends at offset 30; the log has no such",
    )


def test_a_transaction_that_began_before_the_first_segment_is_not_missed(tmp_path):
    """Retention took its beginning away while it was open; another was aborted meanwhile."""
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(transactional(1, 0), 0, verification=lambda *_: None)
    log.roll()
    log.append_as_leader(transactional(2, 0), 0, verification=lambda *_: None)
    log.append_as_leader(marker_of(2, ControlType.ABORT), 0, AppendOrigin.COORDINATOR)
    log.append_as_leader(marker_of(1, ControlType.ABORT), 0, AppendOrigin.COORDINATOR)
    log.advance_start(1)
    for path in log.delete_old_segments(4):
        path.unlink()
    log.close()
    assert problems(tmp_path / "t-0") == []


def test_what_lacks_between_segments_is_held_against_no_transaction(tmp_path):
    """A cleaning leaves such holes, and of a partition's directory alone it is not known whether it was cleaned."""
    log = open_log(tmp_path / "t-0", {"cleanup.policy": "compact"})
    log.append_as_leader(batch_of(1, key=b"k"), 0)
    log.append_as_leader(transactional(1, 0), 0, verification=lambda *_: None)
    log.roll()
    log.append_as_leader(transactional(1, 1), 0)
    log.append_as_leader(marker_of(1, ControlType.ABORT), 0, AppendOrigin.COORDINATOR)
    first = next(iter(log._segments.first.log.batches()))
    write_cleaned(log.directory, 0, [bytes(log._segments.first.log.read(first.position, first.size))], log.config)
    for path in log.replace_segments([0], [0]):
        path.unlink()
    log.close()
    severity, _, what = the_problem(tmp_path / "t-0")
    assert (severity, what) == ("warning", "offsets 1 to 1 are in no segment")


# Epochs, snapshots, checkpoints


@pytest.mark.parametrize(
    ("text", "severity", "named"),
    [
        ("0\n2\n1 0\n0 5\n", "error", "must both rise"),
        ("0\n1\n7 0\n", "error", "knows no such epoch"),
        ("0\n1\n0 9\n", "error", "has that epoch from 9"),
        ("0\n3\n0 0\n", "error", "is not a checkpoint"),
        ("0\n1\nnull 0\n", "error", "cannot be read"),
        ("0\n0\n", "warning", "missing or empty"),
        ("", "warning", "missing or empty"),
        ("0\n2\n0 0\n1 900\n", "warning", "epoch 1 begins at 900, beyond the log's end"),
    ],
)
def test_wrong_epochs_are_named(log_dir, text, severity, named):
    path = log_dir / "txn-0" / "leader-epoch-checkpoint"
    path.write_text(text)
    found = problems(log_dir / "txn-0")[0]
    assert found[:2] == (severity, path.name)
    assert named in found[2]


def test_epochs_before_the_logs_start_may_be_forgotten(log_dir):
    partition, starts_ = log_dir / "epochs-0", log_dir / "log-start-offset-checkpoint"
    path = partition / "leader-epoch-checkpoint"
    second, *rest = path.read_text().splitlines()[3:]
    epoch, start = map(int, second.split())
    path.write_text("".join(f"{line}\n" for line in ("0", len(rest) + 1, f"{epoch} {start + 1}", *rest)))
    assert all(name == path.name for _, name, _ in problems(partition))
    assert problems(partition)
    starts_.write_text(f"0\n1\nepochs 0 {start + 1}\n")
    assert problems(partition) == []
    starts_.unlink()
    assert problems(partition) == []


def test_epochs_that_begin_late_after_a_crash_are_found_again_by_the_next_start(log_dir):
    path = log_dir / "epochs-0" / "leader-epoch-checkpoint"
    second, *rest = path.read_text().splitlines()[3:]
    path.write_text("".join(f"{line}\n" for line in ("0", len(rest) + 1, second, *rest)))
    assert {severity for severity, _, _ in problems(log_dir / "epochs-0")} == {"error"}
    (log_dir / ".kafka_cleanshutdown").unlink()
    assert problems(log_dir / "epochs-0") == []
    found, _ = check(log_dir / "epochs-0")
    assert [each.severity for each in found if "begins at" in each.what] == ["note"]


def test_a_falling_epoch_is_named(log_dir):
    path = segments(log_dir / "epochs-0")[-1]
    data = bytearray(path.read_bytes())
    layout.INT32.pack_into(data, starts(path)[-1] + layout.PARTITION_LEADER_EPOCH, 0)
    path.write_bytes(data)
    assert any("the leader epoch falls from" in what for _, _, what in problems(log_dir / "epochs-0"))


def test_a_snapshot_beyond_the_log_is_a_warning(log_dir):
    partition = log_dir / "txn-0"
    beyond = partition / "00000000000000009999.snapshot"
    shutil.copy(max(partition.glob("*.snapshot")), beyond)
    assert the_problem(partition) == ("warning", beyond.name, "lies beyond the end of the log (63)")


def test_a_snapshot_of_batches_out_of_order_is_an_error(log_dir):
    partition = log_dir / "txn-0"
    last = max(partition.glob("*.snapshot"))
    (entry, *_) = read_snapshot(last).values()
    last.write_bytes(encode_snapshot([entry._replace(batches=entry.batches + entry.batches[-1:])]))
    assert any(name == last.name and "in their order" in what for _, name, what in problems(partition))


def test_a_snapshot_that_knows_too_much_is_an_error(log_dir):
    partition = log_dir / "txn-0"
    first, *_, last = sorted(partition.glob("*.snapshot"))
    shutil.copy(last, first)
    assert any(name == first.name and "beyond the snapshot" in what for _, name, what in problems(partition))


@pytest.mark.parametrize(
    ("name", "offset", "named"),
    [
        ("recovery-point-offset-checkpoint", 64, "the recovery point is 64, but the log ends at 63"),
        ("replication-offset-checkpoint", 64, "the high watermark is 64, but the log ends at 63"),
        ("log-start-offset-checkpoint", 64, "the log is said to start at 64, but it ends at 63"),
    ],
)
def test_a_checkpoint_beyond_the_log_is_an_error(log_dir, name, offset, named):
    (log_dir / name).write_text(f"0\n1\ntxn 0 {offset}\n")
    assert ("error", "txn-0", named) in problems(log_dir)
    assert the_problem(log_dir / "txn-0") == ("error", "txn-0", named)


def test_a_log_that_has_lost_its_beginning_is_an_error(log_dir):
    first = segments(log_dir / "txn-0")[0]
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\ntxn 0 5\n")
    for path in (log_dir / "txn-0").glob(f"{first.stem}.*"):
        path.unlink()
    said = "the log is said to start at 5, but its segments begin at 13"
    assert ("error", "txn-0", said) in problems(log_dir)
    # After a crash the checkpoint may be older than a deletion.
    (log_dir / ".kafka_cleanshutdown").unlink()
    assert ("error", "txn-0", said) not in problems(log_dir)


def test_a_negative_offset_in_a_checkpoint_is_an_error(log_dir):
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\ncompacted 0 -2\n")
    severity, name, what = the_problem(log_dir)
    assert (severity, name) == ("error", "cleaner-offset-checkpoint")
    assert "'-2' is not a number from 0" in what


def test_the_checkpoint_of_a_cleaner_that_never_cleaned_is_empty_and_no_error(log_dir):
    (log_dir / "cleaner-offset-checkpoint").write_text("")
    assert problems(log_dir) == []


def test_partitions_that_a_checkpoint_lists_in_vain_are_noted(log_dir):
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\ngone 3 1\n")
    assert ("log-start-offset-checkpoint", "lists partitions that are not here: gone-3") in notes(log_dir)


@pytest.mark.parametrize(("count", "named"), [(5, 5), (6, 5), (8, 5)])
def test_of_many_partitions_that_a_checkpoint_lists_in_vain_the_first_are_named(log_dir, count, named):
    lines = "".join(f"gone {number} 1\n" for number in reversed(range(count)))
    (log_dir / "log-start-offset-checkpoint").write_text(f"0\n{count}\n{lines}")
    (what,) = (what for name, what in notes(log_dir) if name == "log-start-offset-checkpoint")
    more = f" and {count - named} more" if count > named else ""
    assert what == f"lists partitions that are not here: {', '.join(f'gone-{n}' for n in range(named))}{more}"


def test_one_topic_has_one_id(log_dir):
    twin = copy_of(log_dir / "txn-0", log_dir / "..")
    twin = twin.rename(log_dir / "txn-1")
    assert problems(log_dir) == []
    other = (log_dir / "epochs-0" / "partition.metadata").read_bytes()
    (twin / "partition.metadata").write_bytes(other)
    severity, name, what = the_problem(log_dir)
    assert (severity, name) == ("error", "txn-1")
    assert what.endswith("one of them is of a topic that was deleted")


def test_an_unclean_stop_is_noted(log_dir):
    (log_dir / ".kafka_cleanshutdown").unlink()
    assert problems(log_dir) == []
    assert any("was not stopped cleanly" in what for _, what in notes(log_dir))


# Names


def test_leftovers_are_noted(log_dir):
    partition = log_dir / "txn-0"
    base = "00000000000000000013"
    for name in (f"{base}.log.cleaned", f"{base}.log.swap", f"{base}.log.deleted", f"{base}.index.deleted", "a.tmp"):
        (partition / name).touch()
    for name in (f"{base}.log.77.corrupt", "notes.txt", "00000000000000099999.index"):
        (partition / name).touch()
    (log_dir / "gone-0.0123456789abcdef0123456789abcdef-delete").mkdir()
    (log_dir / "lost+found").mkdir()
    assert problems(log_dir) == []
    said = dict(notes(log_dir))
    assert said[f"{base}.log.cleaned"] == "a file of an unfinished rewrite"
    assert said[f"{base}.log.swap"] == "a file rewritten, to replace others"
    assert said["txn-0"] == "2 .deleted files to be removed"
    assert said["a.tmp"] == "a file small, not finished"
    assert said[f"{base}.log.77.corrupt"] == "a file cut out of the log for damage before it"
    assert said["notes.txt"] == "not a file of a log"
    assert said["00000000000000099999.index"] == "there is no .log file of that name"
    assert said["gone-0.0123456789abcdef0123456789abcdef-delete"] == "a partition that is to be removed"
    assert said["lost+found"] == "not a partition's directory"


def test_what_lies_in_a_log_directory_is_noted_unless_it_belongs_there(log_dir):
    before = notes(log_dir)
    stray = f"gone-0.{'0' * 32}-stray"
    (log_dir / stray).mkdir()
    for name in (".lock", ".sparklog-session", "meta.properties.7.tmp", "notes.txt"):
        (log_dir / name).touch()
    assert sorted(set(notes(log_dir)) - set(before)) == [
        (stray, "a partition that the cluster did not know, kept aside; no broker serves it"),
        ("meta.properties.7.tmp", "a small file that was not finished"),
        ("notes.txt", "not a file of a log directory"),
    ]
    with (log_dir / ".lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "meta.properties.7.tmp" not in dict(notes(log_dir)), "the broker is just writing it"


def without_a_segment(log_dir):
    """The number of holes that are told of in a partition that lacks its second segment."""
    for path in (log_dir / "txn-0").glob(f"{segments(log_dir / 'txn-0')[1].stem}.*"):
        path.unlink()

    def holes():
        return sum("are in no segment" in what for _, _, what in problems(log_dir))

    return holes


def test_a_hole_in_what_was_cleaned_is_none(log_dir):
    holes = without_a_segment(log_dir)
    assert holes() == 1
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\ntxn 0 5\n")
    assert holes() == 0
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\ntxn 1 5\n")
    assert holes() == 1


@pytest.mark.parametrize("name", ["__consumer_offsets-7", "__transaction_state-7"])
def test_a_hole_in_a_topic_that_is_always_compacted_is_none(log_dir, name):
    holes = without_a_segment(log_dir)
    (log_dir / "txn-0" / "partition.metadata").unlink()
    (log_dir / "txn-0").rename(log_dir / name)
    assert holes() == 0


def test_a_segment_with_a_wrong_name_is_an_error(log_dir):
    shutil.copy(segments(log_dir / "txn-0")[0], log_dir / "txn-0" / "42.log")
    severity, name, what = the_problem(log_dir)
    assert (severity, name) == ("error", "42.log")
    assert "a broker refuses to open the partition" in what


@pytest.mark.parametrize("name", ["00000000000000000013.log", "00000000000000000013.index", "partition.metadata"])
def test_a_file_that_cannot_be_read_is_an_error(log_dir, name):
    path = log_dir / "txn-0" / name
    path.unlink()
    path.symlink_to(path)  # A mode would not stop root.
    found = problems(log_dir)[0]
    assert found[:2] == ("error", name)
    assert "cannot be read" in found[2]


def test_an_empty_partition_is_noted(log_dir):
    (log_dir / "new-0").mkdir()
    assert problems(log_dir) == []
    assert ("new-0", "there is no segment") in notes(log_dir)


def test_directories_of_log_directories_are_searched(log_dir):
    assert check(log_dir.parent)[1] == check(log_dir)[1]


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("meta.properties", True),
        ("recovery-point-offset-checkpoint", True),
        ("log-start-offset-checkpoint", True),
        ("replication-offset-checkpoint", False),
    ],
)
def test_a_log_directory_without_partitions_is_known_by_its_files(tmp_path, name, is_one):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / name).touch()
    for directory in (tmp_path, tmp_path / "logs"):
        if is_one:
            assert check(directory)[1].partitions == 0
        else:
            with pytest.raises(LogError, match=f"{directory} is neither"):
                check(directory)


def test_how_much_there_is_to_check_is_known_before(log_dir):
    logs = list(log_dir.rglob("*.log"))
    assert Verification([log_dir]).prepare() == sum(path.stat().st_size for path in logs)


def test_a_partition_that_its_broker_removes_meanwhile_is_no_damage(log_dir, monkeypatch):
    partition = log_dir / "txn-0"

    def look(job, advance=None):
        facts = check_segment(job, advance)
        if job.limit is None:
            shutil.rmtree(partition)
        return facts

    flip(segments(partition)[0], 100)
    monkeypatch.setattr(verify, "check_segment", look)
    with (log_dir / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found, summary = check(partition)
    assert [(each.path, each.what) for each in found if each.path == partition] == [
        (partition, "gone since the check began")
    ]
    assert (summary.is_sound, summary.partitions, summary.segments) == (True, 1, 0)


def test_nothing_to_check_is_refused(tmp_path):
    with pytest.raises(LogError, match="neither a log directory nor a partition's"):
        check(tmp_path)
    with pytest.raises(FileNotFoundError):
        check(tmp_path / "none")


# Records and old formats


def test_records_that_are_not_what_their_batch_says_are_found_on_request(tmp_path):
    builder = RecordBatchBuilder()
    for number in range(3):
        builder.append(1000 + number, None, b"value")
    data = bytearray(builder.build())
    data[layout.RECORDS] = 0x7E  # the first record's length
    patch_header(data, 0, 0, 0)
    layout.UINT32.pack_into(data, layout.CRC, crc32c.crc32c(data[layout.ATTRIBUTES :]))
    RecordBatch(data).validate()
    partition = tmp_path / "t-0"
    partition.mkdir()
    (partition / "00000000000000000000.log").write_bytes(data)
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    assert problems(partition) == []
    severity, name, what = problems(partition, records=True)[0]
    assert (severity, name) == ("error", "00000000000000000000.log")
    assert what.startswith("a batch's CRC is right but its records are not: ")


@pytest.mark.parametrize("name", ["magic-0-gzip.log", "magic-1-none.log", "upgraded.log"])
def test_old_formats_are_checked_and_noted(tmp_path, name):
    partition = tmp_path / "old-0"
    partition.mkdir()
    path = partition / "00000000000000000000.log"
    shutil.copy(GOLDEN / "kafka-legacy" / name, path)
    found, summary = check(partition, records=True)
    assert not [each for each in found if each.is_problem and each.path == path]
    assert (path.name, f"format {'magic 1' if '1' in name else 'magic 0'}, from before Kafka 0.11") in notes(partition)
    assert summary.records >= 16
    flip(path, path.stat().st_size // 2)
    assert any(each[:2] == ("error", path.name) for each in problems(partition))


# What a start makes of it


@pytest.fixture
def killed(tmp_path):
    """A log directory of a killed broker: 40 batches of 2 records in one partition, damaged in the second segment."""
    directory = tmp_path / "t-0"
    log = open_log(directory, SMALL)
    for _ in range(40):
        log.append_as_leader(batch_of(1000, 1001, size=40), 0)
    abandon(log)
    victim = segments(directory)[1]
    flip(victim, starts(victim)[1] + layout.HEADER_SIZE)
    return tmp_path


def test_the_check_says_what_a_start_after_a_crash_does(killed, caplog):
    directory = killed / "t-0"
    (damage,) = (each for each in check(killed)[0] if each.is_problem)
    before = {path.name: path.stat().st_size for path in segments(directory)}
    log = open_log(directory, SMALL, clean=False)
    kept = {path.name: path.stat().st_size for path in directory.glob("*.corrupt")}
    assert f"the start cuts the log at offset {log.log_end_offset}. " in damage.advice
    assert damage.advice.endswith(f"the {sum(kept.values())} bytes from there on are kept in {name_some(sorted(kept))}")
    assert sum(kept.values()) == sum(before.values()) - log.size
    behind = 80 - log.log_end_offset - 2  # the records of the damaged batch itself are not good
    assert f"The good records behind the damage, {behind}, go with it" in damage.advice
    assert f"the start cut the log at offset {log.log_end_offset}: offsets {log.log_end_offset} to 79 " in caplog.text


def test_the_check_says_that_a_start_after_a_clean_stop_leaves_damage(killed):
    (killed / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 80\n")
    (killed / ".kafka_cleanshutdown").touch()
    (damage,) = (each for each in check(killed)[0] if each.is_problem)
    assert damage.advice.endswith("no start repairs this, and a read of them fails")
    log = open_log(killed / "t-0", SMALL)
    assert (log.log_end_offset, log.size) == (80, sum(path.stat().st_size for path in segments(killed / "t-0")))


def test_damage_before_the_start_of_the_log_cuts_nothing(killed):
    start = int(segments(killed / "t-0")[2].stem)
    (killed / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {start}\n")
    (damage,) = (each for each in check(killed)[0] if each.is_problem)
    assert damage.advice == "nothing: it lies before the start of the log, and is to be removed"
    log = open_log(killed / "t-0", SMALL, clean=False, log_start_offset=start)
    assert (log.log_start_offset, log.log_end_offset) == (start, 80)


def test_damage_behind_what_a_start_cuts_goes_with_it(killed):
    victim = segments(killed / "t-0")[2]
    flip(victim, starts(victim)[1] + layout.HEADER_SIZE)
    first, second = (each for each in check(killed)[0] if each.is_problem)
    assert "the start cuts the log at offset" in first.advice
    assert second.advice.startswith("it goes with what a start cuts off at offset ")


@pytest.mark.parametrize("entries", [0, 1, 3])
def test_the_room_of_an_index_is_not_read(tmp_path, entries):
    """It is a hole in the file; one of this size is more than a machine can read."""
    path = tmp_path / "00000000000000000000.index"
    written = [(number * 10, number * 4096) for number in range(1, entries + 1)]
    path.write_bytes(b"".join(OffsetIndex.FORM.pack(*each) for each in written))
    os.truncate(path, (1 << 40) + 5)
    index = read_index(path, OffsetIndex.FORM)
    assert (index.entries, index.odd_bytes) == (written, ((1 << 40) + 5) % OffsetIndex.FORM.size)
    assert index.unused == (1 << 40) // OffsetIndex.FORM.size - entries


def test_zeros_at_the_end_of_an_index_are_room_where_they_are_no_hole_too(tmp_path):
    path = tmp_path / "00000000000000000000.index"
    path.write_bytes(OffsetIndex.FORM.pack(10, 4096) + bytes(100 * OffsetIndex.FORM.size) + b"odd")
    assert read_index(path, OffsetIndex.FORM)[1:] == ([(10, 4096)], 100, 3)
