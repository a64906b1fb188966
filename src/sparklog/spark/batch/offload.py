"""Offload: what topics hold is moved to another place, such as a Delta table, exactly once, commit by commit.

A commit has the records of a range of each partition, and the offsets behind these ranges
(``lake/destination.py``). Whatever dies, the place says where to go on. Invariants: ``docs/adr/0029-offload.md``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from pyarrow import ArrowException

from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.clock import Clock, SystemClock
from sparklog.config.job_clients import OFFLOAD, Rights, of_job
from sparklog.errors import DataSourceError
from sparklog.spark.batch.offload_groups import OffloadGroups
from sparklog.spark.batch.workers import run_in_workers
from sparklog.spark.failures import rights_named
from sparklog.spark.lake.ages import Timestamps
from sparklog.spark.lake.destination import Changed, Intake, Outcome, Overtaken, Refused, Target, Task, refuse
from sparklog.spark.lake.progress import Progress
from sparklog.spark.options.task_login import kept_login
from sparklog.spark.read.data_loss import DataLoss, DataLossReporter
from sparklog.spark.read.offsets import OffsetRange, Offsets, Split, into_tasks, limited
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.read.resolver import OffsetResolver, TopicIds
from sparklog.spark.read.sizes import PartitionSizes
from sparklog.spark.stream.group_progress import GroupProgress
from sparklog.spark.stream.offset import StreamOffset
from sparklog.spark.stream.truncation import TruncationDetector
from sparklog.structs import NO_EPOCH, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
_MB = 1 << 20
_WORTH_A_TASK = 16 * _MB
"""Bytes of the log."""
_LEAST_PAUSE_S = 0.2
"""Between two looks for new records."""
_MOST_CHANGES = 5
"""So often in a row a commit begins again because the place was changed meanwhile."""


@dataclass(frozen=True)
class OffloadOptions:
    """What is offloaded, and where to."""

    bootstrap_servers: str
    topics: tuple[str, ...]
    target: Target
    add_topics: bool = False
    """Offload topics to a place that has others already."""
    fail_on_data_loss: bool = True
    """Stop where records are gone before they were offloaded; else go on behind them, with a warning."""
    group: str | None = None
    """A consumer group whose offsets follow, for those who watch lag."""
    task_bytes: int = 512 * _MB
    """A task reads about so much of the log, at most."""
    commit_bytes: int = 8192 * _MB
    """A commit takes in about so much of the log, at most."""
    read_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """More options of the source, such as ``directRead`` and what begins with ``kafka.``."""
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    """More settings of the client, such as ``security.protocol``."""
    task_token_ms: int | None = None
    """Tasks come by a token that is good for so long, and is renewed; None: by the client's settings."""

    def __post_init__(self) -> None:
        if not self.topics:
            raise DataSourceError("SPARKLOG_INVALID_OPTION", "no topic is named")

    def reading(self) -> ReadOptions:
        """How the log is read. Raises DataSourceError."""
        return ReadOptions.for_batch(
            {
                **{f"kafka.{name}": text for name, text in of_job(OFFLOAD, self.client).items()},
                **self.read_options,
                **({} if self.task_token_ms is None else {"taskToken": str(self.task_token_ms)}),
                "kafka.bootstrap.servers": self.bootstrap_servers,
                "kafka.isolation.level": "read_committed",
                "subscribe": ",".join(self.topics),
                "includeHeaders": "true",
                "failOnDataLoss": str(self.fail_on_data_loss).lower(),
            }
        )


class Committed(NamedTuple):
    """One commit."""

    version: int
    """Of the table, or what numbers the commits of another place."""
    records: int
    nbytes: int
    """Written."""
    files: int
    seconds: float
    ages_s: tuple[float, ...]
    """How old the records were: the median, and what 95 % of them were not older than. Empty where there were none."""
    behind: int
    """Offsets that waited when the commit was planned, and are not in it."""

    def __str__(self) -> str:
        ages = f", {self.ages_s[0]:.1f} s old (p95 {self.ages_s[1]:.1f} s)" if self.ages_s else ""
        behind = f"; {_counted(self.behind, 'offset')} behind" if self.behind else ""
        return (
            f"version {self.version}: {_counted(self.records, 'record')}{ages} in {_counted(self.files, 'file')},"
            f" {self.nbytes / _MB:,.1f} MB, {self.seconds:.1f} s{behind}"
        )


def run(spark: SparkSession, options: OffloadOptions) -> list[Committed]:
    """Offload what is there now, and end. Raises as ``Offload.commits`` does."""
    with closing(Offload(spark, options)) as offload:
        return list(offload.commits())


class Offload:
    """An offload of some topics to one place. It belongs to one thread. Close it."""

    def __init__(self, spark: SparkSession, options: OffloadOptions, clock: Clock | None = None) -> None:
        self._spark = spark
        self._options = options
        self._reading = options.reading()
        self._clock = clock or SystemClock()
        self._login = kept_login(self._reading.client, self._reading.task_token_ms, self._clock)
        self._destination = options.target.open(spark)
        self._cluster = ClusterMetadata(self._reading.client, self._clock)
        self._resolver = OffsetResolver(self._cluster, self._reading)
        self._sizes = PartitionSizes(self._cluster)
        self._truncation = TruncationDetector(self._cluster)
        self._data_loss = DataLossReporter(fail=options.fail_on_data_loss)
        self._group = GroupProgress(self._reading.client, options.group, self._clock) if options.group else None
        self._waiting = OffloadGroups(self._reading.client, lambda: self._destination.identity, self._clock)

    def close(self) -> None:
        self._login.close()
        self._destination.close()
        self._cluster.close()
        self._waiting.close()
        if self._group is not None:
            self._group.close()

    def commits(self) -> Iterator[Committed]:
        """Offload up to where the partitions end now, a commit a step. Nothing where there is nothing new.

        A commit begins again where the place was changed meanwhile, by no offload. Raises Overtaken where another job
        was quicker, Changed where that happens again and again, DataSourceError for a place or a topic that does not
        suit and for records that are gone, ApiError for a topic that there is not, ConnectionFailed.
        """
        with rights_named(Rights("READ")):
            yield from self._commits()

    def _commits(self) -> Iterator[Committed]:
        topic_ids = self._resolver.partitions()
        self._destination.prepare()
        now = self._now(topic_ids)
        changes = 0
        while True:
            started = self._clock.monotonic()
            intake = self._destination.begin()
            if self._is_beyond(intake, topic_ids, now):
                now = self._now(topic_ids)
            plan = self._plan(intake, topic_ids, now)
            intake.settle()
            self._tell_groups(plan, plan.starts, plan.start_epochs)
            if not plan.ends:
                return
            intake.expect(plan.progress.values())
            intake.note_epochs({known: plan.end_epochs.get(known.tp, NO_EPOCH) for known in plan.ends})
            outcomes = self._write(intake, plan)
            try:
                committed = self._commit(intake, plan, outcomes, started)
            except Changed as error:
                changes += 1
                if changes > _MOST_CHANGES:
                    raise
                _log.warning("%s; beginning again", error)
                continue
            changes = 0
            yield committed
            self._destination.tend(outcomes)
            if not plan.behind:
                return

    def _tell_groups(self, plan: _Plan, offsets: Offsets, epochs: Mapping[TopicPartition, int]) -> None:
        """All below ``offsets`` is in the place, and durable, of the logs as they were in these leader epochs."""
        self._waiting.commit(offsets, epochs, {tp: known.topic_id for tp, known in plan.progress.items()})
        if self._group is not None:
            self._group.commit(offsets, epochs)

    def fresh(self, freshness_s: float) -> Iterator[Committed]:
        """Offload on and on, so that records are in their place ``freshness_s`` seconds after their timestamps.

        Half of that is for a commit to be made in, and a little to spare: so long a record waits for the next commit. A
        warning says when the objective is missed. Raises as ``commits`` does.
        """
        while True:
            started = self._clock.monotonic()
            took_s = 0.0
            for each in self.commits():
                took_s = each.seconds
                self._warn_if_late(each, freshness_s)
                yield each
            wait_s = max(freshness_s / 2 - took_s, _LEAST_PAUSE_S)
            self._clock.sleep(max(started + wait_s - self._clock.monotonic(), 0.0))

    def _warn_if_late(self, commit: Committed, freshness_s: float) -> None:
        if commit.ages_s and commit.ages_s[1] > freshness_s:
            _log.warning(
                "records come into %s later than %g s after their timestamps: 95 %% within %.1f s, and %d offsets"
                " wait; where that stays so, give Spark more cores",
                self._destination.place,
                freshness_s,
                commit.ages_s[1],
                commit.behind,
            )

    # What is next

    def _now(self, topic_ids: TopicIds) -> StreamOffset:
        ends, epochs = self._resolver.ends_and_epochs(topic_ids)
        return StreamOffset(ends, {tp.topic: topic_id for tp, topic_id in topic_ids.items()}, epochs)

    def _is_beyond(self, intake: Intake[Any], topic_ids: TopicIds, now: StreamOffset) -> bool:
        """Whether the place has more than the log had: another job may have added that since the log was asked."""
        known = {each.tp: at for each, at in intake.progress.items() if topic_ids.get(each.tp) == each.topic_id}
        return any(at > now.offsets[tp] for tp, at in known.items())

    def _plan(self, intake: Intake[Any], topic_ids: TopicIds, now: StreamOffset) -> _Plan:
        progress = {tp: Progress(self._cluster_id, tp, topic_id) for tp, topic_id in topic_ids.items()}
        self._check_owner(intake, progress)
        ends, first, cut = now.offsets, self._resolver.earliest(topic_ids), self._cut_off(intake, progress, now)
        starts = {tp: self._start(tp, intake.progress.get(progress[tp]), first[tp], ends[tp]) for tp in topic_ids}
        starts |= {tp: max(at, first[tp]) for tp, at in cut.items()}
        weights = self._sizes.bytes_per_offset(topic_ids)
        upto = limited(starts, ends, self._options.commit_bytes, weights)
        ranges = [OffsetRange(tp, starts[tp], upto[tp], topic_ids[tp]) for tp in topic_ids if starts[tp] < upto[tp]]
        behind = sum(max(ends[tp] - max(upto[tp], starts[tp]), 0) for tp in topic_ids)
        back = {tp for tp in topic_ids if starts[tp] < intake.progress.get(progress[tp], 0)}
        kept = {tp for tp, at in starts.items() if at == intake.progress.get(progress[tp])}
        known = {tp: intake.epochs.get(progress[tp], NO_EPOCH) for tp in kept}
        return _Plan(progress, starts, {**now.epochs, **known}, ranges, now.epochs, back, weights, behind)

    def _cut_off(self, intake: Intake[Any], progress: Mapping[TopicPartition, Progress], now: StreamOffset) -> Offsets:
        """Where logs were cut off below what was offloaded, and have grown beyond it again."""
        offsets = {tp: intake.progress[each] for tp, each in progress.items() if each in intake.progress}
        known = {tp: intake.epochs.get(progress[tp], NO_EPOCH) for tp in offsets}
        there = {tp: each for tp, each in offsets.items() if each <= now.offsets[tp]}
        read = StreamOffset(there, now.topic_ids, {tp: each for tp, each in known.items() if each != NO_EPOCH})
        cut = self._truncation.truncated(read, now.epochs)
        for tp in sorted(cut):
            self._data_loss.report(
                DataLoss.TRUNCATED,
                f"partition {tp} was cut off at offset {cut[tp]}, but {self._destination.place} has it up to"
                f" {offsets[tp]}, of leader epoch {known[tp]} or before; its epoch is {now.epochs[tp]} now, and it has"
                " other records there: a replica without the records between took the lead",
            )
        return cut

    @property
    def _cluster_id(self) -> str:
        return self._cluster.cluster_id or "-"

    def _start(self, tp: TopicPartition, known: int | None, first: int, end: int) -> int:
        """Where to go on; ``known`` is what the destination says."""
        if known is None:
            return first
        if known < first:
            self._data_loss.report(
                DataLoss.EXPIRED,
                f"partition {tp} is in {self._destination.place} up to offset {known}, and begins at {first} now: the"
                " records between were deleted before they were offloaded",
            )
            return first
        if known > end:
            self._data_loss.report(
                DataLoss.TRUNCATED,
                f"partition {tp} ends at offset {end}, but {self._destination.place} has it up to {known}: the log"
                " was cut off, or is another one",
            )
            return end
        return known

    def _check_owner(self, intake: Intake[Any], progress: Mapping[TopicPartition, Progress]) -> None:
        """Raises DataSourceError for a place that belongs to others."""
        place = self._destination.place
        if not intake.progress and not intake.is_empty:
            refuse(place, "it has rows, but no offsets: somebody else has written them")
        others = {known for known in intake.progress if known.cluster_id != self._cluster_id}
        if others:
            cluster = min(each.cluster_id for each in others)
            refuse(place, f"it is of cluster {cluster}, and this is cluster {self._cluster_id}")
        ids = {known.tp.topic: known.topic_id for known in intake.progress}
        for each in progress.values():
            known_id = ids.get(each.tp.topic, each.topic_id)
            if known_id != each.topic_id:
                refuse(place, _made_again(each, known_id))
        added = {each.tp.topic for each in progress.values()} - ids.keys()
        if ids and added and not self._options.add_topics:
            refuse(
                place,
                f"it has topic {', '.join(sorted(ids))}, not {', '.join(sorted(added))}; say that topics are added"
                " (--add-topics), or name another place",
            )

    # One commit

    def _commit(self, intake: Intake[Outcome], plan: _Plan, outcomes: Sequence[Outcome], started: float) -> Committed:
        try:
            version = intake.finish(outcomes, plan.ends)
        except (Overtaken, Changed):
            intake.discard(outcomes)
            raise
        self._tell_groups(plan, {known.tp: end for known, end in plan.ends.items()}, plan.end_epochs)
        timestamps = Timestamps()
        for each in outcomes:
            timestamps.merge(each.timestamps)
        return Committed(
            version,
            sum(each.rows for each in outcomes),
            sum(each.nbytes for each in outcomes),
            sum(each.file_count for each in outcomes),
            self._clock.monotonic() - started,
            tuple(timestamps.ages_s(self._clock.now_ms(), (0.5, 0.95))),
            plan.behind,
        )

    def _write(self, intake: Intake[Outcome], plan: _Plan) -> list[Outcome]:
        split = self._divided(plan) if intake.divides_partitions else Split(weights=plan.weights)
        pieces = into_tasks(plan.ranges, split)
        written: list[Outcome] = []
        failures: list[Refused] = []
        for outcome in intake.write(self._reading_of_tasks(), pieces, self._run) if pieces else ():
            if isinstance(outcome, Refused):
                failures.append(outcome)
            else:
                written.append(outcome)
        if failures:
            intake.discard(written)
            raise DataSourceError(*failures[0])
        return written

    def _reading_of_tasks(self) -> ReadOptions:
        """How the tasks of the next commit read. Those of the last one are over."""
        reading = replace(self._reading, client=self._login.client())
        self._login.settle()
        return reading

    def _run(self, tasks: Sequence[Task[Outcome]]) -> list[Outcome | Refused]:
        return run_in_workers(self._spark, [_Named(each, self._destination.place) for each in tasks], _begin)

    def _divided(self, plan: _Plan) -> Split:
        """A task for each core at least, where that makes no tiny files."""
        size = sum(each.size * plan.weights[each.tp] for each in plan.ranges)
        least = max(min(int(self._spark.sparkContext.defaultParallelism), int(size // _WORTH_A_TASK)), 1)
        return Split(least, None, self._options.task_bytes, plan.weights)


class _Plan(NamedTuple):
    """What the next commit takes in."""

    progress: dict[TopicPartition, Progress]
    starts: Offsets
    start_epochs: Mapping[TopicPartition, int]
    """Those that the place has noted, where the commit begins at an offset of the place."""
    ranges: list[OffsetRange]
    end_epochs: Mapping[TopicPartition, int]
    back: set[TopicPartition]
    """Those whose log was cut off, and the loss accepted: the offset goes back to where the log ends."""
    weights: Mapping[TopicPartition, float]
    behind: int

    @property
    def ends(self) -> dict[Progress, int]:
        back = {self.progress[tp]: self.starts[tp] for tp in self.back}
        return back | {self.progress[each.tp]: each.end for each in self.ranges}


class _Named(NamedTuple):
    """A task, and the place it writes to."""

    task: Task[Outcome]
    place: str


def _begin() -> Callable[[_Named], Outcome | Refused]:
    return _perform


def _perform(named: _Named) -> Outcome | Refused:
    """What the task wrote, or why it could not."""
    try:
        return named.task.run()
    except DataSourceError as error:
        return Refused.of(error)
    except (OSError, ArrowException) as error:
        return Refused("SPARKLOG_TABLE_NOT_WRITTEN", f"{named.place} cannot be written: {error}")


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _made_again(each: Progress, known_id: UUID) -> str:
    return (
        f"it has topic {each.tp.topic} with id {known_id}, which was deleted; the topic of that name now has id"
        f" {each.topic_id}. Name another place"
    )
