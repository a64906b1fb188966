"""One log directory by itself: what it knows of its partitions, and what its checkpoints say."""

import os
import stat
from types import SimpleNamespace

import pytest

from sparklog.errors import ConfigError, LogDirFailed
from sparklog.log.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_offsets,
    write_offsets,
)
from sparklog.log.directories.clean_stop import CleanStop, unbroken_since
from sparklog.log.directories.directory import LogDir
from sparklog.log.loader import Knowledge
from sparklog.structs import TopicPartition
from sparklog.testing.files import FaultyFiles

ONE, TWO, THREE = (TopicPartition("t", number) for number in range(3))
MARKER = ".kafka_cleanshutdown"


def log_of(recovery_point, start=0, high_watermark=0):
    """What a checkpoint asks of a log."""
    return SimpleNamespace(recovery_point=recovery_point, log_start_offset=start, high_watermark=high_watermark)


@pytest.fixture
def home(tmp_path):
    found = LogDir(tmp_path)
    yield found
    found.close()


def said(home):
    return [read_offsets(home.path / name) for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS)]


def test_a_checkpoint_says_of_each_log_how_far_it_is(home):
    home.cleaner_points.set(ONE, 3)
    home.checkpoint(lambda: ({ONE: log_of(5, 2, 4), TWO: log_of(0, 0, 0)}, ()))
    assert said(home) == [{ONE: 5, TWO: 0}, {ONE: 2}, {ONE: 4, TWO: 0}]
    assert read_offsets(home.path / CLEANER_OFFSETS) == {ONE: 3}


def test_what_cannot_be_used_keeps_its_start_as_long_as_that_is_so(home):
    home.keep_start(ONE, 7)
    home.keep_start(TWO, 8)
    home.checkpoint(lambda: ({THREE: log_of(1)}, (ONE,)))
    assert said(home) == [{THREE: 1}, {ONE: 7}, {THREE: 0}]
    home.checkpoint(lambda: ({ONE: log_of(9, 0, 9)}, ()))
    assert said(home) == [{ONE: 9}, {}, {ONE: 9}]


def test_which_partitions_the_checkpoints_may_name_is_known(home):
    write_offsets(home.path / RECOVERY_POINTS, {ONE: 5})
    write_offsets(home.path / LOG_START_OFFSETS, {TWO: 5})
    write_offsets(home.path / HIGH_WATERMARKS, {THREE: 5})
    other = TopicPartition("t", 3)
    assert not home.names(ONE)
    home.look()
    assert [home.names(tp) for tp in (ONE, TWO, THREE, other)] == [True, True, True, False]
    home.checkpoint(lambda: ({ONE: log_of(5)}, ()))
    assert [home.names(tp) for tp in (ONE, TWO, THREE)] == [True, False, False]
    home.keep_start(other, 1)
    assert home.names(other)
    home.checkpoint(lambda: ({}, (TWO,)))
    assert [home.names(tp) for tp in (ONE, TWO, other)] == [False, True, False]


def test_until_all_files_are_written_they_may_name_what_they_named_and_what_they_are_to(home):
    home.checkpoint(lambda: ({ONE: log_of(5)}, ()))
    with FaultyFiles(home.path, fail_at=0), pytest.raises(LogDirFailed, match="cannot write the checkpoints of"):
        home.checkpoint(lambda: ({TWO: log_of(5)}, ()))
    assert (home.names(ONE), home.names(TWO)) == (True, True)


@pytest.mark.parametrize("marker", [True, False])
def test_what_the_files_say_of_a_partition(home, marker):
    write_offsets(home.path / RECOVERY_POINTS, {ONE: 5, TWO: 0})
    write_offsets(home.path / LOG_START_OFFSETS, {ONE: 2, THREE: 4})
    write_offsets(home.path / HIGH_WATERMARKS, {ONE: 3})
    if marker:
        (home.path / MARKER).touch()
    home.look()
    assert home.known(ONE) == Knowledge(5, 2, marker, high_watermark=3)
    assert home.known(TWO) == Knowledge(0, 0, marker)
    assert home.known(THREE) == Knowledge(0, 4, False), "it was not closed: it is not in the checkpoint"


@pytest.mark.parametrize(
    ("name", "known", "consequence"),
    [
        (RECOVERY_POINTS, Knowledge(0, 2, False, high_watermark=3), "every log is scanned from its start"),
        (LOG_START_OFFSETS, Knowledge(5, 0, True, high_watermark=3), "every log starts with its first segment"),
        (HIGH_WATERMARKS, Knowledge(5, 2, True), "followers tell anew what is committed"),
    ],
)
def test_a_file_that_cannot_be_read_says_nothing_and_that_is_told(home, caplog, name, known, consequence):
    for number, each in enumerate((RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS)):
        write_offsets(home.path / each, {ONE: (5, 2, 3)[number]})
    (home.path / MARKER).touch()
    (home.path / name).write_text("garbage")
    home.look()
    assert home.known(ONE) == known
    (line,) = caplog.messages
    assert name in line
    assert line.endswith(f"; {consequence}")


def test_the_marker_goes_when_the_logs_are_open_and_comes_when_they_are_closed(home):
    (home.path / MARKER).touch()
    home.end(lambda: ({}, ()), CleanStop(7, 1))
    assert (home.path / MARKER).read_text() == "", "they were never open"
    with FaultyFiles(home.path) as files:
        home.begin()
    assert (files.count, (home.path / MARKER).exists()) == (2, False), "durably"
    with FaultyFiles(home.path) as files:
        home.begin()
    assert files.count == 0
    home.end(lambda: ({ONE: log_of(5)}, ()), CleanStop(7, 1))
    assert (said(home)[0], unbroken_since([home.path])) == ({ONE: 5}, 7)
    home.end(lambda: ({}, ()))
    assert (home.path / MARKER).exists()


def test_what_is_a_partition_what_is_a_copy_and_what_is_neither(home, caplog):
    unique = "0f" * 16
    for name in ("t-0", "t-1", f"t-0.{unique}-future", f"t-2.{unique}-stray", f"t-2.{unique}-delete", "lost+found"):
        (home.path / name).mkdir()
    (home.path / "t-3").touch()
    (home.path / f"t-3.{unique}-future").touch()
    assert home.partitions() == {ONE: home.path / "t-0", TWO: home.path / "t-1"}
    assert home.futures() == {ONE: [home.path / f"t-0.{unique}-future"]}
    assert [line for line in caplog.messages if "was set aside" in line] == [
        f"{home.path}/t-2.{unique}-stray was set aside; nothing of it is served. Remove it when you need it no more"
    ]


def test_a_directory_is_one_brokers_until_it_is_closed(tmp_path):
    held = LogDir(tmp_path / "logs")
    with pytest.raises(ConfigError, match=f"log directory {tmp_path}/logs is in use by another broker"):
        LogDir(tmp_path / "logs")
    held.close()
    LogDir(tmp_path / "logs").close()


def test_the_lock_is_its_owners_to_write_and_everyones_to_read(home):
    before = os.umask(0o022)
    os.umask(before)
    assert stat.S_IMODE((home.path / ".lock").stat().st_mode) == 0o644 & ~before


def test_whose_a_directory_is_is_written_once(home):
    home.own("c", 3)
    written = (home.path / "meta.properties").stat().st_ino
    home.own("c", 3)
    assert (home.path / "meta.properties").stat().st_ino == written
    with pytest.raises(ConfigError, match=r"belongs to broker\.id=3, not 4, as its meta\.properties says; give this"):
        home.own("c", 4)
    with pytest.raises(ConfigError, match=r"belongs to cluster\.id=c, not d, as"):
        home.own("d", 3)


@pytest.mark.parametrize("line", ["broker.id=3", "cluster.id=c"])
def test_what_the_file_does_not_say_is_held_against_no_broker(home, line):
    """As a broker leaves it that has not joined its cluster yet."""
    (home.path / "meta.properties").write_text(f"version=0\n{line}\n")
    home.own("c", 3)
    with pytest.raises(ConfigError, match=f"belongs to {line}, not"):
        home.own("d", 4)


def test_what_a_crash_left_of_a_checkpoint_is_removed(home):
    (home.path / f"{RECOVERY_POINTS}.7.tmp").touch()
    home.look()
    assert not [*home.path.glob("*.tmp")]


@pytest.mark.parametrize("name", [".lock", MARKER, "meta.properties", RECOVERY_POINTS, CLEANER_OFFSETS])
def test_what_is_no_file_is_never_opened(tmp_path, name):
    """A pipe is waited for without an end."""
    os.mkfifo(tmp_path / name)
    with pytest.raises(LogDirFailed, match=f"{tmp_path / name} is no file, or a link to nothing"):
        LogDir(tmp_path)
    assert unbroken_since([tmp_path]) is None


def test_a_link_to_nothing_is_not_followed(tmp_path):
    """To open it would make a file where it points to."""
    (tmp_path / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LogDirFailed, match=f"{tmp_path}/.lock is no file, or a link to nothing; remove it"):
        LogDir(tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_whose_a_directory_is_that_cannot_be_read_is_for_a_person_to_say(home):
    (home.path / "meta.properties").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"meta.properties is not text: .*; if it is this broker's, remove that file"):
        home.own("cluster", 1)
    (home.path / "meta.properties").unlink()
    home.own("cluster", 1)
