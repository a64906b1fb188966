"""Jobs that offload topics to files while their cluster is under fire: processes that are killed and started again.

There are two, and each offloads now to one place, now to the other; so they overtake each other, too. Their tasks run
in themselves, and some twice, as where Spark speculates. What is in the places in the end is told as what a reader of
each partition was given, from its start to its end: so ``checker`` says what is missing, there twice, or invented.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
from histories.drill import TESTS, described_batch
from histories.history import READ_COMMITTED, READ_UNCOMMITTED, Event, FinalLog, Recorder
from histories.repeating import Repeating
from histories.rows import from_wire

from sparklog.clock import SystemClock
from sparklog.errors import DataSourceError, SparklogError
from sparklog.local.process import ChildProcess
from sparklog.record.records import iter_batches
from sparklog.spark.batch import offload
from sparklog.spark.batch.offload import OffloadOptions
from sparklog.spark.lake.places.file_manifest import read_manifest
from sparklog.spark.lake.places.file_place import PARQUET, SEGMENTS, FilesTarget
from sparklog.structs import TopicPartition

_JOBS = 2
_PAUSE_S = 1.5
_KILLED = 0.2
"""The share of the looks after the jobs at which one of them is killed."""
_JOB_PAUSE_S = 0.5
_TWICE = 0.2
"""The share of the tasks of which there is a second attempt."""
_ROLE = "OFFLOADING_JOB"
"""The environment's variable, for a role may have passwords."""
_PATIENCE_S = 150.0
_SIZES = {"task_bytes": 1500, "commit_bytes": 8000}
"""So small that a partition has several tasks, and what has come meanwhile several commits."""
_FILE_BYTES = 1000
_LAST_SIZES = {"task_bytes": 1 << 20, "commit_bytes": 1 << 23}
_LAST_FILE_BYTES = 1 << 20
"""The last job is to come to an end."""


class OffloadingJobs(Repeating):
    """``home`` has the places. ``topics``: of each place, by its format. ``settings`` are those of a client now."""

    def __init__(
        self,
        home: Path,
        logs: Path,
        seed: int,
        topics: Mapping[str, Sequence[str]],
        settings: Callable[[], Mapping[str, str]],
    ) -> None:
        super().__init__("jobs that offload", _PAUSE_S)
        self.killed = 0
        """So many jobs, that were alive."""
        self._home = home
        self._log = logs / "offloading-jobs.log"
        self._topics = topics
        self._settings = settings
        self._chance = Random(f"offloading jobs {seed}")
        self._jobs: list[ChildProcess | None] = [None] * _JOBS
        self._commits_before = [0] * _JOBS
        """So many there were when each of the jobs was started."""
        self._lives = 0

    def once(self) -> None:
        """One that was started after the last commit is left alone: a machine may be so slow that none would come."""
        commits = sum(map(self._count, self._topics))
        doomed = self._chance.randrange(_JOBS)
        if self._chance.random() < _KILLED and commits > self._commits_before[doomed]:
            self._kill(doomed)
        for number, job in enumerate(self._jobs):
            if job is None or not job.alive:
                self._jobs[number], self._commits_before[number] = self._started(ends=False), commits

    def stop(self) -> None:
        """The jobs are killed, whatever they are about."""
        super().stop()
        for number in range(_JOBS):
            self._kill(number)

    def finish(self) -> bool:
        """Whether all that is in the topics is in the places. It takes a job of its own."""
        job = self._started(ends=True)
        job.reap(_PATIENCE_S)
        return job.fate == "exited with status 0"

    def commits(self) -> int:
        """In the place with the fewest."""
        return min(map(self._count, self._topics))

    def _count(self, kind: str) -> int:
        return len(list(self._place(kind).glob("_manifests/*.json")))

    def batches(self, tp: TopicPartition) -> list[Event]:
        """Those that the place of segments has, as a ``final log`` event tells them."""
        return _batches(self._place(SEGMENTS), tp)

    def record_reads(self, history: Path, logs: Sequence[Event]) -> None:
        """Tell what the places have as reads of these logs, each of which they have to its end."""
        parquet, segments = Recorder(history, "offload-parquet"), Recorder(history, "offload-segments")
        for log in logs:
            tp = TopicPartition(log["topic"], log["partition"])
            read = {"topic": tp.topic, "partition": tp.partition, "first": 0, "next": log["end"]}
            if tp.topic in self._topics[PARQUET]:
                records = _rows(self._place(PARQUET), tp)
                parquet("read", **read, isolation=READ_COMMITTED, records=records)
            if tp.topic in self._topics[SEGMENTS]:
                there = FinalLog({**log, "batches": self.batches(tp)})
                records = there.between(0, log["end"], READ_UNCOMMITTED)
                segments("read", **read, isolation=READ_UNCOMMITTED, records=records)

    def _place(self, kind: str) -> Path:
        return self._home / kind

    def _started(self, *, ends: bool) -> ChildProcess:
        self._lives += 1
        role = {
            "seed": self._lives,
            "places": {str(self._place(kind)): [kind, *topics] for kind, topics in self._topics.items()},
            "ends": ends,
            "settings": dict(self._settings()),
        }
        paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        environ = {_ROLE: json.dumps(role), "PYTHONPATH": paths}
        job = ChildProcess(f"offloading-job-{self._lives}", self._log, environ=environ)
        job.spawn([sys.executable, "-m", "histories.offloading_jobs"])
        return job

    def _kill(self, number: int) -> None:
        job, self._jobs[number] = self._jobs[number], None
        if job is not None:
            self.killed += job.alive
            job.kill()


def _files(place: Path, tp: TopicPartition) -> list[str]:
    """Their paths, in the order of their first offsets."""
    found = read_manifest(str(place))
    both = zip(found.files, found.paths, strict=True)
    return [path for _, path in sorted((file.start, path) for file, path in both if file.tp == tp)]


def _rows(place: Path, tp: TopicPartition) -> list[list[Any]]:
    """The offset and the text of each, in the order of the offsets."""
    rows = []
    for path in _files(place, tp):
        for row in pq.ParquetFile(path).read().to_pylist():
            headers = [(each["key"], each["value"]) for each in row["headers"] or ()]
            rows.append([row["offset"], from_wire(row["key"], row["value"], headers)])
    return rows


def _batches(place: Path, tp: TopicPartition) -> list[Event]:
    data = (memoryview(Path(path).read_bytes()) for path in _files(place, tp))
    return [described_batch(batch) for each in data for batch in iter_batches(each)]


# A job


def _options(
    place: str, kind: str, topics: Sequence[str], settings: Mapping[str, str], *, ends: bool
) -> OffloadOptions:
    target = FilesTarget(place, format=kind, file_bytes=_LAST_FILE_BYTES if ends else _FILE_BYTES)
    sizes = _LAST_SIZES if ends else _SIZES
    return OffloadOptions(
        settings["bootstrap.servers"], tuple(topics), target, add_topics=True, client=settings, **sizes
    )


def _offload(options: OffloadOptions) -> None:
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
    with closing(offload.Offload(spark, options)) as running:
        for _ in running.commits():
            pass


def _is_loss(error: SparklogError) -> bool:
    return isinstance(error, DataSourceError) and "DATA_LOSS" in error.error_code


def main() -> None:
    """Offload again and again until killed; where the role says that it ends, until each place has all.

    Errors are met as a scheduler meets them: the next run may do better. That records are lost may be said while
    another job is quicker: what that one has put in the place is deleted. Where
    there is no other job it may not be said.
    """
    role = json.loads(os.environ[_ROLE])
    chance = Random(role["seed"])
    settings, ends = role["settings"], role["ends"]
    left = {place: _options(place, *_named(told), settings, ends=ends) for place, told in role["places"].items()}

    def tasks_here(_: Any, tasks: Sequence[Any], begin: Callable[[], Callable[[Any], Any]]) -> list[Any]:
        outcomes = []
        for task in tasks:
            if chance.random() < _TWICE:  # an attempt whose outcome is nobody's
                begin()(task)
            outcomes.append(begin()(task))
        return outcomes

    with mock.patch.object(offload, "run_in_workers", tasks_here):
        while left:
            place = chance.choice(sorted(left))
            try:
                _offload(left[place])
            except SparklogError as error:
                if ends and _is_loss(error):
                    raise
                print(f"{error}"[:300], flush=True)  # noqa: T201
            else:
                if ends:
                    del left[place]
            SystemClock().sleep(_JOB_PAUSE_S)


def _named(told: Sequence[str]) -> tuple[str, Sequence[str]]:
    kind, *topics = told
    return kind, topics


if __name__ == "__main__":
    main()
