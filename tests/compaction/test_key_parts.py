"""The map of a whole log in parts: how many are tried, what is left of their files, and what stands in the way."""

import errno
import os
from contextlib import closing
from dataclasses import replace

import pytest
from compaction import ours
from compaction.keyed import START_MS, append, records_of
from compaction.ours import opened

from sparklog.compaction import key_parts
from sparklog.compaction.cleaner import LogCleaning
from sparklog.compaction.key_parts import KeyParts
from sparklog.compaction.stats import CleanerStats
from sparklog.compaction.task import Buffers
from sparklog.compaction.walk import SegmentWalk
from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import DiskFull
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.compacting import make_offset_map, open_offset_map
from sparklog.record.records import iter_batches
from sparklog.testing.clock import ManualClock

NOW_MS = 1_700_000_100_000
CONFIG = parse(TopicConfig, {"cleanup.policy": "compact", "segment.bytes": "1000", "compaction.strategy": "timestamp"})
KEYS = 40


@pytest.fixture
def log(tmp_path):
    """All keys of it are new for the first half, and come again in the second."""
    (tmp_path / "t-0").mkdir()
    with closing(opened(tmp_path / "t-0", CONFIG, NOW_MS)) as log:
        for number in range(2 * KEYS):
            append(log, (b"k%d" % (number % KEYS), b"%d" % number))
        log.roll()
        yield log


def task_of(log, map_keys):
    task = ours.task_of(log, ours.sections_of(log, None, NOW_MS), NOW_MS)
    return replace(task, buffers=Buffers(32 * map_keys, 1.0, 1 << 16, float("inf")))


def parts_of(task, stats=None):
    return KeyParts(
        task, SegmentWalk(task, ManualClock()), [], ours.SEED, task.buffers.map_bytes, stats or CleanerStats()
    )


def drafts(log):
    return [path.name for path in log.directory.iterdir() if path.suffix == ".tmp"]


@pytest.fixture
def made(monkeypatch):
    """The parts that were tried, in order."""
    found = []

    def make(max_bytes, load_factor, seed, part, versions):
        found.append(part)
        return make_offset_map(max_bytes, load_factor, seed, part, versions)

    monkeypatch.setattr(key_parts, "make_offset_map", make)
    return found


def test_keys_that_fit_stay_in_memory(log, made):
    keys = parts_of(task_of(log, KEYS)).index()
    assert made == [(0, 1)]
    assert [keys.get(b"k%d" % number) for number in range(KEYS)] == list(range(KEYS, 2 * KEYS))


@pytest.mark.parametrize("map_keys", [1, 2, 3, 10, KEYS - 1])
def test_a_part_that_is_too_large_is_divided_and_no_other_begun_anew(log, made, map_keys):
    stats = CleanerStats()
    keys = parts_of(task_of(log, map_keys), stats).index()
    assert drafts(log) == []
    assert len(made) == len(set(made))
    assert [keys.get(b"k%d" % number) for number in range(KEYS)] == list(range(KEYS, 2 * KEYS))
    assert (stats.keys, stats.end_offset, stats.map_messages_read) == (KEYS, 2 * KEYS, 2 * KEYS)
    assert stats.buffer_utilization == 1.0


def test_how_far_the_first_map_came_says_how_many_parts_there_are(log, made):
    parts_of(task_of(log, 11)).index()
    assert made[0] == (0, 1)
    assert made[1] == (0, 8)  # it held an eighth of the records, and a little more


def test_a_part_may_be_divided_into_several_files(log):
    task = task_of(log, 9)
    paths = [path for part in [(0, 3), (1, 3), (2, 3)] for path in parts_of(task).spill(part)]
    assert len(paths) > 3
    keys = open_offset_map(paths)
    assert [keys.get(b"k%d" % number) for number in range(KEYS)] == list(range(KEYS, 2 * KEYS))
    with pytest.raises(ValueError, match="not the parts of one map"):
        open_offset_map(paths[1:])


def test_a_map_for_no_key_is_refused(log):
    with pytest.raises(MemoryError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        parts_of(task_of(log, 0)).index()


def test_without_room_for_the_parts_none_is_begun(log, made, monkeypatch):
    status = os.statvfs(log.directory)
    full = os.statvfs_result((*status[:4], 0, *status[5:]))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    with pytest.raises(DiskFull, match="the map of its keys, which memory cannot hold"):
        parts_of(task_of(log, 10)).index()
    assert made == [(0, 1)]
    assert drafts(log) == []


@pytest.mark.parametrize("which", [1, 2, 3])
@pytest.mark.parametrize(
    "act", [lambda parts: parts.index(), lambda parts: parts.spill((0, 1))], ids=["index", "spill"]
)
def test_a_disk_that_is_full_half_way_leaves_nothing(log, monkeypatch, which, act):
    dumps = []

    class Map:
        def __init__(self, *arguments):
            self._map = make_offset_map(*arguments)

        def __getattr__(self, name):
            return getattr(self._map, name)

        def dump(self, path):
            self._map.dump(path)
            dumps.append(path)
            if len(dumps) == which:
                raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(key_parts, "make_offset_map", Map)
    with pytest.raises(OSError, match="No space left"):
        act(parts_of(task_of(log, 10)))
    assert len(dumps) == which
    assert drafts(log) == []


def stamped(log, key, value, version):
    builder = RecordBatchBuilder()
    builder.append(START_MS + version, key, value)
    log.append_as_leader(memoryview(bytearray(builder.build())), 0)
    log.on_high_watermark(log.log_end_offset)


def passes(log, now_ms, groups=None):
    """A pass, or so many groups of it."""
    task = replace(task_of(log, KEYS), now_ms=now_ms, first_dirty=0)
    for number, group in enumerate(LogCleaning(task, ManualClock(), ours.SEED).run()):
        if number == groups:
            for path in log.directory.glob("*.cleaned"):
                path.unlink()
            return
        for path in log.replace_segments(group.new, group.old):
            path.unlink()


def test_a_tombstone_stays_as_long_as_a_record_follows_that_it_outdates(tmp_path):
    """Were it gone, and the pass broken off before that record is, that would win for ever."""
    (tmp_path / "t-0").mkdir()
    with closing(opened(tmp_path / "t-0", CONFIG, NOW_MS)) as log:
        stamped(log, b"a", None, 9)
        log.roll()
        stamped(log, b"b", b"x" * 900, 1)
        log.roll()
        passes(log, NOW_MS)  # its horizon is set
        stamped(log, b"a", b"old" + b"." * 900, 3)
        log.roll()
        after = NOW_MS + 2 * 86_400_000
        passes(log, after, groups=1)
        assert [each[:2] for each in records_of(log)] == [(0, b"a"), (1, b"b"), (2, b"a")]
        passes(log, after)
        assert [each[:2] for each in records_of(log)] == [(0, b"a"), (1, b"b")]
        passes(log, after)
        assert [each[:2] for each in records_of(log)] == [(1, b"b")]


def test_the_end_of_the_log_stays_where_its_last_record_goes(tmp_path):
    """Else a new replica could never come to the end of its leader's log."""
    (tmp_path / "t-0").mkdir()
    with closing(opened(tmp_path / "t-0", CONFIG, NOW_MS)) as log:
        stamped(log, b"a", b"new", 9)
        stamped(log, b"a", b"old", 3)
        log.roll()
        passes(log, NOW_MS)
        assert [each[0] for each in records_of(log)] == [0]
        whole = b"".join(map(bytes, log.read_all(1 << 20)))
        assert [(each.last_offset, each.record_count) for each in iter_batches(whole)] == [(0, 1), (1, 0)]
        stamped(log, b"b", b"more", 1)
        passes(log, NOW_MS)
        whole = b"".join(map(bytes, log.read_all(1 << 20)))
        assert [(each.last_offset, each.record_count) for each in iter_batches(whole)] == [(0, 1), (2, 1)]
