"""What a start makes of a partition that is in two log directories, for it was being moved."""

import os
import re

import pytest

from sparklog.config.topic import TopicConfig
from sparklog.errors import ConfigError
from sparklog.log.directories import moved
from sparklog.log.directories.manager import LogManager
from sparklog.log.loader import Knowledge
from sparklog.log.log import Log
from sparklog.record.builder import RecordBatchBuilder
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock

TP = TopicPartition("t", 0)


def batch():
    builder = RecordBatchBuilder()
    builder.append(1, None, b"v")
    return memoryview(bytearray(builder.build()))


def log_at(home, *epochs, name="t-0"):
    """A log in ``home`` with a batch of each of ``epochs``, closed in order."""
    directory = home / name
    directory.mkdir(parents=True)
    log = Log(directory, TP, TopicConfig(), ManualClock(), lambda work: work())
    for epoch in epochs:
        log.append_as_leader(batch(), epoch)
    log.close()
    return directory


@pytest.fixture
def homes(tmp_path):
    return tmp_path / "a", tmp_path / "b"


def refuse(_, path, error):
    raise AssertionError(path) from error


def settle(homes, *, is_complete=True, starts=None):
    """The log directories in which the partition is left; ``starts`` are where it begins by the checkpoints."""
    starts = {} if starts is None else starts
    found = {home: {TP: home / "t-0"} for home in homes if (home / "t-0").exists()}

    def know(path, _):
        return Knowledge(log_start_offset=starts.get(path.parent.name, 0))

    def keep(path, _, offset):
        starts[path.parent.name] = offset

    moved.settle(found, know, keep, refuse, is_complete=is_complete)
    return [home.name for home, here in found.items() if here]


@pytest.mark.parametrize(
    ("old", "new", "winner"),
    [
        ((0, 0), (0, 0), "b"),
        ((0, 0), (0, 0, 0), "b"),
        ((0, 0, 0), (0, 0), "a"),
        ((0, 0, 0), (0, 1), "b"),
        ((0, 0, 1), (0, 0, 0, 0), "a"),
        ((), (), "b"),
        ((0,), (), "a"),
    ],
)
def test_the_log_that_goes_further_is_the_partition(homes, old, new, winner):
    log_at(homes[0], *old)
    moved.mark(log_at(homes[1], *new))
    assert settle(homes) == [winner]
    loser = {"a": homes[1], "b": homes[0]}[winner]
    assert not (loser / "t-0").exists()
    futures = [*homes[1].glob("t-0.*-future")]
    assert len(futures) == (winner == "a"), "the copy is one again"
    assert not any(moved.is_marked(path) for path in (homes[1] / "t-0", *futures))


@pytest.mark.parametrize(("emptied", "winner"), [(0, "a"), (1, "b")])
def test_a_log_of_which_all_was_deleted_goes_as_far_as_before(homes, emptied, winner):
    """Or the partition would go on at offsets that it had before."""
    log_at(homes[0], 3, 3)
    moved.mark(log_at(homes[1], 3, 3))
    log = Log(homes[emptied] / "t-0", TP, TopicConfig(), ManualClock(), lambda work: work())
    log.append_as_leader(batch(), 3)
    log.advance_start(3)
    for path in log.delete_old_segments(3):
        path.unlink()
    assert log.size == 0
    log.close()
    assert settle(homes) == [winner]


@pytest.mark.parametrize(("one", "other", "winner"), [((0,), (0,), "a"), ((0, 0), (0,), "a"), ((0,), (0, 0), "b")])
def test_of_two_that_are_marked_the_one_that_goes_further_is_the_partition(homes, one, other, winner):
    """The mark of an earlier move stays where the disk refuses to remove it."""
    for home, epochs in zip(homes, (one, other), strict=True):
        moved.mark(log_at(home, *epochs))
    assert settle(homes) == [winner]
    assert not any(moved.is_marked(home / "t-0") for home in homes)


@pytest.mark.parametrize("is_complete", [True, False])
def test_the_mark_stays_while_the_old_log_may_be_somewhere_else(homes, is_complete):
    moved.mark(log_at(homes[1], 0))
    assert settle(homes, is_complete=is_complete) == ["b"]
    assert moved.is_marked(homes[1] / "t-0") is not is_complete


@pytest.mark.parametrize("which", [0, 1])
def test_a_swap_that_a_crash_interrupted_is_finished_before_the_logs_are_compared(homes, which):
    """The new log is cleaned from when it serves on, also where the old one could not be removed."""
    log_at(homes[0], 0, 0)
    moved.mark(log_at(homes[1], 0, 0))
    segment = homes[which] / "t-0" / f"{0:020d}.log"
    segment.rename(f"{segment}.swap")
    assert settle(homes) == ["b"]
    assert not [*homes[1].glob("*/*.swap")]


def test_two_logs_without_a_mark_are_for_a_person(homes, tmp_path):
    for home in homes:
        log_at(home, 0)
    logs = LogManager([*homes], TopicConfig(), ManualClock(), None)
    with pytest.raises(ConfigError, match="move one away"):
        logs.load({})
    for each in logs.dirs.in_service:
        each.close()


def test_a_copy_that_nothing_can_come_of_is_removed(homes):
    kept = log_at(homes[0], 0, name="t-0." + 32 * "1" + "-future")
    log_at(homes[0], 0, name="t-0." + 32 * "2" + "-future")
    here = {TP: [*homes[0].iterdir()]}
    assert moved.settle_futures(here, {}) == {TP: kept}
    assert moved.settle_futures({TP: [kept]}, {TP: homes[0] / "t-0"}) == {}, "it is in the log's own directory"
    assert not [*homes[0].glob("*-future")]


@pytest.mark.parametrize("starts", [{"a": 1}, {"b": 1}, {"a": 1, "b": 0}])
def test_what_was_deleted_last_stays_deleted(homes, starts):
    log_at(homes[0], 0, 0, 0)
    moved.mark(log_at(homes[1], 0, 0, 0))
    assert settle(homes, starts=starts) == ["b"]
    assert starts["b"] == 1


@pytest.mark.parametrize(("start", "begins"), [(2, 2), (3, 3), (7, 3)])
def test_what_was_deleted_stays_deleted_where_the_copy_lost_its_end(homes, start, begins):
    log_at(homes[0], 0, 0, 0)
    moved.mark(log_at(homes[1], 0))
    starts = {"a": 1, "b": start}
    assert settle(homes, starts=starts) == ["a"]
    assert starts["a"] == begins, "no later than the log's end"


def test_a_mark_is_an_empty_file_and_goes_once(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("os.fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    moved.mark(tmp_path)
    assert ((tmp_path / moved.MARK).read_bytes(), moved.is_marked(tmp_path)) == (b"", True)
    assert synced[-1] == str(tmp_path)
    for _ in range(2):
        synced.clear()
        moved.unmark(tmp_path)
        assert (synced, moved.is_marked(tmp_path)) == ([str(tmp_path)], False)


def test_where_a_partition_is_in_three_directories_a_person_is_to_decide(homes, tmp_path):
    third = tmp_path / "c"
    for home in (*homes, third):
        log_at(home, 0)
    moved.mark(third / "t-0")
    assert settle((*homes, third)) == ["a", "b", "c"]
    assert moved.is_marked(third / "t-0")


def test_each_partition_is_settled_by_itself(homes):
    other = TopicPartition("t", 1)
    log_at(homes[0], 0)
    moved.mark(log_at(homes[1], 0))
    kept = log_at(homes[0], 0, name="t-1")
    found = {homes[0]: {TP: homes[0] / "t-0", other: kept}, homes[1]: {TP: homes[1] / "t-0"}}
    starts = []
    moved.settle(found, lambda *_: Knowledge(), lambda *start: starts.append(start), refuse, is_complete=True)
    assert found == {homes[0]: {other: kept}, homes[1]: {TP: homes[1] / "t-0"}}
    assert starts == [(homes[1] / "t-0", TP, 0)]
    assert kept.exists()


def test_a_copy_that_is_one_again_keeps_its_start_to_itself(homes):
    log_at(homes[0], 0, 0, 0)
    moved.mark(log_at(homes[1], 0))
    starts = {"a": 2, "b": 0}
    assert settle(homes, starts=starts) == ["a"]
    assert starts == {"a": 2, "b": 0}
    (copy,) = homes[1].glob("t-0.*-future")
    assert moved.end_of(copy, Knowledge()) == (0, 1)


@pytest.mark.parametrize(("epochs", "end"), [((), (-1, 0)), ((0,), (0, 1)), ((0, 3, 3), (3, 3))])
def test_how_far_a_log_goes(homes, epochs, end):
    assert moved.end_of(log_at(homes[0], *epochs), Knowledge()) == end


def test_a_log_goes_as_far_as_the_last_segment_that_has_something(homes):
    directory = log_at(homes[0], 0, 2)
    log = Log(directory, TP, TopicConfig(), ManualClock(), lambda work: work())
    log.roll()
    log.close()
    assert len([*directory.glob("*.log")]) == 2
    assert moved.end_of(directory, Knowledge()) == (2, 2)


def test_what_is_doomed_has_a_name_of_its_own(homes):
    directory = log_at(homes[0], 0)
    doomed = moved.rename_doomed(directory, TP)
    assert (doomed.parent, directory.exists(), doomed.is_dir()) == (homes[0], False, True)
    assert re.fullmatch(r"t-0\.[0-9a-f]{32}-delete", doomed.name)
    moved.remove(log_at(homes[0], 0), TP)
    assert [*homes[0].iterdir()] == [doomed]


def test_of_the_copies_of_each_partition_one_is_kept(homes):
    other = TopicPartition("t", 1)
    names = [f"t-{number}.{32 * unique}-future" for number in (0, 1) for unique in "21"]
    paths = [log_at(homes[0], name=name) for name in names]
    here = {TP: paths[:2], other: paths[2:]}
    assert moved.settle_futures(here, {}) == {TP: paths[1], other: paths[3]}
    assert sorted(homes[0].iterdir()) == sorted([paths[1], paths[3]])
    assert here == {TP: paths[:2], other: paths[2:]}
