"""One read over a table and a log: ``format("sparklog")`` with the option ``history``.

Offsets below what the table has come to are read from the table, later ones from the log. A task has one position in
its range, and goes on from it whatever goes away meanwhile: where the log has expired, in the table as it is then;
where a file of the table has gone, in the newest version. So each offset is given once, in order. Offsets that are in
neither are lost records, and a message names both sides. Why: ``docs/adr/0030-one-read-over-table-and-log.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from pyspark.sql.types import StructType

from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import OffsetAndTimestamp
from sparklog.errors import ApiError, DataSourceError
from sparklog.protocol.wire import ZERO_UUID
from sparklog.spark.failures import translated
from sparklog.spark.lake.history.decoded_rows import DecodedRows
from sparklog.spark.lake.history.snapshot import Snapshot, refuse
from sparklog.spark.lake.history.table_rows import TableRows
from sparklog.spark.lake.progress import Progress
from sparklog.spark.read.batch_reader import (
    RangesPartition,
    SparklogReader,
    login_of_tasks,
    options_of_task,
    plan_tasks,
    with_login,
)
from sparklog.spark.read.columns import LogReader
from sparklog.spark.read.data_loss import DataLoss, DataLossReporter, offset_after_loss
from sparklog.spark.read.offsets import OffsetRange, Offsets
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.read.resolver import OffsetResolver, TopicIds
from sparklog.spark.read.sizes import PartitionSizes, SizeEstimator
from sparklog.spark.stream.offset import Epochs, StreamOffset
from sparklog.spark.stream.planner import StreamPlanner
from sparklog.spark.stream.reader import SparklogStreamReader
from sparklog.spark.stream.truncation import TruncationDetector
from sparklog.spark.worker_gc import freeze_imports
from sparklog.structs import NO_EPOCH, LeaderEpoch, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True)
class Held:
    """The offsets of a partition that a table holds, ``first`` ≤ o < ``end``; it has none if they are the same."""

    first: int
    end: int

    def has(self, offset: int) -> bool:
        return self.first <= offset < self.end


class TableSide:
    """One version of the table, asked of partitions of one cluster."""

    def __init__(self, snapshot: Snapshot, cluster_id: str, held: Mapping[Progress, Held] | None = None) -> None:
        self.snapshot = snapshot
        self._cluster_id = cluster_id
        self._held = dict(held or {})

    def held(self, wanted: OffsetRange) -> Held:
        """What the table holds of the partition of the range. Raises FileNotFoundError where a file has gone."""
        progress = self.progress(wanted)
        if progress not in self._held:
            end = self.snapshot.end(progress)
            with closing(TableRows(self.snapshot, StructType())) as rows:
                found = rows.first(wanted._replace(start=0, end=end)) if end else None
            self._held[progress] = Held(end if found is None else found.offset, end)
        return self._held[progress]

    def progress(self, wanted: OffsetRange) -> Progress:
        return Progress(self._cluster_id, wanted.tp, wanted.topic_id or ZERO_UUID)

    def narrowed(self, ranges: Sequence[OffsetRange]) -> TableSide:
        """What a task needs that reads these ranges. It is pickled."""
        partitions = [self.progress(each) for each in ranges]
        held = {self.progress(each): self.held(each) for each in ranges}
        below = [each._replace(end=min(each.end, self.held(each).end)) for each in ranges]
        return TableSide(self.snapshot.narrowed(below, partitions), self._cluster_id, held)

    def newest(self) -> TableSide:
        return TableSide(self.snapshot.newest(), self._cluster_id)

    def at(self, wanted: OffsetRange, at_ms: int) -> OffsetAndTimestamp | None:
        """The first row of the range at or after a timestamp (ms). Raises FileNotFoundError."""
        self.snapshot.check_columns(["timestamp"])
        with closing(TableRows(self.snapshot, StructType())) as rows:
            return rows.first(wanted, at_ms)

    def bytes_per_offset(self, wanted: OffsetRange) -> float:
        """Of the files with rows of the range; of one with several partitions, each is taken to have as much."""
        size = sum(file.size / file.partition_count for file in self.snapshot.files_of(wanted))
        return max(size / max(wanted.size, 1), 1.0)

    def told(self, wanted: OffsetRange) -> str:
        held = self.held(wanted)
        said = f"offsets {held.first} to {held.end}" if held.first < held.end else "nothing of it"
        return f"table {self.snapshot.name}, version {self.snapshot.version}, has {said}"


class UnionResolver(OffsetResolver):
    """Resolves offsets over both sides: the table's first row is an edge where it is before the log's."""

    def __init__(self, cluster: ClusterMetadata, options: ReadOptions) -> None:
        super().__init__(cluster, options)
        self._log_sizes = PartitionSizes(cluster)
        self._side: TableSide | None = None
        self._ids: TopicIds = {}
        self._truncation = TruncationDetector(cluster)
        self._told_behind: set[TopicPartition] = set()
        self._told_regrown: set[TopicPartition] = set()

    @property
    def side(self) -> TableSide:
        assert self._side is not None, "partitions come first"
        return self._side

    @property
    def _is_pinned(self) -> bool:
        return self._options.history_as_of is not None

    def refresh(self) -> None:
        """Take the newest version, unless one is asked for."""
        if self._side is not None and not self._is_pinned:
            self._side = self._side.newest()

    def _open(self) -> None:
        if self._side is None:
            assert self._options.history is not None
            snapshot = Snapshot.open(self._options.history, self._options.history_as_of, self._options.registry)
            self._side = TableSide(snapshot, self._cluster.cluster_id or "-")

    # The questions of a resolver

    def partitions(self, read_before: Collection[TopicPartition] | None = ()) -> TopicIds:
        ids = super().partitions(read_before)
        self._open()
        new = {tp: topic_id for tp, topic_id in ids.items() if self._ids.get(tp) != topic_id}
        of_topics = {tp.topic: topic_id for tp, topic_id in ids.items()}
        self._ids = {tp: each for tp, each in self._ids.items() if of_topics.get(tp.topic, each) == each} | new
        self._check_owner(new)
        return ids

    def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        if self._is_pinned:
            return {tp: self._held(tp).first for tp in partitions}
        log = super().earliest(partitions)
        held = {tp: self._held(tp) for tp in partitions}
        return {tp: min(log[tp], each.first) if each.end else log[tp] for tp, each in held.items()}

    def ends_and_epochs(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[Offsets, dict[TopicPartition, LeaderEpoch]]:
        held = {tp: self._held(tp).end for tp in partitions}
        if self._is_pinned:
            return held, {}
        ends, epochs = super().ends_and_epochs(partitions)
        self._report_regrown({tp: held[tp] for tp in partitions if 0 < held[tp] <= ends[tp]}, epochs)
        for tp in sorted(tp for tp in partitions if ends[tp] < held[tp] and tp not in self._told_behind):
            self._report_behind(tp, held[tp])
        return {tp: max(ends[tp], held[tp]) for tp in partitions}, epochs

    def by_time(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for tp, at_ms in wanted.items():
            held = self._held(tp)
            wanted_of = self._range(tp, held.first, held.end)
            found[tp] = self._ask(TableSide.at, wanted_of, at_ms) if wanted_of.size else None
        return found if self._is_pinned else found | self._by_time_in_log(wanted, found)

    def _by_time_in_log(
        self, wanted: Mapping[TopicPartition, int], in_table: Mapping[TopicPartition, OffsetAndTimestamp | None]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """What the log has, where the table has nothing so late, or the log has it before the table's first row."""
        log = super().earliest(wanted)
        left = {tp: at for tp, at in wanted.items() if in_table[tp] is None or log[tp] < self._held(tp).first}
        found = super().by_time(left)
        return {
            tp: at
            for tp, at in found.items()
            if in_table[tp] is None or (at is not None and at.offset < self._held(tp).first)
        }

    def bytes_per_offset(
        self, partitions: Collection[TopicPartition], starts: Mapping[TopicPartition, int] | None = None
    ) -> dict[TopicPartition, float]:
        """By the sizes of files for a partition that starts in the table, by that of the log for others."""
        starts = starts or {}
        held = {tp: self._held(tp) for tp in partitions}
        inside = {tp for tp in partitions if starts.get(tp, held[tp].end) < held[tp].end}
        found = {tp: self.side.bytes_per_offset(self._range(tp, held[tp].first, held[tp].end)) for tp in inside}
        others = [tp for tp in partitions if tp not in inside]
        return found | (self._log_sizes.bytes_per_offset(others) if others else {})

    def _written(self, tp: TopicPartition, latest: int) -> int:
        return latest if self._is_pinned else super()._written(tp, latest)

    def _where(self, tp: TopicPartition) -> str:
        return f" ({self.side.told(self._range(tp))})"

    # What the table says

    def _range(self, tp: TopicPartition, start: int = 0, end: int = 0) -> OffsetRange:
        return OffsetRange(tp, start, end, self._ids.get(tp))

    def _held(self, tp: TopicPartition) -> Held:
        return self._ask(TableSide.held, self._range(tp))

    def _ask(self, question: Callable[Concatenate[TableSide, P], T], *of: P.args, **more: P.kwargs) -> T:
        """What this version of the table answers, or a newer one where a file has gone."""
        try:
            return question(self.side, *of, **more)
        except FileNotFoundError as error:
            self._side = newer(self.side, error)
            return self._ask(question, *of, **more)

    def _check_owner(self, ids: TopicIds) -> None:
        """Raises DataSourceError where the table is that of other topics, or of other ones with these names."""
        snapshot = self.side.snapshot
        known = {tp.topic for tp in self._ids if snapshot.end(self.side.progress(self._range(tp)))}
        topic_ids = {tp.topic: topic_id for tp, topic_id in ids.items()}
        unknown = topic_ids.keys() - known
        if any(snapshot.has_topic(topic) for topic in unknown) or (topic_ids and not known and snapshot.files):
            names = ", ".join(f"{topic} with id {topic_ids[topic]}" for topic in sorted(unknown))
            owners = sorted(
                {f"{each.tp.topic} with id {each.topic_id} of cluster {each.cluster_id}" for each in snapshot.owners()}
            )
            refuse(
                snapshot.name,
                f"it has nothing of topic {names} of cluster {self._cluster.cluster_id}, but rows of"
                f" {', '.join(owners) or 'nobody knows which'}: of another topic or cluster, or of a topic that was"
                " deleted and made again",
            )

    def _report_behind(self, tp: TopicPartition, held: int) -> None:
        """Tell of a log that ends before the table does, unless that passes while a high watermark comes up."""
        for _ in range(self._options.offset_retries):
            self._cluster.clock.sleep(self._options.offset_retry_interval_ms / 1000)
            if super().ends_and_epochs([tp])[0][tp] >= held:
                return
        self._told_behind.add(tp)
        end = super().ends_and_epochs([tp])[0][tp]
        if end < held:
            self._data_loss.report(
                DataLoss.TRUNCATED,
                f"partition {tp} ends at offset {end}, but {self.side.told(self._range(tp))}: the log was cut off",
            )

    def _report_regrown(self, held: Offsets, epochs: Epochs) -> None:
        """Tell of a log that was cut off below the table's end and has grown beyond it: a later leader knows."""
        known = {tp: self.side.snapshot.epoch(self.side.progress(self._range(tp))) for tp in held}
        ids = {tp.topic: topic_id for tp, topic_id in self._ids.items()}
        read = StreamOffset(held, ids, {tp: each for tp, each in known.items() if each != NO_EPOCH})
        cut = self._truncation.truncated(read, epochs)
        for tp in sorted(cut.keys() - self._told_regrown):
            self._told_regrown.add(tp)
            self._data_loss.report(
                DataLoss.TRUNCATED,
                f"partition {tp} was cut off at offset {cut[tp]} and has grown again, but"
                f" {self.side.told(self._range(tp))}, of leader epoch {known[tp]} or before; its epoch is"
                f" {epochs[tp]} now: a replica without the records between took the lead",
            )

    # What tasks are given

    def with_table(self, tasks: Iterable[RangesPartition]) -> list[UnionPartition]:
        """The tasks, each with what it needs of the table."""
        narrowed = TableSide.narrowed
        return [UnionPartition(each.ranges, self._ask(narrowed, each.ranges), client=each.client) for each in tasks]

    def refresh_for(self, ranges: Iterable[OffsetRange]) -> None:
        """Take the newest version if one of the ranges begins in the table: a file of an older one may have gone."""
        if any(each.start < self._ask(TableSide.held, each).end for each in ranges):
            self.refresh()


def newer(side: TableSide, error: FileNotFoundError) -> TableSide:
    """A newer version than one whose file has gone. Raises DataSourceError where there is none."""
    snapshot = side.snapshot
    newest = side if snapshot.is_pinned else side.newest()
    if newest.snapshot.version > snapshot.version:
        return newest
    why = "VACUUM has removed it" if snapshot.is_pinned else "no newer version has its rows"
    raise DataSourceError(
        "SPARKLOG_HISTORY_GONE",
        f"table {snapshot.name}: a file of version {snapshot.version} is not there any more, and {why}: {error}",
    ) from error


@dataclass
class UnionPartition(RangesPartition):
    """The ranges that one task reads, and what it needs of the table."""

    side: TableSide


class UnionReader(SparklogReader):
    """The batch source over both."""

    def partitions(self) -> list[RangesPartition]:
        with translated(), ClusterMetadata(self._options.client) as cluster:
            resolver = UnionResolver(cluster, self._options)
            ranges = resolver.batch_ranges()
            resolver.side.snapshot.check_schema(self._schema)
            planned = with_login(plan_tasks(self._options, ranges, resolver), login_of_tasks(self._options))
            tasks = resolver.with_table(planned)
        return [*tasks] or [RangesPartition(())]

    def read(self, partition: RangesPartition) -> Iterator[pa.RecordBatch]:
        return read_both(options_of_task(self._options, partition), self._schema, partition)


class UnionStreamReader(SparklogStreamReader):
    """The streaming source over both."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._resolver: UnionResolver | None = None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangesPartition]:
        tasks = super().partitions(start, end)
        with translated():
            assert self._resolver is not None
            self._resolver.side.snapshot.check_schema(self._schema)
            self._resolver.refresh_for(each for task in tasks for each in task.ranges)
            return [*self._resolver.with_table(tasks)]

    def read(self, partition: RangesPartition) -> Iterator[pa.RecordBatch]:
        return read_both(options_of_task(self._options, partition), self._schema, partition)

    def _new_planner(self) -> StreamPlanner:
        return StreamPlanner(self._options, sources=self._sources)

    def _sources(self, cluster: ClusterMetadata, options: ReadOptions) -> tuple[OffsetResolver, SizeEstimator]:
        self._resolver = UnionResolver(cluster, options)
        return self._resolver, self._resolver


def read_both(options: ReadOptions, schema: StructType, partition: RangesPartition) -> Iterator[pa.RecordBatch]:
    """The records of the ranges, in order. This is the whole work of a task."""
    with translated():
        if isinstance(partition, UnionPartition):
            with closing(_Task(options, schema, partition)) as task:
                yield from task.batches()
    freeze_imports()


class _Task:
    """Reads the ranges of one task; ``_position`` is the next offset of the one that is read."""

    def __init__(self, options: ReadOptions, schema: StructType, partition: UnionPartition) -> None:
        self._schema = schema
        self._side = partition.side
        self._ranges = partition.ranges
        self._position = 0
        behind = [each._replace(start=max(each.start, self._side.held(each).end)) for each in self._ranges]
        values = self._side.snapshot.values
        self._decoded = None if values is None else DecodedRows(values, schema)
        columns = schema if self._decoded is None else self._decoded.columns
        self._log = LogReader(options, columns, [each for each in behind if each.size > 0], self._after_loss)

    def close(self) -> None:
        self._log.close()

    def batches(self) -> Iterator[pa.RecordBatch]:
        for each in self._ranges:
            self._position = each.start
            while self._position < each.end:
                yield from self._next(each)
        self._log.report()
        if self._decoded is not None:
            self._decoded.report()

    def _next(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Read on from the side that has the position, as far as it has the range."""
        held = self._held(wanted)
        left = wanted._replace(start=self._position)
        if held.has(self._position):
            yield from self._from_table(left._replace(end=min(held.end, wanted.end)))
        elif self._position < held.first:
            yield from self._from_log(left._replace(end=min(held.first, wanted.end)))
        else:
            yield from self._from_log(left)

    def _held(self, wanted: OffsetRange) -> Held:
        try:
            return self._side.held(wanted)
        except FileNotFoundError as error:
            self._side = newer(self._side, error)
            return self._held(wanted)

    def _from_table(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        try:
            with closing(TableRows(self._side.snapshot, self._schema)) as rows:
                for next_offset, batch in rows.batches(wanted):
                    self._position = next_offset
                    yield batch
            self._position = wanted.end
        except FileNotFoundError as error:
            self._side = newer(self._side, error)

    def _from_log(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        self._position = wanted.end
        for batch in self._log.batches(wanted):
            yield from [batch] if self._decoded is None else self._decoded.rows(batch)

    def _after_loss(
        self, cluster: ClusterMetadata, wanted: OffsetRange, position: int, error: ApiError, reporter: DataLossReporter
    ) -> int:
        """Where the log goes on; its end where the table has the position by now, and goes on itself."""
        if not self._side.snapshot.is_pinned:
            self._side = self._side.newest()
            if self._held(wanted).has(position):
                self._position = position
                return wanted.end
        return offset_after_loss(cluster, wanted, position, error, _BothNamed(reporter, self._side.told(wanted)))


class _BothNamed(DataLossReporter):
    """Adds to each message what the table has."""

    def __init__(self, reporter: DataLossReporter, told: str) -> None:
        super().__init__(fail=False)
        self._reporter = reporter
        self._told = told

    def report(self, kind: DataLoss, message: str) -> None:
        self._reporter.report(kind, f"{message}; {self._told}")
