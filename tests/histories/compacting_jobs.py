"""Jobs that compact a topic while its cluster is under fire, one after another, as a scheduler starts them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from compaction.tasks_here import TasksHere
from histories.repeating import Repeating

from sparklog.errors import SparklogError
from sparklog.spark.batch.compact import CompactOptions, run_on

_PAUSE_S = 0.5
_GRANT_MS = 3000
_STRETCH_BYTES = 2000
"""So that a cleaning has several tasks."""


class CompactingJobs(Repeating):
    """``settings`` are those of a client now, ``bootstrap.servers`` among them."""

    def __init__(self, topic: str, settings: Callable[[], Mapping[str, str]]) -> None:
        super().__init__("jobs that compact", _PAUSE_S)
        self.cleaned = 0
        """Replicas."""
        self._topic = topic
        self._settings = settings

    def once(self) -> None:
        settings = self._settings()
        options = CompactOptions(
            settings["bootstrap.servers"],
            (self._topic,),
            parallelism=2,
            stretch_bytes=_STRETCH_BYTES,
            grant_ms=_GRANT_MS,
            client=settings,
        )
        try:
            report = run_on(TasksHere, options)
        except SparklogError:  # as a scheduler sees it: the next one may do better
            return
        self.cleaned += sum(each.stats is not None for each in report.replicas)
