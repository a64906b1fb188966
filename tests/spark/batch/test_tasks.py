"""Tasks that do not see the broker's files; and tasks of Spark that die, over a session that does what a test says."""

import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from compaction import ours
from compaction.keyed import fill
from pyspark.errors import PySparkException

from sparklog.client.consumer.fetch.segment_files import SegmentFiles
from sparklog.compaction.split import Target, TraceStretch
from sparklog.compaction.task import Failure
from sparklog.compaction.walk import number_of
from sparklog.config.definition import parse
from sparklog.config.topic import TopicConfig
from sparklog.log.checkpoints import write_meta_properties
from sparklog.log.files import LOG_SUFFIX, segment_path
from sparklog.spark.batch.tasks import Look, SparkTasks, TaskFailed, perform
from sparklog.testing.clock import ManualClock

NOW_MS = 1_700_000_100_000
CLUSTER = "the-cluster"


@pytest.fixture
def target(tmp_path):
    """A log of several segments, as its broker tells of it."""
    directory = tmp_path / "data" / "t-0"
    directory.mkdir(parents=True)
    write_meta_properties(directory.parent, CLUSTER, 0)
    config = parse(TopicConfig, {"cleanup.policy": "compact", "segment.bytes": "1000"})
    with closing(ours.opened(directory, config, NOW_MS)) as log:
        fill(log)
        task = ours.task_of(log, ours.sections_of(log, None, NOW_MS), NOW_MS)
    bases = [each.base_offset for each in task.segments[:-1]]
    return Target(task, {base: number_of(segment_path(directory, base, LOG_SUFFIX)) for base in bases})


def performed(task, cluster=CLUSTER):
    return perform(task, SegmentFiles(cluster), ManualClock())


def unseen(target, cluster=CLUSTER):
    """Why a task does not see the files."""
    failed = performed(Look(target), cluster)
    assert isinstance(failed, TaskFailed)
    assert (failed.kind, failed.is_visible) == (Failure.GONE, False)
    return failed.text


def copied(target, number):
    """A file of the same bytes takes the place of a segment's, as where a copy of the disk is mounted."""
    path = segment_path(Path(target.task.directory), sorted(target.numbers)[number], LOG_SUFFIX)
    beside = path.with_name("copy")
    shutil.copy2(path, beside)
    return beside.replace(path)


def test_the_brokers_own_files_are_seen(target):
    assert performed(Look(target)) is None


@pytest.mark.parametrize("which", [0, 2, -1])
def test_a_copy_of_a_segment_is_not_the_brokers(target, which):
    path = copied(target, which)
    assert f"{path} here is another file than the broker's, by device and inode" in unseen(target)


def test_a_segment_that_becomes_another_later_is_not_read(target):
    assert performed(Look(target)) is None
    copied(target, 1)
    failed = performed(TraceStretch(target, tuple(target.numbers)))
    assert (failed.kind, failed.is_visible) == (Failure.GONE, True)
    assert "the file of this name is another one by now" in failed.text


def test_what_the_tasks_user_does_not_own_is_not_touched(target, monkeypatch):
    """It might write beside it: what it wrote the broker could not own."""
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert "belongs to another user than the one that runs Spark's tasks" in unseen(target)


def test_where_a_task_may_not_write_it_does_not_begin(target, monkeypatch):
    monkeypatch.setattr(os, "access", lambda _, mode: not mode & os.W_OK)
    assert "belongs to another user" in unseen(target)


def test_the_files_of_another_cluster_are_not_touched(target):
    assert "is no log directory of cluster another" in unseen(target, "another")


def test_where_the_directory_is_not_there_nothing_is_seen(target):
    shutil.move(target.task.directory, f"{target.task.directory}-elsewhere")
    assert unseen(target)


class Dying(SparkTasks):
    """Where a task is deadly, all in the same job of Spark die with it."""

    def __init__(self, deadly):
        super().__init__(None, None)
        self.deadly = deadly
        self.jobs = []

    def _run_all(self, tasks):
        self.jobs.append(list(tasks))
        if self.deadly & set(tasks):
            raise PySparkException("Python worker exited unexpectedly\n\tat java.lang.Thread")
        return [f"done {each}" for each in tasks]


def test_a_task_that_dies_fails_itself_alone():
    runner = Dying({2})
    outcomes = runner.run([0, 1, 2, 3, 4])
    died = outcomes.pop(2)
    assert outcomes == [f"done {each}" for each in (0, 1, 3, 4)]
    assert died == TaskFailed(Failure.GONE, "its task died: PySparkException: Python worker exited unexpectedly")


def test_where_nothing_dies_all_is_one_job():
    runner = Dying(set())
    assert runner.run([]) == []
    assert runner.run([5, 6]) == ["done 5", "done 6"]
    assert runner.jobs == [[5, 6]]
