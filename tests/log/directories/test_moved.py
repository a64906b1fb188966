"""What a start makes of a partition that is in two log directories, for it was being moved."""

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


def settle(homes, *, is_complete=True, starts=None):
    """The log directories in which the partition is left; ``starts`` are where it begins by the checkpoints."""
    starts = {} if starts is None else starts
    found = {home: {TP: home / "t-0"} for home in homes if (home / "t-0").exists()}

    def know(path, _):
        return Knowledge(log_start_offset=starts.get(path.parent.name, 0))

    def keep(path, _, offset):
        starts[path.parent.name] = offset

    moved.settle(found, know, keep, is_complete=is_complete)
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


@pytest.mark.parametrize("is_complete", [True, False])
def test_the_mark_stays_while_the_old_log_may_be_somewhere_else(homes, is_complete):
    moved.mark(log_at(homes[1], 0))
    assert settle(homes, is_complete=is_complete) == ["b"]
    assert moved.is_marked(homes[1] / "t-0") is not is_complete


def test_two_logs_without_a_mark_are_for_a_person(homes, tmp_path):
    for home in homes:
        log_at(home, 0)
    logs = LogManager([*homes], TopicConfig(), ManualClock(), None)
    with pytest.raises(ConfigError, match="move one away"):
        logs.load({})
    for each in logs._dirs:
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
