"""Running tasks on files in Spark's Python workers: a task is a value, and so is what becomes of it.

No record passes the JVM. A task that cannot do its work, because it does not see the files or the disk refuses, says so
in its result; others go on. What nobody foresaw, such as a worker that is killed, fails a job of Spark, and with it all
tasks in it: these are run once more in two halves, and so on, until the one that fails is alone.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from sparklog.client.consumer.fetch.segment_files import NOT_VISIBLE, SegmentFiles
from sparklog.clock import Clock, SystemClock
from sparklog.compaction.split import RewriteStretch, Target
from sparklog.compaction.stats import CleanerStats
from sparklog.compaction.task import Failure, kind_of, text_of
from sparklog.compaction.walk import number_of
from sparklog.errors import CorruptRecord, DataSourceError, DiskFull, NotDirect
from sparklog.log.files import LOG_SUFFIX, parse_partition_dir, segment_path
from sparklog.spark.batch.unattended import line_of
from sparklog.spark.batch.workers import run_in_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
_CUT = "its first segment went while it was cleaned, by retention or by a new start: the next run cleans what is left"
_TAKEN_AWAY = (
    "its directory went while it was cleaned: its topic was deleted, or the replica was moved to another broker or log"
    " directory"
)
_NO_MAP = (
    "the map of its keys went while it was cleaned, with the replica beside which it lay: that was taken away, or its"
    " broker gave the cleaning up; the next run cleans this one ({})"
)


class FileTask(Protocol):
    """Work on the files of one log."""

    @property
    def target(self) -> Target: ...

    def run(self, clock: Clock) -> Any: ...


class TaskFailed(NamedTuple):
    """Why a task could not do its work."""

    kind: Failure
    text: str
    is_visible: bool = True
    """Whether the files are those that the broker means."""


@dataclass(frozen=True, slots=True)
class Look:
    """See whether the files of a log are here, and others can be written beside them."""

    target: Target

    def run(self, clock: Clock) -> None:  # noqa: ARG002 (it needs no time)
        """Raises NotDirect."""
        directory = Path(self.target.task.directory)
        for base, number in self.target.numbers.items():
            path = segment_path(directory, base, LOG_SUFFIX)
            if number_of(path) != number:
                raise NotDirect(NOT_VISIBLE, f"{path} here is another file than the broker's, by device and inode")
        if directory.stat().st_uid != os.geteuid() or not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
            raise NotDirect(NOT_VISIBLE, f"{directory} belongs to another user than the one that runs Spark's tasks")


class Runner(Protocol):
    """Runs tasks, each once or more often; the results are in their order."""

    def run(self, tasks: Sequence[FileTask]) -> list[Any]: ...


def perform(task: FileTask, files: SegmentFiles, clock: Clock) -> Any:
    """What the task returns, or TaskFailed."""
    try:
        _check_place(task.target, files)
        started = clock.monotonic()
        outcome = task.run(clock)
    except (NotDirect, DataSourceError) as error:
        why = None if isinstance(task, Look) else _why_gone(task.target)
        return TaskFailed(Failure.GONE, why or str(error), is_visible=why is not None)
    except (CorruptRecord, OSError, MemoryError, DiskFull) as error:
        if isinstance(task, RewriteStretch) and not all(Path(each).exists() for each in task.maps):
            return TaskFailed(Failure.GONE, _NO_MAP.format(text_of(error)))
        return TaskFailed(kind_of(error), text_of(error))
    stats = getattr(outcome, "stats", None)
    if isinstance(stats, CleanerStats):
        stats.seconds = clock.monotonic() - started
    return outcome


def _why_gone(target: Target) -> str | None:
    """Why files are gone that a task has seen before; None where they are here."""
    directory = Path(target.task.directory)
    if not directory.is_dir():
        return _TAKEN_AWAY
    return None if segment_path(directory, target.task.segments[0].base_offset, LOG_SUFFIX).exists() else _CUT


def _check_place(target: Target, files: SegmentFiles) -> None:
    """Nothing is read or written but in the directory of a partition of this cluster. Raises NotDirect."""
    directory = Path(target.task.directory)
    tp = parse_partition_dir(directory.name)
    if tp is None or str(tp) != target.task.name:
        raise NotDirect(NOT_VISIBLE, f"{directory} is no place for partition {target.task.name}")
    fd, _ = files.open(str(segment_path(directory, target.task.segments[0].base_offset, LOG_SUFFIX)), tp)
    os.close(fd)


class SparkTasks:
    """Runs tasks on the files of the cluster ``cluster_id``, each as a task of Spark, or in ``slices`` of these."""

    def __init__(self, spark: SparkSession, cluster_id: str | None, slices: int | None = None) -> None:
        self._spark = spark
        self._cluster_id = cluster_id
        self._slices = slices

    def run(self, tasks: Sequence[FileTask]) -> list[Any]:
        if not tasks:
            return []
        try:
            return self._run_all(tasks)
        except (PySparkException, Py4JError) as error:
            _log.warning("of %d tasks at least one died: %s", len(tasks), line_of(error))
            if len(tasks) == 1:
                return [TaskFailed(Failure.GONE, f"its task died: {line_of(error)}")]
        middle = len(tasks) // 2
        return [*self.run(tasks[:middle]), *self.run(tasks[middle:])]

    def _run_all(self, tasks: Sequence[FileTask]) -> list[Any]:
        """Raises what Spark does where a task dies."""
        cluster_id = self._cluster_id

        def begin() -> Callable[[FileTask], Any]:
            files, clock = SegmentFiles(cluster_id), SystemClock()
            return lambda task: perform(task, files, clock)

        return run_in_workers(self._spark, tasks, begin, self._slices)
