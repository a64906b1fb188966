"""A full disk is told of at once, not too often, and when there is room again."""

import errno
import os
from collections import namedtuple

import pytest

from sparklog.errors import DiskFull
from sparklog.log.directories.room import Room
from sparklog.log.files import disk_refused
from sparklog.testing.clock import ManualClock

Usage = namedtuple("Usage", "f_bavail f_frsize f_files f_favail")


class Rig:
    def __init__(self, home, monkeypatch):
        self.home = home
        self.clock = ManualClock()
        self.room = Room(self.clock)
        self.free, self.inodes = 8192, 5
        monkeypatch.setattr("os.statvfs", self.usage)

    def usage(self, path):
        assert path == self.home
        if self.free is None:
            raise OSError(errno.EIO, "Input/output error")
        return Usage(self.free // 512, 512, 0 if self.inodes is None else 100, self.inodes or 0)

    def refuse(self, number=errno.ENOSPC):
        error = disk_refused("cannot append to t-0", OSError(number, os.strerror(number)))
        assert isinstance(error, DiskFull)
        self.room.refused(self.home, error)


@pytest.fixture
def rig(tmp_path, monkeypatch):
    return Rig(tmp_path, monkeypatch)


def test_the_first_refusal_is_told_at_once_and_the_next_ones_are_counted(rig, caplog):
    for _ in range(100):
        rig.refuse()
        rig.clock.advance(0.05)
    (line,) = caplog.messages
    assert f"log directory {rig.home} has no room (8192 bytes free): cannot append to t-0: No space left" in line
    assert "make room on that disk: delete topics" in line
    rig.clock.advance(6)
    rig.refuse()
    assert len(caplog.messages) == 2
    assert "refused 99 times more" in caplog.messages[1]


def test_that_there_is_room_again_is_told_once(rig, caplog):
    rig.room.written(rig.home)
    rig.refuse()
    assert rig.room.is_short
    for rig.free in (8192, 4096):  # what is small finds its place on a full disk
        rig.room.written(rig.home)
    assert len(caplog.messages) == 1
    rig.free = 1 << 20
    for _ in range(2):
        rig.room.written(rig.home)
    assert caplog.messages[1:] == [f"log directory {rig.home} has room again (1048576 bytes free)"]
    rig.clock.advance(10)
    rig.refuse()
    assert len(caplog.messages) == 3


OVER_QUOTA = ("has no room left of its quota: ", "raise the quota of the broker's user", "has room again")
TOO_MANY_FILES = ("cannot open another file: ", "let the process open more files", "can open files again")
TOO_MANY_OF_ALL = ("cannot open another file: ", "raise fs.file-max", "can open files again")


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.EDQUOT, OVER_QUOTA), (errno.EMFILE, TOO_MANY_FILES), (errno.ENFILE, TOO_MANY_OF_ALL)],
)
def test_where_no_number_tells_a_write_is_room_enough(rig, caplog, number, said):
    """And no free bytes are named, nor room on the disk asked for: there may be plenty."""
    lack, advice, relief = said
    rig.refuse(number)
    assert f"log directory {rig.home} {lack}" in caplog.text
    assert advice in caplog.text
    assert "8192" not in caplog.text
    assert "make room" not in caplog.text
    rig.room.written(rig.home)
    assert not rig.room.is_short
    assert caplog.messages[1:] == [f"log directory {rig.home} {relief}"]


def test_refusals_with_room_in_between_fill_no_log(rig, caplog):
    """A disk that another program fills and empties, or a table of open files at its limit."""
    for _ in range(100):
        rig.refuse(errno.EMFILE)
        rig.room.written(rig.home)
        rig.clock.advance(0.05)
    assert len(caplog.messages) == 2
    rig.clock.advance(6)
    rig.refuse(errno.EMFILE)
    assert "refused 99 times more" in caplog.messages[2]
    rig.room.written(rig.home)
    assert len(caplog.messages) == 4


def test_a_directory_that_cannot_be_looked_at_is_told_of_without_a_number(rig, caplog):
    rig.free = None
    rig.refuse()
    assert "has no room (free bytes unknown)" in caplog.text
    rig.free = 512
    rig.room.written(rig.home)
    assert not rig.room.is_short


def test_a_disk_without_an_inode_is_short_of_that(rig, caplog):
    """It takes what is appended to the files that are there, so its free bytes become fewer."""
    rig.inodes = 0
    rig.refuse()
    assert f"log directory {rig.home} has no room (8192 bytes and no inode free)" in caplog.text
    assert "there is no inode for another file on that disk: delete files or topics" in caplog.text
    rig.room.written(rig.home)
    assert rig.room.is_short
    rig.free, rig.inodes = 4096, 7
    rig.room.written(rig.home)
    assert not rig.room.is_short
    assert caplog.messages[1:] == [f"log directory {rig.home} has room again (4096 bytes free)"]


def test_a_file_system_that_counts_no_inodes_lacks_none(rig, caplog):
    rig.inodes = None
    rig.refuse()
    assert "make room on that disk: delete topics" in caplog.text
    rig.free = 1 << 20
    rig.room.written(rig.home)
    assert not rig.room.is_short
