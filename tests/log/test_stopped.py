"""Log directories read without a broker, against what a broker makes of the same bytes."""

import os
import shutil
from uuid import UUID

import pytest
from log.samples import batch_of, marker_of, open_log, transactional, whole

from sparklog.errors import CorruptRecord, LogError
from sparklog.log.adoption import ADOPTION
from sparklog.log.extents import ExtentReader
from sparklog.log.loader import Knowledge
from sparklog.log.origin import AppendOrigin
from sparklog.log.stopped import StoppedPartition, stopped_partitions
from sparklog.record.batch import patch_header
from sparklog.record.control import ControlType
from sparklog.structs import TopicPartition
from sparklog.testing.steps import finish

SMALL = {"segment.bytes": "700", "index.interval.bytes": "100", "segment.index.bytes": "4000"}
CLEAN, UNCLEAN = Knowledge(clean=True), Knowledge(clean=False)


@pytest.fixture
def home(tmp_path):
    return tmp_path / "t-0"


@pytest.fixture
def log(home):
    """Plain batches and transactions, some aborted and one open, over several segments."""
    log = open_log(home, SMALL)
    sequences = dict.fromkeys(range(3), 0)

    def write(producer, count):
        log.append_as_leader(transactional(producer, sequences[producer], count), 0, AppendOrigin.COORDINATOR)
        sequences[producer] += count

    for round_ in range(12):
        log.append_as_leader(batch_of(*range(1000 + round_ * 10, 1005 + round_ * 10)), 0)
        write(0, 2)
        write(1 + round_ % 2, 1)
        write(0, 1)
        kind = ControlType.ABORT if round_ % 3 else ControlType.COMMIT
        log.append_as_leader(marker_of(0, kind), 0, AppendOrigin.COORDINATOR)
        if round_ % 4 == 3:
            log.append_as_leader(marker_of(1, ControlType.ABORT), 0, AppendOrigin.COORDINATOR)
    log.append_as_leader(batch_of(5000, 4000, 5000), 0)
    log.on_high_watermark(log.log_end_offset)
    assert log.segment_count > 4
    return log


def bytes_of(partition, start, end):
    reader = ExtentReader(block=300)
    batches = (
        bytes(batch.buffer)
        for piece in partition.pieces(start, end)
        for batch in reader.batches(piece.records.fileno(), piece.start, piece.end)
    )
    return b"".join(batches)


def aborted_in(log, start, end):
    return sorted((each.producer_id, each.first_offset) for each in log.aborted_transactions(start, end))


@pytest.mark.parametrize("known", [CLEAN, UNCLEAN, Knowledge(clean=False, recovery_point=30)])
@pytest.mark.parametrize("closed", [True, False])
def test_it_is_the_log_that_was_written(log, home, known, closed):
    expected = whole(log)
    end, unstable = log.log_end_offset, log.first_unstable_offset
    aborted = {start: aborted_in(log, start, start + 7) for start in range(end)}
    if closed:
        log.close()
    partition = StoppedPartition(home, known)
    assert (partition.start_offset, partition.end_offset) == (0, end)
    assert bytes_of(partition, 0, end) == expected
    assert partition.decisions.last_stable_offset == unstable
    for start, those in aborted.items():
        assert sorted(partition.decisions.overlapping(start, start + 7)) == those


def test_every_range_is_the_extents_of_the_log(log, home):
    partition = StoppedPartition(home, CLEAN)
    for start in range(0, log.log_end_offset, 3):
        for end in range(start + 1, log.log_end_offset + 1, 4):
            expected = b"".join(e.path.read_bytes()[e.start : e.end] for e in log.extents(start, end).files)
            assert bytes_of(partition, start, end) == expected


def test_of_a_range_that_is_known_to_be_whole_nothing_else_is_looked_at(log, home):
    expected = b"".join(e.path.read_bytes()[e.start : e.end] for e in log.extents(5, 40).files)
    last_touched = max(path for path in home.glob("*.log") if int(path.stem) < 40)
    for path in home.glob("*.log"):
        if path >= last_touched:
            with open(path, "ab") as file:
                file.write(b"no batch")
    assert bytes_of(StoppedPartition(home, UNCLEAN), 5, 40) == expected


def test_every_time_is_found_as_by_the_log(log, home):
    partition = StoppedPartition(home, CLEAN)
    for timestamp in [*range(990, 1130), 2000, 3999, 4000, 4001, 5000, 5001]:
        assert partition.offset_for_timestamp(timestamp) == finish(log.offset_for_timestamp(timestamp))


@pytest.mark.parametrize("tail", [b"\0" * 5, b"\0" * 4096, b"half"])
@pytest.mark.parametrize("known", [CLEAN, UNCLEAN])
def test_a_torn_tail_is_left_out(log, home, known, tail):
    expected, end = whole(log), log.log_end_offset
    last = max(home.glob("*.log"))
    rest = last.read_bytes()[:50] if tail == b"half" else tail
    with open(last, "ab") as file:
        file.write(rest)
    partition = StoppedPartition(home, known)
    assert partition.end_offset == end
    assert bytes_of(partition, 0, end) == expected


def test_what_lies_behind_damage_is_not_read_after_a_crash(log, home):
    damaged = sorted(home.glob("*.log"))[2]
    data = bytearray(damaged.read_bytes())
    data[-5] ^= 0xFF
    damaged.write_bytes(data)
    partition = StoppedPartition(home, UNCLEAN)
    following = int(sorted(home.glob("*.log"))[3].stem)
    assert int(damaged.stem) <= partition.end_offset < following
    flushed = StoppedPartition(home, Knowledge(clean=False, recovery_point=following))
    assert flushed.end_offset == log.log_end_offset


def test_of_a_partition_that_is_in_no_checkpoint_all_is_looked_at(home, tmp_path):
    log = open_log(home, SMALL)
    log.append_as_leader(batch_of(1000), 0)
    log.roll()
    log.append_as_leader(batch_of(1001), 0)
    log.flush()
    first = home / f"{0:020d}.log"
    data = bytearray(first.read_bytes())
    data[-1] ^= 0xFF
    first.write_bytes(data)
    assert stopped_partitions(tmp_path)[TopicPartition("t", 0)].end_offset == 0
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 1\n")
    assert stopped_partitions(tmp_path)[TopicPartition("t", 0)].end_offset == 2


def test_the_batches_speak_where_snapshots_and_transaction_indexes_are_lost(log, home):
    expected = StoppedPartition(home, CLEAN).decisions
    log.close()
    assert StoppedPartition(home, CLEAN).decisions == expected
    for path in home.glob("*.snapshot"):
        path.write_bytes(b"x")
    assert StoppedPartition(home, CLEAN).decisions == expected
    for path in home.glob("*.snapshot"):
        path.unlink()
    assert StoppedPartition(home, CLEAN).decisions == expected


def test_nothing_is_opened_to_be_written(log, home, monkeypatch):
    end, opened, real = log.log_end_offset, [], os.open

    def noted(path, flags, *more, **how):
        opened.append(flags & os.O_ACCMODE)
        return real(path, flags, *more, **how)

    log.close()
    monkeypatch.setattr(os, "open", noted)
    partition = StoppedPartition(home, UNCLEAN)
    assert (partition.end_offset, len(partition.pieces(0, end)) > 3, partition.decisions.aborted != []) == (
        end,
        True,
        True,
    )
    assert set(opened) == {os.O_RDONLY}


def test_a_broken_transaction_index_is_made_up_for(log, home):
    expected = StoppedPartition(home, CLEAN).decisions
    log.close()
    for path in home.glob("*.txnindex"):
        path.write_bytes(path.read_bytes()[:-1])
    assert StoppedPartition(home, CLEAN).decisions == expected


def test_the_start_is_the_checkpoints_and_the_end_an_empty_segments(home):
    log = open_log(home, SMALL)
    while log.segment_count < 3:
        log.append_as_leader(batch_of(1000, 1001), 0)
    log.roll()
    log.close()
    assert StoppedPartition(home, Knowledge(log_start_offset=3)).start_offset == 3
    end = log.log_end_offset
    for path in sorted(home.glob("*.log"))[:-1]:
        path.unlink()
    emptied = StoppedPartition(home, CLEAN)
    assert (emptied.start_offset, emptied.end_offset, emptied.pieces(0, end)) == (end, end, [])
    assert emptied.decisions == (end, [])


def test_an_interrupted_swap_is_left_to_the_broker(log, home):
    first = min(home.glob("*.log"))
    first.rename(first.with_name(first.name + ".swap"))
    with pytest.raises(LogError, match="a swap of segments was interrupted"):
        _ = StoppedPartition(home, CLEAN).end_offset


def test_an_interrupted_adoption_is_left_to_the_broker(log, home):
    """The segments that have their names by now are some of them."""
    (home / ADOPTION).write_text("0\n1\ntag 0 10\n")
    with pytest.raises(LogError, match="segments were being adopted"):
        _ = StoppedPartition(home, CLEAN).end_offset


def test_bytes_that_cannot_be_read_are_said(log, home):
    shutil.copy(home / min(os.listdir(home)), home / "note.txt")
    path = max(home.glob("*.log"))
    path.unlink()
    path.mkdir()
    with pytest.raises(LogError, match=f"cannot read {path}: Is a directory"):
        _ = StoppedPartition(home, CLEAN).end_offset


def test_a_file_that_cannot_be_opened_is_named(log, home):
    path = home / f"{log.log_end_offset + 1:020}.log"
    path.symlink_to(home / "nowhere")
    with pytest.raises(LogError, match=f"cannot read {path}: No such file"):
        _ = StoppedPartition(home, CLEAN).end_offset


def test_a_range_that_ends_in_the_hole_of_a_compacted_log_ends_before_the_batch_behind_it(home):
    log = open_log(home)
    batches = []
    for offset in (0, 10, 20):
        batches.append(bytearray(batch_of(1000, 1001)))
        patch_header(batches[-1], 0, offset, 1)
        log.append_as_follower(memoryview(batches[-1]))
    log.close()
    partition = StoppedPartition(home, CLEAN)
    for end in (2, 5, 10):
        assert bytes_of(partition, 0, end) == batches[0]
    assert bytes_of(partition, 0, 11) == batches[0] + batches[1]
    assert bytes_of(partition, 5, 15) == batches[1]
    assert partition.pieces(2, 10) == []


@pytest.mark.parametrize(
    ("marker", "points", "is_believed"),
    [(True, "0\n1\nt 0 0\n", True), (True, "0\n0\n", False), (False, "0\n1\nt 0 0\n", False)],
)
def test_headers_are_believed_where_a_clean_stop_is_marked_and_the_log_is_in_the_checkpoint(
    log, home, tmp_path, marker, points, is_believed
):
    end = log.log_end_offset
    log.close()
    with open(max(home.glob("*.log")), "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")
    (tmp_path / "recovery-point-offset-checkpoint").write_text(points)
    if marker:
        (tmp_path / ".kafka_cleanshutdown").touch()
    (partition,) = stopped_partitions(tmp_path).values()
    assert (partition.end_offset == end) is is_believed


def test_a_log_directory_and_its_checkpoints(log, tmp_path):
    log.close()
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    (tmp_path / "no-partition").mkdir()
    (tmp_path / "t-3").write_bytes(b"no directory")
    (tmp_path / "gone-0.0123456789abcdef-delete").mkdir()
    found = stopped_partitions(tmp_path)
    assert list(found) == [TopicPartition("t", 0)]
    assert found[TopicPartition("t", 0)].start_offset == 4
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n0\n")
    assert stopped_partitions(tmp_path)[TopicPartition("t", 0)].start_offset == 0
    (tmp_path / "log-start-offset-checkpoint").write_text("?")
    with pytest.raises(CorruptRecord, match="log-start-offset-checkpoint"):
        stopped_partitions(tmp_path)


def test_what_has_no_bytes_is_no_piece(home):
    log = open_log(home, SMALL)
    log.append_as_leader(batch_of(1000, 1001), 0)
    log.roll()
    log.close()
    partition = StoppedPartition(home, CLEAN)
    assert [(piece.start, piece.end) for piece in partition.pieces(0, 99)] == [(0, len(batch_of(1000, 1001)))]
    assert partition.pieces(2, 99) == []


def test_how_many_bytes_an_offset_takes(home, log):
    partition = StoppedPartition(home, CLEAN)
    assert partition.bytes_per_offset == log.size / log.log_end_offset > 1
    assert StoppedPartition(home, Knowledge(log_start_offset=log.log_end_offset)).bytes_per_offset == 1.0
    half = StoppedPartition(home, Knowledge(log_start_offset=log.log_end_offset // 2))
    assert half.bytes_per_offset == pytest.approx(2 * log.size / log.log_end_offset, rel=0.1)


def test_the_topic_of_a_stopped_partition(home, log):
    assert StoppedPartition(home, CLEAN).topic_id is None
    log.assign_topic_id(UUID(int=7))
    assert StoppedPartition(home, CLEAN).topic_id == UUID(int=7)


@pytest.mark.parametrize(("is_last", "also"), [(True, False), (False, True)])
def test_bytes_that_are_left_out_are_said_with_what_goes_with_them(home, log, caplog, is_last, also):
    paths = sorted(home.glob("*.log"))
    path = paths[-1] if is_last else paths[1]
    with open(path, "ab") as file:
        file.write(b"\0" * 7)
    found = StoppedPartition(home, UNCLEAN).segments
    assert [each.base_offset for each in found] == [int(each.stem) for each in (paths if is_last else paths[:2])]
    (said,) = caplog.messages
    assert f"{path}: the last 7 bytes are no whole batches; they are not read" in said
    assert said.endswith(", and the segments behind it with them") is also


def test_a_stop_that_was_no_clean_one_is_believed_up_to_the_recovery_point(home, log):
    """Of a segment that lies before it only the size is looked at."""
    bases = [int(path.stem) for path in sorted(home.glob("*.log"))]
    first = min(home.glob("*.log"))
    with open(first, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")
    for point, ends_early in ((bases[1], False), (bases[1] - 1, True), (bases[2], False)):
        partition = StoppedPartition(home, Knowledge(clean=False, recovery_point=point))
        assert (partition.end_offset < bases[1]) is ends_early


def test_of_a_log_that_begins_behind_its_recovery_point_no_snapshot_is_believed(home):
    log = open_log(home)
    log.restart_at(5)
    log.append_as_leader(transactional(0, 0), 0, AppendOrigin.COORDINATOR)
    log.roll()
    log.flush()
    assert list(home.glob("*.snapshot"))
    partition = StoppedPartition(home, Knowledge(clean=False, recovery_point=0))
    assert (partition.end_offset, partition.decisions) == (6, (5, []))


def test_what_lies_before_a_range_is_not_looked_at(log, home):
    bases = [int(path.stem) for path in sorted(home.glob("*.log"))]
    expected = whole(log)[segment_size(home, 0) :]
    min(home.glob("*.log")).write_bytes(b"garbage")
    assert bytes_of(StoppedPartition(home, CLEAN), bases[1], log.log_end_offset) == expected


def segment_size(home, base):
    return (home / f"{base:020d}.log").stat().st_size
