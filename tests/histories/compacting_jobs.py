"""Jobs that compact a topic while its cluster is under fire, one after another, as a scheduler starts them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from compaction.tasks_here import TasksHere

from sparklog.errors import SparklogError
from sparklog.spark.batch.compact import CompactOptions, run_on

_PAUSE_S = 0.5
_GRANT_MS = 3000
_STRETCH_BYTES = 2000
"""So that a cleaning has several tasks."""


class CompactingJobs:
    """``settings`` are those of a client now, ``bootstrap.servers`` among them."""

    def __init__(self, topic: str, settings: Callable[[], Mapping[str, str]]) -> None:
        self.cleaned = 0
        """Replicas."""
        self._topic = topic
        self._settings = settings
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="jobs that compact")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """The one that runs is waited for."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_PAUSE_S):
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
                continue
            self.cleaned += sum(each.stats is not None for each in report.replicas)
