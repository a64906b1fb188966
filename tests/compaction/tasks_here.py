"""A job's tasks in this process, where a test needs no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparklog.client.consumer.fetch.segment_files import SegmentFiles
from sparklog.clock import SystemClock
from sparklog.spark.batch.tasks import FileTask, perform


class TasksHere:
    """Runs them one after another; a test may have something happen by another ``perform``."""

    def __init__(self, cluster_id: str | None) -> None:
        self._files = SegmentFiles(cluster_id)

    def run(self, tasks: Sequence[FileTask]) -> list[Any]:
        return [self.perform(each) for each in tasks]

    def perform(self, task: FileTask) -> Any:
        return perform(task, self._files, SystemClock())
