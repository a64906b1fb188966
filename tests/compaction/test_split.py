"""A cleaning that many tasks share leaves, byte for byte, what one pass leaves."""

import os
import shutil
from contextlib import closing
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest
from compaction import ours
from compaction.by_tasks import CLOCK, split_clean, target_of
from compaction.logs import LogWriter

from sparklog.compaction import split
from sparklog.compaction.rewriting import groups_of
from sparklog.compaction.split import AT_THE_START, RewriteStretch, TraceStretch, index_tasks
from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.errors import DiskFull
from sparklog.testing.clock import ManualClock

SEEDS = [int(seed) for seed in os.environ.get("CLEANER_SEEDS", "").split()] or range(30)
ROUNDS = 3


def content(directory):
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns if path.suffix == ".log" else 0)
        for path in directory.iterdir()
    }


def quick(count, seeds):
    """The seeds, of which all but the first are left to the soak."""
    return [*seeds[:count], *(pytest.param(seed, marks=pytest.mark.slow) for seed in seeds[count:])]


@pytest.mark.parametrize("seed", quick(4, SEEDS))
def test_many_tasks_leave_what_one_pass_leaves(seed, tmp_path):
    check_alike(LogWriter(seed), seed, tmp_path)


@pytest.mark.parametrize("seed", quick(3, SEEDS[:12]))
@pytest.mark.parametrize("strategy", ["timestamp", "header"])
def test_they_do_by_version_too_however_small_the_maps(seed, strategy, tmp_path):
    by_version = {"compaction.strategy": strategy, "compaction.strategy.header": "version"}
    check_alike(LogWriter(seed, by_version), seed, tmp_path, map_bytes=32 * (9, 40, 5000)[seed % 3])


def check_alike(writer, seed, tmp_path, map_bytes=1 << 20):
    one, many = tmp_path / "one" / "t-0", tmp_path / "many" / "t-0"
    written = writer.write(one)
    first_dirty, most = None, 0
    for number in range(ROUNDS):
        writer.pass_time(1000 * (1, 3600, 90_000, 60)[(seed + number) % 4])
        shutil.rmtree(many, ignore_errors=True)
        shutil.copytree(one, many)
        config = parse(TopicConfig, {"cleanup.policy": "compact", **written.settings})
        ends = []
        for directory in (one, many):
            with closing(ours.opened(directory, config, writer.now_ms, written.log_start_offset)) as log:
                log.expire_producers()
                sections = ours.sections_of(log, first_dirty, writer.now_ms)
                if not sections.cleanable_bytes:
                    ends.append(sections.first_dirty)
                elif directory is one:
                    ends.append(
                        ours.cleaned(log, ours.task_of(log, sections, writer.now_ms, buffer_bytes=map_bytes)).end_offset
                    )
                else:
                    target = target_of(log, sections, writer.now_ms, map_bytes)
                    end, count = split_clean(log, target, 1 + seed % 4, (1, 6_000, 30_000)[number % 3])
                    ends.append(end)
                    most = max(most, count)
        assert content(one) == content(many)
        assert ends[0] == ends[1]
        first_dirty = ends[0]
        written = writer.write(one, 40)


@pytest.mark.parametrize("strategy", ["offset", "timestamp"])
def test_the_maps_of_a_task_take_no_more_than_they_may(strategy, tmp_path):
    directory = tmp_path / "t-0"
    writer = LogWriter(3, {"compaction.strategy": strategy})
    written = writer.write(directory)
    writer.pass_time(90_000_000)
    config = parse(TopicConfig, {"cleanup.policy": "compact", **written.settings})
    with closing(ours.opened(directory, config, writer.now_ms, written.log_start_offset)) as log:
        target = target_of(log, ours.sections_of(log, None, writer.now_ms), writer.now_ms, 32 * 9)
        (task,) = index_tasks(target, ours.SEED, 32 * 9, 1)
        spilled = sum(Path(path).stat().st_size for path in task.run(CLOCK).paths)
        assert spilled > 0
        (exact,) = index_tasks(target, ours.SEED, 32 * 9, 1, spilled)
        assert exact.run(CLOCK).paths
        (less,) = index_tasks(target, ours.SEED, 32 * 9, 1, spilled - 1)
        with pytest.raises(DiskFull, match=f"more than the {spilled - 1:,} bytes that a task may spill"):
            less.run(CLOCK)


@pytest.mark.parametrize("strategy", ["offset", "timestamp"])
def test_tasks_of_one_host_have_its_rate_together(strategy, tmp_path, monkeypatch):
    """Though each is told it all: the clocks of three that run beside each other begin at the same moment."""
    monkeypatch.setattr(split, "shared_place", lambda: tmp_path / "rate")
    directory, rate, map_bytes = tmp_path / "t-0", 1000.0, 1 << 20
    writer = LogWriter(3, {"compaction.strategy": strategy})
    written = writer.write(directory)
    writer.pass_time(90_000_000)
    config = parse(TopicConfig, {"cleanup.policy": "compact", **written.settings})
    with closing(ours.opened(directory, config, writer.now_ms, written.log_start_offset)) as log:
        whole = target_of(log, ours.sections_of(log, None, writer.now_ms), writer.now_ms, map_bytes)
        buffers = replace(whole.task.buffers, host_bytes_per_second=rate)
        target = replace(whole, task=replace(whole.task, buffers=buffers))
        clocks = [ManualClock() for _ in range(3)]
        (task,) = index_tasks(target, ours.SEED, map_bytes, 1)
        indexed = task.run(clocks[0])
        groups = tuple(map(tuple, groups_of(target.task, indexed.stats.end_offset)))
        traced = TraceStretch(target, tuple(base for group in groups for base in group)).run(clocks[1])
        rewrite = RewriteStretch(target, indexed.paths, groups, tuple(traced.aborted), AT_THE_START).run(clocks[2])
    moved = [indexed.stats.map_bytes_read, traced.stats.bytes_read]
    moved += [rewrite.stats.bytes_read + rewrite.stats.bytes_written]
    assert min(moved) > rate
    sums = list(accumulate(moved))
    assert [each.monotonic() for each in clocks] == pytest.approx([each / rate for each in sums], abs=0.002)
