"""A local directory: files have their names when they are whole, and are put once."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from sparklog.storage import local
from sparklog.storage.place import Listed, open_place
from sparklog.testing.files import Crash, FaultyFiles


@pytest.fixture
def place(tmp_path):
    return open_place(str(tmp_path / "place"))


def test_what_is_not_there_is_empty(place):
    assert place.list("a") == Listed({}, ())
    with pytest.raises(FileNotFoundError):
        place.read("a/b")
    place.remove("a/b")


def test_a_file_is_listed_when_it_is_whole(place):
    file = place.create("a/b/c")
    file.write(b"12")
    assert place.list("a/b") == Listed({}, ())
    file.write(memoryview(b"34"))
    file.finish()
    assert place.list("a/b") == Listed({"c": 4}, ())
    assert place.list("a") == Listed({}, ("b",))
    assert place.read("a/b/c") == b"1234"


def test_a_file_that_goes_while_the_others_are_listed_takes_none_of_them_with_it(place, tmp_path, monkeypatch):
    (tmp_path / "place" / "a").mkdir(parents=True)
    for name in ("one", "two"):
        (tmp_path / "place" / "a" / name).write_bytes(b"x")
    scandir = os.scandir

    class Going:
        """Which is there when the directory is read, and gone at the look at it."""

        name = "going"

        def is_file(self):
            return True

        def is_dir(self):
            return False

        def stat(self):
            raise FileNotFoundError

    @contextmanager
    def listed(path):
        with scandir(path) as found:
            yield iter((Going(), *found))

    monkeypatch.setattr(os, "scandir", listed)
    assert place.list("a").files == {"one": 1, "two": 1}


def test_a_file_that_is_given_up_is_gone(place, tmp_path):
    file = place.create("a/b")
    file.write(b"12")
    file.discard()
    assert os.listdir(tmp_path / "place" / "a") == []


def test_of_many_one_is_put(place, tmp_path):
    def put(number):
        return open_place(str(tmp_path / "place")).publish("a/1", b"%d" % number)

    with ThreadPoolExecutor(8) as threads:
        won = list(threads.map(put, range(8)))
    assert won.count(True) == 1
    assert place.read("a/1") == b"%d" % won.index(True)
    assert os.listdir(tmp_path / "place" / "a") == ["1"]


@pytest.mark.parametrize("act", ["write", "publish"])
def test_what_was_finished_outlives_a_power_cut_and_what_was_not_is_not_there(tmp_path, act):
    """At every step of it: afterwards the file is there whole, or not at all; and it is there once it was finished."""
    step = 0
    while True:
        root = tmp_path / f"{act}-{step}"
        root.mkdir()
        done = False
        with FaultyFiles(root, crash_at=step) as files:
            try:
                getattr(open_place(str(root / "place")), act)("a/b", b"whole")
                done = True
            except Crash:
                pass
        files.cut(tmp_path / f"{act}-{step}-after", seed=step)
        after = open_place(str(tmp_path / f"{act}-{step}-after" / "place"))
        assert after.list("a").files in ([{"b": 5}] if done else [{}, {"b": 5}])
        if after.list("a").files:
            assert after.read("a/b") == b"whole"
        if done:
            return
        step += 1


def test_what_may_not_stay_is_not_taken_for_published(tmp_path, monkeypatch):
    place = open_place(str(tmp_path))

    def refuse(directory):
        if (directory / "b").exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(local, "sync_directory", refuse)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        place.publish("b", b"whole")
