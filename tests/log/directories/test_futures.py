"""A copy of a partition in another log directory, step by step, and up to where both have the same history."""

import errno
import os
from uuid import UUID

import pytest
from log.directories.test_manager import Later, crash, opened
from log.samples import batch_of, transactional, whole

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import DiskFull, LogClosed, LogDirFailed
from sparklog.log.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS, read_offsets, read_topic_id
from sparklog.log.directories import moved
from sparklog.log.directories.futures import FutureLogs, common_end
from sparklog.log.directories.manager import LogManager
from sparklog.log.leader_epochs import EpochEntry
from sparklog.log.loader import Knowledge
from sparklog.log.origin import AppendOrigin
from sparklog.record.builder import RecordBatchBuilder
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.files import FaultyFiles

TP, ID, OTHER_ID = TopicPartition("t", 0), UUID(int=77), UUID(int=78)
CONFIG = parse(TopicConfig, {"retention.bytes": "0", "segment.bytes": "900"})
LARGE = 1 << 20


def entries(*pairs):
    return [EpochEntry(*pair) for pair in pairs]


@pytest.mark.parametrize(
    ("one", "one_end", "other", "other_end", "end"),
    [
        ([], 10, [], 7, 7),
        ([(0, 0)], 10, [(0, 0)], 7, 7),
        ([(0, 0), (3, 5)], 10, [(0, 0)], 5, 5),
        ([(0, 0), (3, 5)], 10, [(0, 0), (3, 5)], 8, 8),
        ([(0, 0), (3, 5)], 10, [(0, 0), (2, 5)], 8, 5),
        ([(0, 0), (3, 5)], 10, [(0, 0), (3, 6)], 8, 5),
        ([(0, 0), (3, 5)], 10, [(0, 0)], 8, 5),
        ([(0, 4), (3, 5)], 10, [(0, 0), (3, 5)], 8, 8),  # the log has lost its beginning
        ([(3, 7)], 10, [(0, 0), (2, 5)], 8, 7),
        ([(0, 0), (3, 10)], 10, [(0, 0)], 10, 10),  # an epoch without a batch
    ],
)
def test_the_history_is_common_up_to_where_the_epochs_differ(one, one_end, other, other_end, end):
    assert common_end(entries(*one), one_end, entries(*other), other_end) == end
    assert common_end(entries(*other), other_end, entries(*one), one_end) == end


class Rig:
    """A partition in directory ``a`` of two, of ten records under two epochs, from offset 4 on, which begins at 6."""

    def __init__(self, home, topic_id=ID):
        self.a, self.b = home / "a", home / "b"
        later = Later()
        self.logs = LogManager([self.a, self.b], TopicConfig(), ManualClock(), later)
        self.logs.load({})
        self.copies = FutureLogs(self.logs)
        self.home = self.logs.dirs.find(str(self.b.absolute()))
        self.logs.prefer(TP, self.logs.dirs.find(str(self.a.absolute())))
        self.log = self.logs.get_or_create(TP, CONFIG, topic_id)
        self.log.append_as_leader(batch_of(1, 2), 0)
        self.log.append_as_leader(transactional(7, 0, 2), 0, AppendOrigin.COORDINATOR)
        self.log.roll()
        later.run()
        for epoch in (0, 0, 3):
            self.log.append_as_leader(batch_of(1, 2), epoch)
        self.log.on_high_watermark(9)
        self.log.delete_old_segments(4)
        self.log.advance_start(6)

    def begin(self):
        future = self.copies.begin(TP, self.home)
        self.logs.add_future(TP, future)
        return future

    def copy_all(self):
        future = self.logs.futures[TP]
        while (piece := self.logs.logs[TP].read_for_copy(future.log_end_offset, LARGE)) is not None:
            assert self.copies.copy(future, piece) is None

    def named(self):
        """The copy, which has all and the partition's name."""
        self.begin()
        self.copy_all()
        self.logs.futures[TP] = self.copies.give_name(TP, self.logs.futures[TP])
        return self.logs.futures[TP]


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path)
    yield rig
    crash(rig.logs)


def test_a_copy_begins_where_the_first_segment_does_and_knows_the_producers_before_it(rig):
    future = rig.begin()
    assert (future.directory.parent, rig.logs.future_of(TP)) == (rig.b, future.directory)
    assert future.directory.name.endswith("-future")
    ends = future.base_offset, future.log_start_offset, future.log_end_offset, future.recovery_point
    assert ends == (4, 4, 4, 4)
    assert (future.config, future.topic_id, read_topic_id(future.directory)) == (CONFIG, ID, ID)
    assert [each.producer_id for each in future.producers] == [7]
    rig.copy_all()
    assert whole(future) == whole(rig.log)
    assert future.epochs.entries == ((0, 4), (3, 8))


def snapshot_of(log):
    return log.directory / f"{log.base_offset:020d}.snapshot"


LACKS = {
    "none was written": lambda path: path.unlink(),
    "it is damaged": lambda path: path.write_bytes(b"torn"),
    "it is none": lambda path: (path.unlink(), path.mkdir()),
}


def remembered(log):
    """Of each producer its epoch, and the sequences and offsets of its last batches."""
    return {each.producer_id: (each.epoch, [batch[:4] for batch in each.batches]) for each in log.producers}


@pytest.mark.parametrize("lack", LACKS.values(), ids=LACKS)
def test_a_copy_knows_the_producers_before_it_where_the_log_has_no_snapshot_of_them(rig, lack):
    known = remembered(rig.log)
    assert known == {7: (0, [(0, 1, 2, 3)])}
    assert rig.log.base_offset == 4
    lack(snapshot_of(rig.log))
    new = rig.named()
    rig.copies.retire(rig.copies.swap(TP), new)
    rig.copies.secure(new)
    crash(rig.logs)
    rig.logs = opened(Later(), rig.a, rig.b)
    again = rig.logs.logs[TP]
    assert again.directory == new.directory
    assert remembered(again) == known


@pytest.mark.parametrize("is_told_later", [False, True])
def test_a_copy_remembers_a_producer_for_as_long_as_the_partition_does(tmp_path, is_told_later):
    """Also one that is silent: a start that goes on with the copy, or finds it in its place, has no other's word."""
    clock, days = ManualClock(), 86_400_000
    longest = Knowledge(producer_expiration_ms=7 * days)
    logs = LogManager([tmp_path / "a", tmp_path / "b"], TopicConfig(), clock, Later(), defaults=longest)
    logs.load({})
    log = logs.get_or_create(TP, parse(TopicConfig, {"retention.ms": "-1"}), ID)
    builder = RecordBatchBuilder(producer_id=5, producer_epoch=0, base_sequence=0)
    builder.append(1, None, b"v")
    log.append_as_leader(memoryview(bytearray(builder.build())), 0)
    log.roll()
    log.append_as_leader(batch_of(1), 0)
    log.advance_start(1)
    log.delete_old_segments(2)
    if is_told_later:
        logs.remember_producers(1 * days)
    future = FutureLogs(logs).begin(TP, logs.dirs.find(str((tmp_path / "b").absolute())))
    logs.add_future(TP, future)
    if is_told_later:
        logs.remember_producers(7 * days)
    future.append_as_follower(memoryview(log.read_for_copy(1, LARGE).read()))
    clock.advance(3 * days / 1000)
    future.roll()
    assert [each.producer_id for each in future.producers] == [5]
    crash(logs)


def test_the_producers_before_a_copy_outlive_a_power_cut(rig, tmp_path):
    with FaultyFiles(rig.b) as files:
        rig.begin()
    files.cut(tmp_path / "cut", seed=0)
    (found,) = (tmp_path / "cut").glob(f"*-future/{snapshot_of(rig.log).name}")
    assert found.read_bytes() == snapshot_of(rig.log).read_bytes()


def test_a_copy_of_a_partition_without_a_topic_id_has_none(tmp_path):
    rig = Rig(tmp_path, topic_id=None)
    assert (rig.begin().topic_id, read_topic_id(rig.logs.futures[TP].directory)) == (None, None)
    crash(rig.logs)


def test_a_copy_does_not_find_the_offsets_of_a_log_that_was_there_before(rig):
    rig.home.keep_start(TP, 40)
    (rig.b / LOG_START_OFFSETS).write_text("0\n1\nt 0 40\n")
    rig.begin()
    assert TP not in read_offsets(rig.b / LOG_START_OFFSETS)


def test_the_checkpoints_are_not_written_for_a_copy_of_which_they_know_nothing(rig):
    rig.begin()
    assert not (rig.b / RECOVERY_POINTS).exists()


@pytest.mark.parametrize("step", ["mkdir", "fsync"])
def test_a_copy_that_the_disk_refuses_is_none(rig, step):
    with (
        FaultyFiles(rig.b, fail_at=0, error=errno.ENOSPC, steps=(step,)),
        pytest.raises(DiskFull, match=f"cannot begin a copy of t-0 in {rig.b}: No space left"),
    ):
        rig.copies.begin(TP, rig.home)
    assert rig.logs.future_of(TP) is None
    assert not [*rig.b.glob("t-0*")], "nothing is left of it"


def test_a_copy_whose_topic_id_the_disk_refuses_is_none(rig):
    with FaultyFiles(rig.b, error=errno.ENOSPC) as files:
        rig.begin()
    rig.logs.drop_future(TP)
    rig.copies.remove(TP, rig.logs.dormant.pop(TP))
    last = files.count - 1  # what a copy needs last is its topic id
    with FaultyFiles(rig.b, fail_at=last, error=errno.ENOSPC), pytest.raises(DiskFull):
        rig.copies.begin(TP, rig.home)
    assert not [*rig.b.glob("t-0*")]


def test_nothing_is_copied_of_what_is_not_served(rig):
    rig.logs.delete(TP)
    with pytest.raises(LogClosed, match="t-0 is not served here any more"):
        rig.copies.begin(TP, rig.home)


def test_a_copy_goes_on_where_it_was(rig):
    rig.begin()
    rig.copy_all()
    rig.logs.drop_future(TP)
    path = rig.logs.dormant[TP]
    future = rig.copies.go_on(TP, path)
    assert (future.directory, future.log_end_offset, future.config, future.topic_id) == (path, 10, CONFIG, ID)


def test_a_copy_that_lacks_its_id_goes_on_only_where_it_is_empty(rig):
    future = rig.begin()
    rig.logs.drop_future(TP)
    (future.directory / "partition.metadata").unlink()
    again = rig.copies.go_on(TP, future.directory)
    assert (again.topic_id, read_topic_id(future.directory)) == (ID, ID)
    again.append_as_follower(rig_batch(rig, 4))
    again.abandon()
    (future.directory / "partition.metadata").unlink()
    assert rig.copies.go_on(TP, future.directory) is None
    assert not [*rig.b.glob("t-0*")]


def rig_batch(rig, offset):
    piece = rig.log.read_for_copy(offset, 1)
    return memoryview(bytearray(piece.file.read(piece.position, piece.size)))


def test_a_copy_of_another_topic_is_removed(rig):
    future = rig.begin()
    rig.logs.drop_future(TP)
    future.assign_topic_id(OTHER_ID)
    assert rig.copies.go_on(TP, future.directory) is None
    assert not [*rig.b.glob("t-0*")]


def test_a_copy_of_a_partition_that_has_no_topic_id_goes_on(tmp_path):
    rig = Rig(tmp_path, topic_id=None)
    future = rig.begin()
    rig.logs.drop_future(TP)
    assert rig.copies.go_on(TP, future.directory).topic_id is None
    crash(rig.logs)


def test_what_the_partitions_own_disk_refuses_is_no_failure_of_the_copys(rig, monkeypatch):
    future, refused = rig.begin(), OSError(errno.EIO, "Input/output error")
    piece = rig.log.read_for_copy(4, LARGE)

    def pread(*_):
        raise refused

    with monkeypatch.context() as patch:
        patch.setattr("os.pread", pread)
        assert rig.copies.copy(future, piece) is refused
    assert future.log_end_offset == 4


def test_a_complete_copy_gets_the_partitions_name_with_a_mark(rig):
    rig.begin()
    rig.copy_all()
    future = rig.logs.futures[TP]
    future.advance_start(6)
    future.on_high_watermark(8)
    before = future.directory
    named = rig.copies.give_name(TP, future)
    rig.logs.futures[TP] = named
    assert named.directory == rig.b / "t-0"
    assert moved.is_marked(named.directory)
    assert not before.exists()
    found = named.log_start_offset, named.log_end_offset, named.recovery_point, named.high_watermark
    assert found == (6, 10, 10, 8)
    assert (named.config, named.topic_id, named.scanned_bytes) == (CONFIG, ID, 0)
    assert rig.log.directory.exists(), "it is served until the swap"
    assert read_offsets(rig.b / LOG_START_OFFSETS) == {TP: 6}
    assert rig.copies.give_name(TP, named) is named


@pytest.mark.parametrize("step", ["rename", "fsync"])
def test_a_copy_that_the_disk_does_not_rename_is_told_of(rig, step):
    rig.begin()
    rig.copy_all()
    future = rig.logs.futures[TP]
    future.close()
    rig.logs.checkpoint_dir(rig.home)
    with (
        FaultyFiles(rig.b, fail_at=0, steps=(step,), lasting=True),
        pytest.raises(LogDirFailed, match=f"cannot (rename {future.directory}|write the checkpoints)"),
    ):
        rig.copies.give_name(TP, future)
    assert not (rig.b / "t-0").exists()


def test_the_copy_stands_in_for_the_partitions_log(rig):
    rig.logs.set_cleaner_point(TP, 8)
    new = rig.named()
    rig.log.config = changed = parse(TopicConfig, {"retention.ms": "7"})
    assert rig.copies.swap(TP) is rig.log
    assert (rig.logs.logs, rig.logs.futures) == ({TP: new}, {})
    assert (new.high_watermark, new.log_start_offset, new.log_end_offset, new.config) == (9, 6, 10, changed)
    assert new.epochs.entries == rig.log.epochs.entries
    assert rig.logs.cleaner_point(TP) == 8
    assert (rig.logs.home_of(TP), rig.logs.future_home_of(TP)) == (rig.b, None)
    with pytest.raises(LogClosed):
        rig.log.append_as_leader(batch_of(1), 3)
    new.append_as_leader(transactional(7, 2), 3, AppendOrigin.COORDINATOR)
    assert new.log_end_offset == 11


def test_what_was_swapped_in_is_on_the_disk_before_what_was_goes(rig):
    new = rig.named()
    old = rig.copies.swap(TP)
    new.append_as_leader(batch_of(1), 3)
    rig.copies.secure(new)
    assert new.recovery_point == 11
    assert read_offsets(rig.b / RECOVERY_POINTS) == {TP: 11}
    rig.logs.checkpoint_dir(rig.logs.dirs.of(old.directory))
    doomed = rig.copies.retire(old, new)
    assert (doomed.parent, doomed.name[:4], doomed.name[-7:]) == (rig.a, "t-0.", "-delete")
    assert doomed.exists()
    assert not old.directory.exists()
    assert not moved.is_marked(new.directory)
    assert [read_offsets(rig.a / name) for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS)] == [{}] * 3


def test_the_log_that_was_is_not_named_in_the_checkpoints_any_more(rig):
    rig.logs.checkpoint()
    assert TP in read_offsets(rig.a / RECOVERY_POINTS)
    new = rig.named()
    rig.copies.retire(rig.copies.swap(TP), new)
    assert TP not in read_offsets(rig.a / RECOVERY_POINTS)


def test_a_mark_that_the_disk_keeps_is_no_failure(rig):
    new = rig.named()
    old = rig.copies.swap(TP)
    with FaultyFiles(rig.b, fail_at=0, steps=("unlink",)) as files:
        doomed = rig.copies.retire(old, new)
    assert files.count
    assert doomed.exists()
    assert moved.is_marked(new.directory)


def test_a_log_that_the_disk_does_not_let_go_is_told_of(rig):
    new = rig.named()
    old = rig.copies.swap(TP)
    with (
        FaultyFiles(rig.a, fail_at=0, steps=("rename",), error=errno.ENOSPC),
        pytest.raises(DiskFull, match=f"cannot rename {old.directory}: No space"),
    ):
        rig.copies.retire(old, new)
    assert moved.is_marked(new.directory)


def test_a_copy_is_removed_once(rig):
    path = rig.begin().directory
    rig.logs.drop_future(TP)
    with (
        FaultyFiles(rig.b, fail_at=0, steps=("rename",), error=errno.ENOSPC),
        pytest.raises(DiskFull, match=f"cannot remove {path}: No space"),
    ):
        rig.copies.remove(TP, path)
    assert path.exists()
    for _ in range(2):
        rig.copies.remove(TP, path)
        assert not [name for name in os.listdir(rig.b) if name.startswith("t-0")]
