"""Up to where logs are clean: never ahead of what is, whatever a crash left in the file."""

import errno
from contextlib import suppress
from uuid import UUID

import pytest
from compaction.keyed import append, fill
from log.directories.test_manager import Later, crash
from log.samples import batch_of, whole, write_cleaned

from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.log.checkpoints import CLEANER_OFFSETS, read_offsets
from sparklog.log.directories.cleaner_points import CleanerPoints
from sparklog.log.directories.directory import LogDir
from sparklog.log.directories.making import NewPartition
from sparklog.log.directories.manager import LogManager
from sparklog.log.loader import Knowledge
from sparklog.structs import TopicPartition
from sparklog.testing.clock import ManualClock
from sparklog.testing.files import FaultyFiles

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
CONFIG = parse(TopicConfig, {"cleanup.policy": "compact", "segment.bytes": "1000"})
ID, NEW_ID = UUID(int=1), UUID(int=2)


def in_file(home):
    return read_offsets(home / CLEANER_OFFSETS)


@pytest.fixture
def points(tmp_path):
    return CleanerPoints(tmp_path)


def test_what_is_written_is_read(points, tmp_path):
    points.set(TP, 7)
    points.set(OTHER, 0)
    assert in_file(tmp_path) == {}
    points.write()
    assert in_file(tmp_path) == {TP: 7, OTHER: 0}
    again = CleanerPoints(tmp_path)
    again.load()
    assert (again.of(TP), again.of(OTHER), again.of(TopicPartition("t", 2))) == (7, 0, None)


def test_a_start_knows_what_was_cleaned(points, tmp_path):
    points.set(TP, 7)
    points.write()
    home = LogDir(tmp_path)
    home.look()
    assert (home.known(TP).cleaned_to, home.known(OTHER).cleaned_to) == (7, 0)


def test_the_file_is_as_kafka_writes_it(points, tmp_path):
    points.set(OTHER, 9)
    points.set(TP, 7)
    points.write()
    assert (tmp_path / CLEANER_OFFSETS).read_text() == "0\n2\nt 0 7\nt 1 9\n"


def test_nothing_is_written_that_is_there_already(points, tmp_path):
    points.set(TP, 7)
    points.write()
    with FaultyFiles(tmp_path) as files:
        points.set(TP, 7)
        points.write()
        points.forget(OTHER)
        points.write()
    assert files.count == 0


def test_no_file_is_written_where_no_log_was_ever_cleaned(points, tmp_path):
    points.load()
    points.write()
    points.forget(TP)
    points.write()
    assert not (tmp_path / CLEANER_OFFSETS).exists()


def test_a_cut_lowers_and_never_raises(points):
    assert not points.lower(TP, 5)
    assert points.of(TP) is None
    points.set(TP, 7)
    assert not points.lower(TP, 7)
    assert points.lower(TP, 6)
    assert points.of(TP) == 6
    assert points.lower(TP, 0)
    assert points.of(TP) == 0


@pytest.mark.parametrize("step", range(8))
def test_a_write_that_the_disk_refuses_is_made_up_for(points, tmp_path, step):
    points.set(TP, 7)
    points.write()
    points.set(TP, 9)
    with FaultyFiles(tmp_path, fail_at=step, error=errno.ENOSPC), suppress(OSError):
        points.write()
    assert in_file(tmp_path) in ({TP: 7}, {TP: 9})
    points.write()
    assert in_file(tmp_path) == {TP: 9}


@pytest.mark.parametrize("text", ["0\n2\nt 0 7\n", "0\n1\nt 0 -7\n", "1\n1\nt 0 7\n", "garbage", "\xff"])
def test_a_file_that_cannot_be_read_says_nothing(points, tmp_path, caplog, text):
    (tmp_path / CLEANER_OFFSETS).write_bytes(text.encode("latin-1"))
    points.load()
    assert points.of(TP) is None
    assert "every compacted log there is cleaned from its start" in caplog.text


def test_an_empty_file_is_that_of_a_broker_of_kafkas_that_has_cleaned_nothing(points, tmp_path, caplog):
    (tmp_path / CLEANER_OFFSETS).touch()
    points.load()
    assert (points.of(TP), caplog.text) == (None, "")


def opened(home, *names, config=CONFIG):
    logs = LogManager(
        [home / name for name in names or ("a",)],
        config,
        ManualClock(),
        Later(),
        defaults=Knowledge(high_watermark=2**62),
    )
    logs.load({"t": config})
    return logs


def clean_up_to(logs, offset):
    logs.set_cleaner_point(TP, offset)
    logs._executor.run()


def test_a_disk_that_refuses_the_file_is_said_to_refuse_a_write(tmp_path):
    """It was said that the file could not be removed, which nobody had tried."""
    logs, failures = opened(tmp_path), []
    logs.on_failure = lambda path, reason: failures.append((path, reason))
    logs.get_or_create(TP, CONFIG, ID)
    with FaultyFiles(tmp_path / "a", fail_at=0, error=errno.EIO):
        clean_up_to(logs, 20)
    ((path, reason),) = failures
    assert path == tmp_path / "a"
    assert reason.startswith(f"cannot write {path / CLEANER_OFFSETS}: Input/output error")
    crash(logs)


@pytest.mark.parametrize("is_flushed", [True, False])
def test_a_log_that_is_cut_is_not_clean_beyond_whatever_comes_then(tmp_path, is_flushed):
    """Also where nothing of it counts as flushed, as after a crash, so that its recovery point need not be lowered."""
    logs = opened(tmp_path)
    log = logs.get_or_create(TP, CONFIG, ID)
    fill(log)
    if is_flushed:
        log.flush()
    clean_up_to(logs, 20)
    cut_at = log.segment_facts()[1].base_offset
    assert cut_at < 20
    logs.truncate_to(TP, cut_at)
    assert logs.cleaner_point(TP) == cut_at
    while log.log_end_offset < 30:
        append(log, (b"k", b"another"))
    crash(logs)
    assert in_file(tmp_path / "a").get(TP, 0) <= cut_at
    again = opened(tmp_path)
    assert (again.cleaner_point(TP) or 0) <= cut_at
    again.close()


def test_the_file_says_so_before_the_log_is_cut(tmp_path):
    logs = opened(tmp_path)
    log = logs.get_or_create(TP, CONFIG, ID)
    fill(log)
    clean_up_to(logs, 20)
    with FaultyFiles(tmp_path / "a" / str(TP), fail_at=0), suppress(Exception):
        logs.truncate_to(TP, 3)
    assert in_file(tmp_path / "a")[TP] <= 3
    crash(logs)


def test_a_log_that_begins_anew_is_not_clean(tmp_path):
    logs = opened(tmp_path)
    fill(logs.get_or_create(TP, CONFIG, ID))
    clean_up_to(logs, 20)
    logs.restart_at(TP, 100)
    assert logs.cleaner_point(TP) is None
    assert TP not in in_file(tmp_path / "a")
    crash(logs)


@pytest.mark.parametrize("restart", [False, True])
def test_a_log_that_is_made_anew_is_not_clean_whatever_a_crash_left(tmp_path, restart):
    logs = opened(tmp_path)
    fill(logs.get_or_create(TP, CONFIG, ID))
    clean_up_to(logs, 20)
    logs.delete(TP)
    if restart:
        crash(logs)  # before any checkpoint is written
        logs = opened(tmp_path)
    log = logs.get_or_create(TP, CONFIG, NEW_ID)
    assert logs.cleaner_point(TP) is None
    while log.log_end_offset < 30:
        append(log, (b"k", b"another"))
    crash(logs)
    assert TP not in in_file(tmp_path / "a")
    again = opened(tmp_path)
    assert again.cleaner_point(TP) is None
    again.close()


def test_a_log_that_moves_takes_its_point_along(tmp_path):
    logs = opened(tmp_path, "a", "b")
    logs.prefer(TP, logs.dirs.find(str((tmp_path / "a").absolute())))
    log = logs.get_or_create(TP, CONFIG, ID)
    fill(log)
    clean_up_to(logs, 20)
    (tmp_path / "b" / "t-0").mkdir()
    there = logs.open_log(tmp_path / "b" / "t-0", TP, CONFIG, Knowledge())
    logs.futures[TP] = there
    logs.replace(TP, there)
    assert logs.cleaner_point(TP) == 20
    logs.checkpoint()
    assert (in_file(tmp_path / "a"), in_file(tmp_path / "b")) == ({TP: 20}, {TP: 20})  # "a" may have the log again
    crash(logs)


def test_a_log_that_comes_back_to_a_directory_does_not_find_an_old_point(tmp_path):
    logs = opened(tmp_path, "a", "b")
    logs.prefer(TP, logs.dirs.find(str((tmp_path / "a").absolute())))
    fill(logs.get_or_create(TP, CONFIG, ID))
    logs.dirs.of(tmp_path / "b" / "t-0").cleaner_points.set(TP, 20)
    (tmp_path / "b" / "t-0").mkdir()
    there = logs.open_log(tmp_path / "b" / "t-0", TP, CONFIG, Knowledge())
    logs.futures[TP] = there
    logs.replace(TP, there)
    assert logs.cleaner_point(TP) is None
    crash(logs)


def test_a_log_that_waits_for_room_stays_clean_however_often_it_is_tried(tmp_path):
    """The policy is ``delete`` by then: a hole of which no cleaning is known is the lost end of a segment."""
    logs = opened(tmp_path)
    log = logs.get_or_create(TP, CONFIG, ID)
    while log.segment_count < 5:
        log.append_as_leader(batch_of(1000, key=b"k"), 0)
    first, second, third, *_ = log.segment_facts()
    log.flush()
    kept = next(iter(log._segments.first.log.batches()))
    write_cleaned(log.directory, 0, [bytes(log._segments.first.log.read(kept.position, kept.size))], log.config)
    log.replace_segments([0], [first.base_offset, second.base_offset])
    clean_up_to(logs, third.base_offset)
    expected = whole(log)
    logs.close()
    deleting = parse(TopicConfig, {"segment.bytes": "1000"})
    with FaultyFiles(tmp_path / "a" / "t-0", fail_at=0, lasting=True, error=errno.ENOSPC, steps=("open",)):
        logs = opened(tmp_path, config=deleting)
        assert logs.plan([NewPartition(TP, deleting, ID, is_new=False)])()[TP].error is not None
        logs.checkpoint()
    crash(logs)
    logs = opened(tmp_path, config=deleting)
    assert whole(logs.logs[TP]) == expected
    crash(logs)
