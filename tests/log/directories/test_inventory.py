"""What a start finds in the log directories, where one of their disks fails while it looks."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from log.samples import batch_of

from sparklog.errors import ConfigError
from sparklog.log.adoption import ADOPTION
from sparklog.log.checkpoints import LEADER_EPOCHS, LOG_START_OFFSETS
from sparklog.log.directories import moved
from sparklog.log.directories.inventory import Inventory
from sparklog.log.directories.log_dirs import LogDirs
from sparklog.structs import TopicPartition
from sparklog.testing.files import FaultyFiles

ONE, TWO, THREE = (TopicPartition("t", number) for number in (1, 2, 3))
LOG = f"{0:020d}.log"


@pytest.fixture
def dirs(tmp_path):
    opened = LogDirs([tmp_path / "a", tmp_path / "b", tmp_path / "c"])
    yield opened
    for each in opened.in_service:
        each.close()


def inventory_of(dirs, why_stray=lambda *_: None):
    def fail(path, reason):
        dirs.note_failed(path, reason)
        dirs.in_service = [each for each in dirs.in_service if each.path != path]

    found = Inventory(dirs, why_stray, fail)
    with ThreadPoolExecutor(3) as pool:
        found.take(pool)
    return found


def lay(path, *, records=b""):
    path.mkdir()
    (path / LOG).write_bytes(records)
    return path


def test_each_partition_is_found_in_its_home_and_what_else_bears_its_name_is_gone(dirs, tmp_path):
    home = lay(tmp_path / "b" / str(ONE), records=b"?")
    blank, other = lay(tmp_path / "a" / str(ONE)), lay(tmp_path / "a" / str(TWO))
    found = inventory_of(dirs)
    assert {each.path.name: here for each, here in found.found.items()} == {
        "a": {TWO: other},
        "b": {ONE: home},
        "c": {},
    }
    assert not blank.exists()


def test_a_partition_that_was_moved_begins_where_it_did(dirs, tmp_path):
    lay(tmp_path / "a" / str(ONE))
    home = lay(tmp_path / "b" / str(ONE), records=batch_of(1, 2, 3))
    moved.mark(home)
    (tmp_path / "a" / LOG_START_OFFSETS).write_text("0\n1\nt 1 2\n")
    found = inventory_of(dirs)
    assert [here for here in found.found.values() if here] == [{ONE: home}]
    assert dirs.of(home).known(ONE).log_start_offset == 2


@pytest.mark.parametrize(
    ("damaged", "name"), [("a", LEADER_EPOCHS), ("b", LEADER_EPOCHS), ("a", ADOPTION), ("b", ADOPTION)]
)
def test_a_partition_that_was_moved_and_cannot_be_read_keeps_no_other_from_being_found(dirs, tmp_path, damaged, name):
    """Which of the two directories is the partition is for a person; nothing in them is touched."""
    homes = [lay(tmp_path / each / str(ONE)) for each in "ab"]
    moved.mark(homes[1])
    (tmp_path / damaged / str(ONE) / name).write_text("0\n1\nx y\n")
    other, after = lay(tmp_path / "a" / str(TWO)), lay(tmp_path / "c" / str(THREE))
    moved.mark(after)
    before = sorted(each for home in homes for each in home.iterdir())
    found = inventory_of(dirs)
    assert {tp: path for here in found.found.values() for tp, path in here.items()} == {TWO: other, THREE: after}
    ((tp, path, error),) = found.unsettled
    assert (tp, path) == (ONE, homes[1])
    assert str(error).startswith(f"{ONE} was being moved from {homes[0]} to {homes[1]}, and it cannot be said which")
    assert str(tmp_path / damaged / str(ONE) / name) in str(error)
    assert sorted(each for home in homes for each in home.iterdir()) == before
    assert not moved.is_marked(after), "the next one was settled"


def test_a_partition_that_cannot_be_settled_in_a_directory_that_fails_counts_no_more(dirs, tmp_path):
    for each in "bc":
        lay(tmp_path / each / str(ONE))
    moved.mark(tmp_path / "c" / str(ONE))
    (tmp_path / "b" / str(ONE) / LEADER_EPOCHS).write_text("?")
    (tmp_path / "c" / f"{TWO}.{'1' * 32}-delete").mkdir()
    lay(tmp_path / "a" / str(THREE), records=b"?")
    lay(tmp_path / "c" / str(THREE))  # which is to be renamed
    with FaultyFiles(tmp_path / "c", fail_at=0, lasting=True, steps=("rename",)):
        found = inventory_of(dirs)
    assert list(dirs.failed) == [tmp_path / "c"]
    assert found.unsettled == []


@pytest.mark.parametrize("step", ["fsync", "pread"])
def test_a_disk_that_fails_while_a_move_is_settled_fails_alone(dirs, tmp_path, step):
    """Its error names no file, yet the broker is to know whose it is."""
    lay(tmp_path / "a" / str(ONE))
    moved.mark(lay(tmp_path / "b" / str(ONE), records=batch_of(1, 2, 3)))
    other = lay(tmp_path / "c" / str(TWO), records=b"?")
    with FaultyFiles(tmp_path / "b", fail_at=0, lasting=True, steps=(step,)):
        found = inventory_of(dirs)
    assert list(dirs.failed) == [tmp_path / "b"]
    assert {TWO: other} in found.found.values()


def test_two_logs_of_a_partition_are_for_a_person(dirs, tmp_path):
    for name in "ab":
        lay(tmp_path / name / str(ONE), records=b"?")
    with pytest.raises(ConfigError, match=r"t-1 is both in .*: move one away"):
        inventory_of(dirs)
    assert all((tmp_path / name / str(ONE) / LOG).exists() for name in "ab")


def test_what_is_unclear_or_a_copy_in_a_directory_that_fails_meanwhile_counts_no_more(dirs, tmp_path):
    dirs.note_failed(tmp_path / "d", "it failed before")
    for tp in (TWO, THREE):
        lay(tmp_path / "a" / str(tp), records=b"?")
    lay(tmp_path / "c" / str(TWO))  # which is to be renamed
    (tmp_path / "c" / f"{THREE}.{'1' * 32}-future").mkdir()
    for name in "bc":
        (tmp_path / name / str(ONE)).mkdir()
    with FaultyFiles(tmp_path / "c", fail_at=0, lasting=True, steps=("rename",)):
        found = inventory_of(dirs)
    assert list(dirs.failed) == [tmp_path / "d", tmp_path / "c"]
    assert (found.unclear, found.copies) == ([(ONE, tmp_path / "b" / str(ONE))], {})
