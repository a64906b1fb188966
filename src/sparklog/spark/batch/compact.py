"""Compaction of a cluster's topics by Spark: what brokers find due is cleaned in Python tasks, on the files themselves.

For each replica the driver has its broker grant the cleaning (``replica/cleaning_grants.py``). Tasks fill the maps of
keys, then write the groups of segments anew beside the old ones (``compaction/split.py``); broker by broker the driver
has what they wrote put in place. Replicas of a partition that may be cleaned about as far share one map. A replica
whose files the tasks do not see is left to its broker.

No failure harms: a task that fails or runs twice leaves drafts that nobody takes, a driver that dies leaves grants that
lapse, and what is in place by then is in place.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from secrets import token_bytes
from typing import TYPE_CHECKING, Any

from sparklog.client.admin.admin import Admin, CompactionDescription, CompactionOutcome
from sparklog.client.admin.compaction import CompactionState, untold
from sparklog.client.admin.log_dirs import Replica
from sparklog.client.cluster.compaction_grants import (
    Grant,
    Refusal,
    begin_cleanings,
    finish_cleaning,
    give_up_cleaning,
    put_in_place,
)
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.retry import OutOfTime
from sparklog.clock import SystemClock
from sparklog.compaction.rewriting import groups_of
from sparklog.compaction.split import (
    Group,
    IndexedPart,
    RewriteStretch,
    Rewritten,
    Target,
    Traced,
    TraceStretch,
    index_tasks,
    states_between,
    stretches_of,
    within,
)
from sparklog.compaction.stages import Stage, StageTimes
from sparklog.compaction.stats import CleanerStats
from sparklog.compaction.task import Failure
from sparklog.config.job_clients import COMPACT, RIGHTS, of_job
from sparklog.errors import ApiError, SparklogError
from sparklog.spark.batch.decisions import Decision, decide
from sparklog.spark.batch.renewal import Renewal
from sparklog.spark.batch.tasks import Look, Runner, SparkTasks, TaskFailed
from sparklog.spark.batch.waves import Room, ask_for_room, next_wave
from sparklog.spark.failures import rights_named
from sparklog.structs import BrokerId, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
_MB = 1 << 20
_SEED_BYTES = 16
_TASKS_A_CORE = 4
"""Of one log at least, so that cores have about as much to do."""
_MOST_INDEXING = 8
"""Maps of one log that are filled at a time: a key is looked up in one after another."""


@dataclass(frozen=True)
class CompactOptions:
    """What is cleaned, and how the work is divided."""

    bootstrap_servers: str
    topics: tuple[str, ...] = ()
    """These are cleaned however little of them is dirty, their active segments too; without any, what is due."""
    dry_run: bool = False
    """Only say what is due."""
    parallelism: int = 0
    """Spark tasks at a time, at most; 0 for as many as Spark has cores."""
    part_bytes: int = 2048 * _MB
    """Where records are compared by version, a task for a part of the keys of so much. Each reads all of that: more
    tasks than maps need cost time.
    """
    stretch_bytes: int = 256 * _MB
    """A task rewrites so much, or one group of segments if that is more; and one puts the keys of so much into a map at
    least.
    """
    map_bytes: int = 512 * _MB
    """The memory that the map of one task may take: 24 bytes a key, 32 where records are compared by version."""
    spill_bytes: int = 64 << 30
    """Of files, the maps of the keys of one log may take so much together: 48 bytes a key, 64 by version."""
    grant_ms: int = 60_000
    """So long a log is kept for a job of which nothing is heard."""
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    """More settings of the client, such as ``security.protocol``."""

    def settings(self) -> dict[str, str]:
        return {**of_job(COMPACT, self.client), "bootstrap.servers": self.bootstrap_servers}


_NUMBERS = ("bytes_before", "bytes_after", "reduction_percent", "records_before", "records_after", "seconds")


@dataclass
class ReplicaReport:
    """What became of one replica."""

    replica: Replica
    outcome: str
    is_failure: bool = False
    stats: CleanerStats | None = None
    stages: StageTimes = field(default_factory=StageTimes)
    """What each stage took, where the replica was cleaned by tasks."""

    def __str__(self) -> str:
        where, stats = f"{self.replica.tp} at broker {self.replica.broker}: {self.outcome}", self.stats
        if stats is None:
            return where
        saved = _saved(stats)
        change = f"{saved:.1f}% less" if saved >= 0 else f"{-saved:.1f}% more"
        return (
            f"{where} up to {stats.end_offset}, {stats.bytes_read / _MB:,.1f} MB -> {stats.bytes_written / _MB:,.1f} MB"
            f" ({change}), {stats.messages_read:,} -> {stats.messages_written:,} records,"
            f" {stats.seconds:.1f} s of tasks{f' ({self.stages})' if str(self.stages) else ''}"
        )

    def to_dict(self) -> dict[str, object]:
        """Under the names that ``sparklog compact run --output json`` has; null where tasks cleaned nothing."""
        stats, numbers = self.stats, dict[str, object].fromkeys(_NUMBERS)
        if stats is not None:
            sizes = (stats.bytes_read, stats.bytes_written, round(_saved(stats), 1))
            counts = (stats.messages_read, stats.messages_written, round(stats.seconds, 1))
            numbers = dict(zip(_NUMBERS, (*sizes, *counts), strict=True))
        (topic, partition), broker = self.replica.tp, self.replica.broker
        where = {"topic": topic, "partition": partition, "broker": broker}
        return {**where, **numbers, "result": self.outcome, "is_failure": self.is_failure}

    def summary(self) -> tuple[str, ...]:
        """Kafka's summary of a cleaning, then a line for each stage with what its tasks took; nothing without one."""
        if self.stats is None:
            return ()
        name = f"{self.replica.tp} at broker {self.replica.broker}"
        return (*self.stats.summary(name, 0), *self.stages.summary())


def _saved(stats: CleanerStats) -> float:
    """By how much it became smaller, in percent."""
    return 100 - 100 * stats.bytes_written / stats.bytes_read if stats.bytes_read else 0.0


@dataclass
class Report:
    """What a run did, a line a replica."""

    replicas: list[ReplicaReport] = field(default_factory=list)

    @property
    def has_failed(self) -> bool:
        return any(each.is_failure for each in self.replicas)

    def __str__(self) -> str:
        return "\n".join(map(str, self.replicas)) or "nothing is to be compacted"

    def to_json(self) -> str:
        """An object a line, for each replica; empty where nothing is to be compacted."""
        return "\n".join(json.dumps(each.to_dict()) for each in self.replicas)


def run(spark: SparkSession, options: CompactOptions) -> Report:
    """Compact once what is due. Raises ApiError for a topic that there is not, ConnectionFailed."""
    slices = options.parallelism or None
    options = replace(options, parallelism=slices or _cores(spark))
    return run_on(lambda cluster_id: SparkTasks(spark, cluster_id, slices), options)


def run_on(runner: Callable[[str | None], Runner], options: CompactOptions) -> Report:
    """Compact once, with what runs tasks for the cluster of an id; ``parallelism`` is not 0. Raises as ``run``."""
    config = ClientConfig.from_properties(options.settings())
    with rights_named(RIGHTS[COMPACT]), Admin(config) as admin, ClusterMetadata(config) as cluster:
        found = admin.describe_compaction(options.topics or None)
        due = _due(found, by_name=bool(options.topics))
        left = _left_alone(found, by_name=bool(options.topics))
        if options.dry_run:
            places = admin.describe_replica_log_dirs(due) if options.topics else {}
            reports = [_described(each, found, places[each].size if places else None) for each in due]
            return Report(sorted(reports + left, key=lambda each: each.replica))
        cluster.fetch([])
        with Renewal(cluster, options.grant_ms) as renewal:
            job = _Job(cluster, runner(cluster.cluster_id), renewal, options)
            report = Report(job.run(due) + left)
        report.replicas += _leave_to_brokers(admin, job.invisible)
    report.replicas.sort(key=lambda each: each.replica)
    return report


def _cores(spark: SparkSession) -> int:
    """Those of all executors that are there now; a session of Spark Connect does not tell."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except AttributeError:
        return int(spark.conf.get("spark.default.parallelism", "8") or 8)


def _due(found: CompactionDescription, *, by_name: bool) -> list[Replica]:
    """All replicas of partitions of which one is due."""
    partitions = {replica.tp for replica, state in found.replicas.items() if by_name or _is_due(state)}
    return [
        replica
        for replica, state in found.replicas.items()
        if replica.tp in partitions
        and state.error is None
        and (by_name or (state.cleanable_bytes > 0 and state.uncleanable is None))
    ]


def _is_due(state: CompactionState) -> bool:
    return state.is_due and state.uncleanable is None


def _left_alone(found: CompactionDescription, *, by_name: bool) -> list[ReplicaReport]:
    """What is not tried: that is not compacted though it was named, or known to be unreadable and not named."""
    reports = [
        ReplicaReport(replica, f"not cleaned: {state.error.reason}", is_failure=True)
        for replica, state in found.replicas.items()
        if state.error is not None
    ]
    if not by_name:
        reports += [
            ReplicaReport(replica, f"left alone until it changes, or is named: {state.uncleanable}", is_failure=True)
            for replica, state in found.replicas.items()
            if state.uncleanable is not None
        ]
    return reports


def _described(replica: Replica, found: CompactionDescription, size: int | None) -> ReplicaReport:
    """``size``: of the whole log, if its active segment is to be cleaned too."""
    state = found.replicas[replica]
    if state.uncleanable:
        return ReplicaReport(replica, f"cannot be cleaned: {state.uncleanable}")
    said = (
        f"would be cleaned, {state.cleanable_bytes / _MB:,.1f} MB of it from offset {state.first_dirty_offset} to"
        f" {state.first_uncleanable_offset}"
    )
    if size is not None:
        beyond = max(size - state.clean_bytes - state.cleanable_bytes, 0)
        said += f", and of the {beyond / _MB:,.1f} MB beyond, its active segment among them, what may be cleaned"
    return ReplicaReport(replica, said)


def _leave_to_brokers(admin: Admin, left: dict[Replica, str]) -> Iterator[ReplicaReport]:
    """Have brokers clean what no task could see."""
    by_broker: defaultdict[BrokerId, list[Replica]] = defaultdict(list)
    for replica in left:
        by_broker[replica.broker].append(replica)
    for broker, mine in by_broker.items():
        outcomes = _compacted_by(admin, broker, mine)
        for replica in mine:
            yield _left_to_broker(replica, left[replica], outcomes.get(replica))


def _compacted_by(admin: Admin, broker: BrokerId, replicas: Sequence[Replica]) -> dict[Replica, CompactionOutcome]:
    """What became of each. Of a topic that was deleted meanwhile nothing is told: its name would refuse them all."""
    try:
        there = admin.describe_cluster().topics
        return admin.compact([each.tp for each in replicas if each.tp.topic in there], brokers=[broker])
    except SparklogError as error:
        return {each: untold(each, error) for each in replicas}


def _left_to_broker(replica: Replica, why: str, outcome: CompactionOutcome | None) -> ReplicaReport:
    error = outcome.error if outcome else None
    if outcome is None or error is not None:
        said = f"not cleaned: {why}; nor does its broker: {error.reason if error else 'it is no replica any more'}"
        return ReplicaReport(replica, said, is_failure=True)
    run = outcome.run
    if run is None:
        return ReplicaReport(replica, f"left to its broker ({why}): {outcome.note}")
    sizes = f"{run.bytes_before / _MB:,.1f} MB -> {run.bytes_after / _MB:,.1f} MB"
    return ReplicaReport(replica, f"cleaned by its broker, {sizes} ({why})")


@dataclass
class _Cleaning:
    """One replica while it is cleaned."""

    grant: Grant
    stats: CleanerStats
    stages: StageTimes = field(default_factory=StageTimes)
    traced: list[Traced] = field(default_factory=list)
    stretches: list[list[Group]] = field(default_factory=list)
    in_place: int = 0
    """Of the stretches."""
    is_over: bool = False
    dependents: list[_Cleaning] = field(default_factory=list)
    """They go by a map of this replica's records: where it fails, nobody knows whether these still hold."""

    @property
    def replica(self) -> Replica:
        return Replica(self.grant.tp, self.grant.broker)

    def take_traced(self, traced: Traced) -> None:
        self.traced.append(traced)
        self.stages.add(Stage.SCAN, traced.stats.seconds, traced.stats.bytes_read)


@dataclass
class _Work:
    """A decision and the cleanings that go by it."""

    decision: Decision
    cleanings: list[_Cleaning]
    seed: bytes
    parts: list[IndexedPart] = field(default_factory=list)

    def take_part(self, part: IndexedPart) -> None:
        self.parts.append(part)
        for each in self.cleanings:
            each.stages.add(Stage.MAP, part.stats.seconds, part.stats.map_bytes_read)

    @property
    def open(self) -> list[_Cleaning]:
        return [each for each in self.cleanings if not each.is_over]


_Rewriting = tuple[_Cleaning, RewriteStretch]


class _Job:
    """One run over what is due."""

    def __init__(self, cluster: ClusterMetadata, runner: Runner, renewal: Renewal, options: CompactOptions) -> None:
        self._cluster = cluster
        self._runner = runner
        self._renewal = renewal
        self._options = options
        self._clock = SystemClock()
        self._reports: dict[Replica, ReplicaReport] = {}
        self._held: dict[Replica, Grant] = {}
        self._works: list[_Work] = []
        self._rooms: dict[str, Room] = {}
        self._away: dict[BrokerId, str] = {}  # of this batch: they did not answer, and are asked no more
        self.invisible: dict[Replica, str] = {}
        """Those whose files tasks do not see, and why."""

    def run(self, due: Iterable[Replica]) -> list[ReplicaReport]:
        """Some partitions at a time, so that few are kept from others."""
        by_partition: defaultdict[TopicPartition, list[Replica]] = defaultdict(list)
        for each in due:
            by_partition[each.tp].append(each)
        partitions = iter(by_partition.values())
        while some := [*islice(partitions, max(2 * self._options.parallelism, 1))]:
            try:
                self._clean([replica for replicas in some for replica in replicas])
            finally:
                for replica in list(self._held):
                    self._give_up(replica, Failure.GONE, "the job has ended")
        return [*self._reports.values()]

    # Grants

    def _begin(self, replicas: Sequence[Replica]) -> list[Grant]:
        wanted: defaultdict[BrokerId, list[TopicPartition]] = defaultdict(list)
        for each in replicas:
            wanted[each.broker].append(each.tp)
        for broker, partitions in wanted.items():
            try:
                answers = begin_cleanings(
                    self._cluster,
                    broker,
                    partitions,
                    rolls=bool(self._options.topics),
                    duration_ms=self._options.grant_ms,
                )
            except (SparklogError, KeyError) as error:
                for tp in partitions:
                    self._say(
                        Replica(tp, broker), f"not cleaned: broker {broker} was not reached: {error}", failed=True
                    )
                continue
            for answer in answers:
                self._take(answer)
        return [*self._held.values()]

    def _take(self, answer: Grant | Refusal) -> None:
        replica = Replica(answer.tp, answer.broker)
        if isinstance(answer, Refusal):
            said = f"not cleaned: {answer.why}" if answer.is_error else answer.why
            self._say(replica, said, failed=answer.is_error)
        else:
            self._held[replica] = answer
            self._renewal.add(answer)

    def _give_up(self, replica: Replica, kind: Failure, why: str) -> None:
        grant = self._held.pop(replica)
        self._renewal.drop(grant)
        if replica not in self.invisible:
            self._reports.setdefault(replica, ReplicaReport(replica, f"not cleaned: {why}", is_failure=True))
        if grant.broker in self._away:
            return
        try:
            give_up_cleaning(self._cluster, grant, kind, why)
        except (SparklogError, KeyError) as error:
            self._away[grant.broker] = str(error)
            _log.warning("%s at broker %s stays granted until that lapses: %s", *replica, error)

    def _say(self, replica: Replica, outcome: str, *, failed: bool = False) -> None:
        self._reports[replica] = ReplicaReport(replica, outcome, failed)

    # The stages

    def _clean(self, replicas: Sequence[Replica]) -> None:
        self._away.clear()
        grants = self._visible(self._begin(replicas))
        by_partition: defaultdict[TopicPartition, list[Grant]] = defaultdict(list)
        for each in grants:
            by_partition[each.tp].append(each)
        works = [self._work(decision) for mine in by_partition.values() for decision in decide(mine)]
        self._works = works
        self._index(works)
        for cleaning in [each for work in works for each in work.open if not each.stretches]:
            self._finish(cleaning)
        self._rewrite(works)

    def _visible(self, grants: Sequence[Grant]) -> list[Grant]:
        visible = []
        for grant, outcome in zip(grants, self._run([Look(each.target) for each in grants]), strict=True):
            replica = Replica(grant.tp, grant.broker)
            if isinstance(outcome, TaskFailed) and not outcome.is_visible:
                self.invisible[replica] = outcome.text
                self._give_up(replica, Failure.GONE, f"it is left to the broker: {outcome.text}")
            elif isinstance(outcome, TaskFailed):
                self._give_up(replica, outcome.kind, outcome.text)
            else:
                visible.append(grant)
        return visible

    def _work(self, decision: Decision) -> _Work:
        stats = [CleanerStats(first_offset=each.target.task.first_dirty) for each in decision.grants]
        cleanings = [_Cleaning(*each) for each in zip(decision.grants, stats, strict=True)]
        for each in cleanings:
            if each.grant is decision.source:
                each.dependents = cleanings
            groups = groups_of(each.grant.target.task, decision.end)
            size = self._stretch_bytes(each.grant.target, decision.end)
            each.stretches = stretches_of(each.grant.target, groups, size)
        return _Work(decision, cleanings, token_bytes(_SEED_BYTES))

    def _index(self, works: Sequence[_Work]) -> None:
        """Stage 1: each map, and what is said of transactions in all stretches of each replica but the last one, which
        no other follows.
        """
        tasks: list[tuple[Any, Callable[[Any], None], list[_Cleaning]]] = []
        for work in works:
            count, options = self._index_tasks(work.decision), self._options
            for index in index_tasks(work.decision.indexed, work.seed, options.map_bytes, count, options.spill_bytes):
                tasks.append((index, work.take_part, work.cleanings))
            for cleaning in work.cleanings:
                for bases in [_bases(stretch) for stretch in cleaning.stretches[:-1]] or [()]:
                    trace = TraceStretch(cleaning.grant.target, bases)
                    tasks.append((trace, cleaning.take_traced, [cleaning]))
        for (_, take, concerned), outcome in zip(tasks, self._run([task for task, _, _ in tasks]), strict=True):
            if isinstance(outcome, TaskFailed):
                self._fail(concerned, outcome)
            else:
                take(outcome)
        for work in works:
            for cleaning in work.open:
                for part in work.parts:
                    cleaning.stats.add_index(part.stats)

    def _stretch_bytes(self, target: Target, end: int) -> int:
        """What a task rewrites of a log up to ``end``: less than the options allow, where cores would have none."""
        size = sum(each.size for each in target.task.segments if each.base_offset < end)
        evenly = size // (_TASKS_A_CORE * self._options.parallelism)
        return max(min(self._options.stretch_bytes, evenly), 1)

    def _index_tasks(self, decision: Decision) -> int:
        """How many tasks fill the map. By version each reads all; else each makes a map more to look a key up in."""
        if decision.source.target.task.versions is not None:
            return min(-(-decision.indexed_bytes // self._options.part_bytes), self._options.parallelism)
        return min(decision.indexed_bytes // self._options.stretch_bytes, self._options.parallelism, _MOST_INDEXING)

    def _rewrite(self, works: Sequence[_Work]) -> None:
        """Stage 2, some tasks at a time: what they wrote is put in place before the next need room."""
        waiting = deque(each for work in works for each in self._rewriting(work))
        while wave := self._next_wave(waiting):
            for (cleaning, _), outcome in zip(wave, self._run([task for _, task in wave]), strict=True):
                if isinstance(outcome, TaskFailed):
                    self._fail([cleaning], outcome)
                elif not cleaning.is_over:
                    self._put_in_place(cleaning, outcome)

    def _next_wave(self, waiting: deque[_Rewriting]) -> list[_Rewriting]:
        """Those that have become needless are passed over."""
        for _ in range(len(waiting)):
            each = waiting.popleft()
            if not each[0].is_over:
                waiting.append(each)
        most = max(2 * self._options.parallelism, 1)
        self._rooms |= ask_for_room(self._runner, [task for _, task in islice(waiting, most)], self._rooms)
        return next_wave(waiting, most, lambda each: each[1], self._rooms)

    def _rewriting(self, work: _Work) -> Iterator[_Rewriting]:
        """The replica beside whose files the maps lie is the last: with its cleaning they go."""
        maps = tuple(path for each in work.parts for path in each.paths)
        for cleaning in sorted(work.open, key=lambda each: each.grant is work.decision.source):
            states, target = states_between(cleaning.traced), cleaning.grant.target
            for number, stretch in enumerate(cleaning.stretches):
                aborted = tuple(within(cleaning.traced[0].aborted, target, stretch))
                groups = tuple(tuple(group) for group in stretch)
                yield cleaning, RewriteStretch(target, maps, groups, aborted, states[number])

    def _put_in_place(self, cleaning: _Cleaning, written: Rewritten) -> None:
        began = self._clock.monotonic()
        try:
            for group in written.groups:
                put_in_place(self._cluster, cleaning.grant, group, written.tag)
        except (SparklogError, KeyError) as error:
            self._refused(cleaning, error)
            return
        cleaning.stages.add(Stage.REWRITE, written.stats.seconds, written.stats.bytes_read)
        cleaning.stages.add(Stage.SWAP, self._clock.monotonic() - began, written.stats.bytes_written)
        _add(cleaning.stats, written.stats)
        cleaning.in_place += 1
        if cleaning.in_place == len(cleaning.stretches):
            self._finish(cleaning)  # the log is kept no longer than it must be

    def _finish(self, cleaning: _Cleaning) -> None:
        try:
            finish_cleaning(self._cluster, cleaning.grant, cleaning.stats)
        except (SparklogError, KeyError) as error:
            self._refused(cleaning, error)
        else:
            cleaning.is_over = True
            self._renewal.drop(self._held.pop(cleaning.replica))
            self._reports[cleaning.replica] = report = ReplicaReport(
                cleaning.replica, "cleaned", stats=cleaning.stats, stages=cleaning.stages
            )
            for line in report.summary():
                _log.info("%s", line)

    def _refused(self, cleaning: _Cleaning, error: Exception) -> None:
        """The broker does not go on with a cleaning; or it does not answer, and then with none."""
        failed, broker = [cleaning], cleaning.grant.broker
        if not isinstance(error, ApiError) or isinstance(error, OutOfTime):
            self._away[broker] = str(error)
            failed = [each for work in self._works for each in work.open if each.grant.broker == broker]
        self._fail(failed, TaskFailed(Failure.GONE, str(error)))

    def _fail(self, cleanings: Iterable[_Cleaning], failure: TaskFailed) -> None:
        for each in cleanings:
            if not each.is_over:
                each.is_over = True
                if not failure.is_visible:
                    self.invisible[each.replica] = failure.text
                self._give_up(each.replica, failure.kind, failure.text)
                why = f"the replica at broker {each.grant.broker}, whose records count, failed: {failure.text}"
                self._fail(each.dependents, TaskFailed(Failure.GONE, why))

    def _run(self, tasks: Sequence[Any]) -> list[Any]:
        return self._runner.run(tasks)


def _bases(stretch: Iterable[Group]) -> tuple[int, ...]:
    return tuple(base for group in stretch for base in group)


def _add(stats: CleanerStats, more: CleanerStats) -> None:
    for name in ("bytes_read", "messages_read", "bytes_written", "messages_written", "invalid_messages", "seconds"):
        setattr(stats, name, getattr(stats, name) + getattr(more, name))
