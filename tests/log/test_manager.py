"""The log directories of a broker: owned, locked, opened, closed."""

from concurrent.futures import Executor, Future
from uuid import UUID

import pytest
from log.samples import abandon, batch_of, read_bytes, whole

from sparklog.config.topic import TopicConfig
from sparklog.errors import ConfigError, LogDirFailed
from sparklog.log.manager import LogManager
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock

ONE, TWO = TopicPartition("t", 0), TopicPartition("t-x", 11)
ID = UUID(int=77)


class Later(Executor):
    """Runs what was submitted when it is told to."""

    def __init__(self):
        self.waiting = []

    def submit(self, call, *args):
        self.waiting.append((call, args))
        return Future()

    def run(self):
        waiting, self.waiting = self.waiting, []
        for call, args in waiting:
            call(*args)


@pytest.fixture
def later():
    return Later()


def opened(later, *dirs, load=True):
    manager = LogManager(list(dirs), TopicConfig(), ManualClock(), later)
    manager.own("cluster", 1)
    if load:
        manager.load({})
    return manager


def crash(manager):
    """What a killed process leaves: the locks go, nothing else happens."""
    for log in manager.logs.values():
        abandon(log)
    for log_dir in manager._dirs:
        log_dir.close()


def filled(later, home):
    manager = opened(later, home)
    for tp in (ONE, TWO):
        log = manager.get_or_create(tp, None, ID)
        for _ in range(3):
            log.append_as_leader(batch_of(1, 2), 0)
    return manager


def test_a_clean_stop_is_marked_and_the_mark_is_gone_before_the_next_append(later, tmp_path):
    manager = filled(later, tmp_path)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    manager.close()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    manager = opened(later, tmp_path)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert {tp: log.log_end_offset for tp, log in manager.logs.items()} == {ONE: 6, TWO: 6}
    assert [log.topic_id for log in manager.logs.values()] == [ID, ID]
    manager.close()


def test_a_crash_is_not_taken_for_a_clean_stop(later, tmp_path):
    manager = filled(later, tmp_path)
    manager.checkpoint()
    crash(manager)
    (path,) = (tmp_path / "t-0").glob("*.log")
    with open(path, "ab") as file:
        file.write(b"torn")
    manager = opened(later, tmp_path)
    assert manager.logs[ONE].recovered_bytes_dropped == 4
    assert manager.logs[ONE].log_end_offset == 6
    manager.close()


def test_recovery_points_are_written_of_what_is_on_disk(later, tmp_path):
    manager = filled(later, tmp_path)
    manager.checkpoint()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n2\nt 0 0\nt-x 11 0\n"
    manager.logs[ONE].roll()
    manager.checkpoint()
    assert "t 0 0" in (tmp_path / "recovery-point-offset-checkpoint").read_text(), "rolled, but not flushed yet"
    later.run()
    manager.checkpoint()
    assert "t 0 6" in (tmp_path / "recovery-point-offset-checkpoint").read_text()
    manager.close()


def test_a_directory_in_use_is_refused(later, tmp_path):
    manager = opened(later, tmp_path / "a")
    with pytest.raises(ConfigError, match="in use by another broker"):
        opened(later, tmp_path / "b", tmp_path / "a")
    opened(later, tmp_path / "b").close()  # and the first of the two was let go
    manager.close()
    opened(later, tmp_path / "a").close()


@pytest.mark.parametrize(("cluster", "broker", "name"), [("other", 1, "cluster.id"), ("cluster", 2, "broker.id")])
def test_anothers_directory_is_refused(later, tmp_path, cluster, broker, name):
    opened(later, tmp_path).close()
    manager = LogManager([tmp_path], TopicConfig(), ManualClock(), later)
    with pytest.raises(ConfigError, match=rf"belongs to {name}=.*log\.dirs"):
        manager.own(cluster, broker)
    manager.close()


def test_a_directory_that_cannot_be_made_is_refused(later, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(LogDirFailed, match="cannot use log directory"):
        LogManager([tmp_path / "file" / "dir"], TopicConfig(), ManualClock(), later)


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
def test_a_checkpoint_of_garbage_costs_a_scan_and_is_named(later, tmp_path, caplog, name):
    manager = opened(later, tmp_path)
    manager.get_or_create(ONE, None, None).append_as_leader(batch_of(), 0)
    manager.close()
    (tmp_path / name).write_bytes(b"\xff garbage")
    manager = opened(later, tmp_path)
    assert name in caplog.text
    assert (manager.logs[ONE].log_end_offset, manager.logs[ONE].log_start_offset) == (1, 0)
    assert (manager.logs[ONE].scanned_bytes > 0) == name.startswith("recovery")
    manager.close()


def test_a_directory_whose_start_failed_is_left_as_it_was(later, tmp_path):
    manager = opened(later, tmp_path)
    log = manager.get_or_create(ONE, None, None)
    for _ in range(3):
        log.append_as_leader(batch_of(), 0)
    manager.advance_start(ONE, 2)
    abandoned = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    manager._dirs[0].close()
    refused = LogManager([tmp_path], TopicConfig(), ManualClock(), later)
    with pytest.raises(ConfigError):
        refused.own("cluster", 2)
    refused.close()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == abandoned
    assert opened(later, tmp_path).logs[ONE].log_start_offset == 2


def test_what_is_no_partition_is_left_alone(later, tmp_path):
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "t-0.backup").mkdir()
    (tmp_path / "file-0").touch()
    manager = opened(later, tmp_path)
    assert manager.logs == {}
    manager.close()
    assert (tmp_path / "t-0.backup").exists()


def test_a_deleted_partition_is_gone_at_once_and_can_be_made_again(later, tmp_path):
    manager = filled(later, tmp_path)
    piece = manager.logs[ONE].read(0, 1 << 20, manager.logs[ONE].end, min_one_batch=True)
    content = read_bytes(piece)
    manager.delete(ONE)
    manager.delete(ONE)
    assert ONE not in manager.logs
    assert not (tmp_path / "t-0").exists()
    assert len(list(tmp_path.glob("t-0.*-delete"))) == 1
    assert manager.get_or_create(ONE, None, None).log_end_offset == 0
    later.run()
    assert not list(tmp_path.glob("*-delete"))
    assert read_bytes(piece) == content
    manager.close()


def test_a_deletion_that_was_not_finished_is_finished_at_the_next_start(later, tmp_path):
    manager = filled(later, tmp_path)
    manager.delete(ONE)
    crash(manager)
    assert list(tmp_path.glob("*-delete"))
    manager = opened(Later(), tmp_path)
    assert not list(tmp_path.glob("*-delete"))
    assert list(manager.logs) == [TWO]
    manager.close()


def test_partitions_are_spread_over_the_directories(later, tmp_path):
    manager = opened(later, tmp_path / "a", tmp_path / "b")
    for number in range(4):
        manager.get_or_create(TopicPartition("t", number), None, None).append_as_leader(batch_of(), 0)
    homes = [log.directory.parent.name for log in manager.logs.values()]
    assert homes.count("a") == homes.count("b") == 2
    manager.close()
    manager = opened(later, tmp_path / "b", tmp_path / "a")
    assert sorted(log.log_end_offset for log in manager.logs.values()) == [1] * 4
    manager.close()


def test_one_directory_may_crash_alone(later, tmp_path):
    manager = opened(later, tmp_path / "a", tmp_path / "b")
    for number in range(2):
        log = manager.get_or_create(TopicPartition("t", number), None, None)
        log.append_as_leader(batch_of(), 0)
        expected = whole(log)
    manager.close()
    (tmp_path / "b" / ".kafka_cleanshutdown").unlink()
    manager = opened(later, tmp_path / "a", tmp_path / "b")
    assert [whole(log) for log in manager.logs.values()] == [expected] * len(manager.logs)
    manager.close()


def test_the_use_of_each_directory_is_told_also_of_one_that_failed(later, tmp_path):
    good, bad = tmp_path / "good", tmp_path / "bad"
    manager = opened(later, good, bad)
    for tp in (ONE, TWO):
        manager.get_or_create(tp, None, ID).append_as_leader(batch_of(), 0)
    sizes = {use.path: dict(use.partitions) for use in manager.usage()}
    assert sorted(sizes) == [bad, good]
    assert {tp: size for each in sizes.values() for tp, size in each.items()} == {
        ONE: len(batch_of()),
        TWO: len(batch_of()),
    }
    assert all(0 < use.usable_bytes <= use.total_bytes and use.failure is None for use in manager.usage())
    manager.fail(bad, "cable pulled")
    kept, lost = manager.usage()
    assert (kept.path, kept.failure, dict(kept.partitions)) == (good, None, sizes[good])
    assert (lost.path, lost.failure, dict(lost.partitions), lost.total_bytes) == (bad, "cable pulled", {}, -1)
    good.rename(tmp_path / "gone")
    assert "No such file" in manager.usage()[0].failure
    (tmp_path / "gone").rename(good)
    manager.close()
