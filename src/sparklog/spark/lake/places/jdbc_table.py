"""A table of a relational database: rows and offsets in one transaction, by way of a staging table.

Invariants: ``docs/adr/0036-jdbc.md``. In ``sparklog_offsets`` a table has a row for itself, whose offset counts its
commits, and one for each partition of a log that was offloaded to it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID, uuid4

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from sparklog.clock import Clock, SystemClock
from sparklog.errors import DataSourceError
from sparklog.spark.lake.destination import Destination, Intake, Overtaken, Refused, RunTasks, Target, refuse
from sparklog.spark.lake.places.jdbc import Connection, Database
from sparklog.spark.lake.places.staging import (
    ATTEMPT,
    SUMMARY,
    TABLE_COLUMNS,
    TASK,
    StagedAttempt,
    StageRanges,
    new_table,
    staged,
    whole_attempts,
)
from sparklog.spark.lake.progress import Progress
from sparklog.spark.read.offsets import OffsetRange
from sparklog.spark.read.options import ReadOptions
from sparklog.structs import NO_EPOCH, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)
OFFSETS = "sparklog_offsets"
_STAGING = "sparklog_staging_"
_STALE_S = 86_400
"""A staging table that old belongs to a job that died."""
_NO_PARTITION = -1
"""Of the row that a table has for itself."""
_MADE = (
    "create table {offsets} (table_name varchar(200) not null, cluster_id varchar(64) not null, topic varchar(249) not"
    " null, topic_id varchar(36) not null, partition_number integer not null, next_offset bigint not null, leader_epoch"
    " integer not null, primary key (table_name, cluster_id, topic, topic_id, partition_number))"
)
_OWN = "table_name = ? and partition_number = -1"
_WHOSE = "table_name = ? and cluster_id = ? and topic = ? and topic_id = ? and partition_number = ?"


@dataclass(frozen=True)
class JdbcTable(Target):
    """Which table of which database."""

    database: Database
    table: str
    """``TABLE`` or ``SCHEMA.TABLE``. It is made if it is not there."""
    batch_rows: int = 500
    """So many rows a task sends to the database at once; it holds them in memory."""

    @property
    def identity(self) -> str:
        """With all of the URL: its parameters may name a database or a schema. A user may have a schema too."""
        user = "" if "." in self.table else f", user {self.database.user}"
        return f"table {self.table} of {self.database.url}{user}"

    def open(self, spark: SparkSession) -> JdbcDestination:
        return JdbcDestination(spark, self)


class _Names(NamedTuple):
    """A table and what lies beside it, in one schema."""

    schema: str | None
    table: str

    @classmethod
    def parse(cls, text: str) -> _Names:
        schema, dot, table = text.rpartition(".")
        return cls(schema if dot else None, table)


class _Offsets(NamedTuple):
    """What ``sparklog_offsets`` has of a table."""

    commits: int
    progress: dict[Progress, int]
    epochs: dict[Progress, int]


class JdbcDestination(Destination[StagedAttempt]):
    """The table."""

    def __init__(self, spark: SparkSession, target: JdbcTable, clock: Clock | None = None) -> None:
        self.spark = spark
        self.target = target
        self.clock = clock or SystemClock()
        self.names = _Names.parse(target.table)
        self.connection = Connection(spark, target.database)
        self._has_tidied = False

    @property
    def place(self) -> str:
        return f"table {self.target.table} of {self.target.database.shown}"

    @property
    def identity(self) -> str:
        return self.target.identity

    def close(self) -> None:
        self.connection.close()

    def quoted(self, table: str) -> str:
        """A table of the target's schema, in SQL."""
        parts = (self.names.schema, table)
        return ".".join(self.connection.quote(each) for each in parts if each is not None)

    def append(self, rows: DataFrame, table: str) -> None:
        """Let Spark's JDBC writer write them; it makes the table if it is not there."""
        database, writer = self.target.database, rows.write.format("jdbc").mode("append")
        writer = writer.options(url=database.url, driver=database.driver_class, dbtable=self.quoted(table))
        writer = writer.option("batchsize", self.target.batch_rows)
        writer._jwrite.options(self.connection.login)
        writer.save()

    # Making it

    def prepare(self) -> None:
        with self.connection.errors("SPARKLOG_NO_TABLE", f"has no table {self.target.table}, and it cannot be made"):
            if 0 < self.connection.longest_name < len(self.names.table.encode()):
                raise DataSourceError(
                    "SPARKLOG_INVALID_OPTION", f"{self.place} has a name that is too long: give another"
                )
            if not self.connection.columns(self.names.schema, self.names.table):
                self._make(self.names.table, lambda: self._make_table())
            if not self.connection.columns(self.names.schema, OFFSETS):
                self._make(OFFSETS, lambda: self.connection.execute(_MADE.format(offsets=self.quoted(OFFSETS))))
            if not self._own_row():
                self._make_own_row()
            if not self._has_tidied:
                self._drop_stale()
                self._has_tidied = True

    def _make_table(self) -> None:
        try:
            self.append(new_table(self.spark), self.names.table)
        except PySparkException as error:
            what = f"has no table {self.target.table}, and it cannot be made"
            raise self.target.database.failure(error, "SPARKLOG_NO_TABLE", what) from None

    def _make(self, table: str, make: Callable[[], object]) -> None:
        """Another job may make it at the same time."""
        try:
            make()
        except (Py4JError, DataSourceError):
            if not self.connection.columns(self.names.schema, table):
                raise

    def _own_row(self) -> list[tuple[int]]:
        sql = f"select next_offset from {self.quoted(OFFSETS)} where {_OWN}"
        return self.connection.query(sql, self.names.table)

    def _make_own_row(self) -> None:
        try:
            self.connection.execute(
                f"insert into {self.quoted(OFFSETS)} values (?, '-', '-', '-', {_NO_PARTITION}, 0, -1)",
                self.names.table,
            )
        except Py4JError:
            if not self._own_row():
                raise

    def _drop_stale(self) -> None:
        oldest = self.clock.now_ms() // 1000 - _STALE_S
        for name in self.connection.tables(self.names.schema, f"{_STAGING}%"):
            found = re.fullmatch(f"{_STAGING}([0-9]+)_[0-9a-f]+", name)
            if found is not None and int(found[1]) < oldest:
                self.drop(name)

    def drop(self, table: str) -> None:
        """Drop a staging table. What cannot be dropped now is dropped when it is old."""
        try:
            self.connection.execute(f"drop table {self.quoted(table)}")
        except Py4JError as error:
            _log.warning("%s: the staging table %s stays: %s", self.place, table, self._said(error))

    def _said(self, error: Exception) -> str:
        return self.target.database.said(error)

    # A commit

    def begin(self) -> JdbcIntake:
        with self.connection.errors("SPARKLOG_NO_TABLE", f"does not tell what is in table {self.target.table}"):
            there = self.connection.columns(self.names.schema, self.names.table)
            columns = [each for each in TABLE_COLUMNS if each in there]
            if not columns:
                refuse(self.place, f"it has none of the columns {', '.join(TABLE_COLUMNS)}")
            is_empty = not self.connection.query(f"select 1 from {self.quoted(self.names.table)}", most=1)
            known = self.offsets()  # the last: rows of a commit that comes between have offsets then
        return JdbcIntake(self, known, columns, is_empty=is_empty)

    def offsets(self) -> _Offsets:
        """What is stored now."""
        rows = self.connection.query(
            "select cluster_id, topic, topic_id, partition_number, next_offset, leader_epoch"
            f" from {self.quoted(OFFSETS)} where table_name = ?",
            self.names.table,
        )
        commits, progress, epochs = 0, {}, {}
        for cluster_id, topic, topic_id, number, offset, epoch in rows:
            if number == _NO_PARTITION:
                commits = offset
                continue
            known = Progress(cluster_id, TopicPartition(topic, number), UUID(topic_id))
            progress[known] = offset
            if epoch != NO_EPOCH:
                epochs[known] = epoch
        return _Offsets(commits, progress, epochs)


class JdbcIntake(Intake[StagedAttempt]):
    """One commit."""

    def __init__(
        self, destination: JdbcDestination, known: _Offsets, columns: Sequence[str], *, is_empty: bool
    ) -> None:
        self._destination = destination
        self._connection = destination.connection
        self._known = known
        self._columns = columns
        self._is_empty = is_empty
        self._expected: tuple[Progress, ...] = ()
        self._epochs: Mapping[Progress, int] = {}
        self._staging = f"{_STAGING}{destination.clock.now_ms() // 1000}_{uuid4().hex[:16]}"

    @property
    def progress(self) -> Mapping[Progress, int]:
        return self._known.progress

    @property
    def epochs(self) -> Mapping[Progress, int]:
        return self._known.epochs

    def note_epochs(self, epochs: Mapping[Progress, int]) -> None:
        self._epochs = epochs

    @property
    def is_empty(self) -> bool:
        return self._is_empty

    def expect(self, partitions: Iterable[Progress]) -> None:
        self._expected = tuple(partitions)

    # What tasks do

    def write(
        self,
        reading: ReadOptions,
        pieces: Sequence[Sequence[OffsetRange]],
        run: RunTasks[StagedAttempt],  # noqa: ARG002 (Spark's JDBC writer is in the JVM)
    ) -> list[StagedAttempt | Refused]:
        tasks = [StageRanges(reading, tuple(each)) for each in pieces]
        try:
            self._destination.append(staged(self._destination.spark, tasks), self._staging)
        except (PySparkException, Py4JError) as error:
            said = self._destination.target.database.said(error)
            self.discard(())
            raise DataSourceError(
                "SPARKLOG_TABLE_NOT_WRITTEN", f"{self._destination.place} cannot be written: {said}"
            ) from None
        with self._errors():
            names = ", ".join(map(self._connection.quote, (TASK, ATTEMPT, SUMMARY)))
            where = f"{self._connection.quote(SUMMARY)} is not null"
            found = self._connection.query(f"select {names} from {self._source} where {where}")
            return whole_attempts(found, len(tasks))

    @property
    def _source(self) -> str:
        return self._destination.quoted(self._staging)

    def _errors(self) -> AbstractContextManager[None]:
        return self._connection.errors("SPARKLOG_TABLE_NOT_WRITTEN", f"did not take rows for {self._table_name}")

    @property
    def _table_name(self) -> str:
        return self._destination.names.table

    # The commit

    def finish(self, outcomes: Sequence[StagedAttempt], offsets: Mapping[Progress, int]) -> int:
        with self._errors(), self._connection.transaction():
            number = self._lock()
            self._check()
            if outcomes:
                self._take_rows([each.attempt for each in outcomes])
            for known in sorted(offsets):
                self._store(known, offsets[known])
        if outcomes:
            self._destination.drop(self._staging)
        return number

    def _lock(self) -> int:
        """No other commit of the table goes on before this one is over; the number of this one."""
        table, name = self._destination.quoted(OFFSETS), self._table_name
        if not self._connection.execute(f"update {table} set next_offset = next_offset + 1 where {_OWN}", name):
            refuse(self._destination.place, f"its row in {OFFSETS} is gone")
        ((number,),) = self._connection.query(f"select next_offset from {table} where {_OWN}", name)
        return int(number)

    def _check(self) -> None:
        """Raises Overtaken."""
        now, before = self._destination.offsets(), self._known
        moved = [each for each in self._expected if now.progress.get(each) != before.progress.get(each)]
        if before.commits == 0 and now.commits != 1:
            moved = [*now.progress]
        if moved:
            which = ", ".join(str(each.tp) for each in sorted(moved)[:3])
            raise Overtaken(
                "SPARKLOG_OVERTAKEN",
                f"another job has offloaded to {self._destination.place} meanwhile ({which}); nothing of this"
                " commit is in it",
            )

    def _take_rows(self, attempts: Sequence[int]) -> None:
        names = ", ".join(map(self._connection.quote, self._columns))
        chosen = ", ".join(map(str, attempts))
        summary, attempt = map(self._connection.quote, (SUMMARY, ATTEMPT))
        self._connection.execute(
            f"insert into {self._destination.quoted(self._destination.names.table)} ({names}) select {names} from"
            f" {self._source} where {summary} is null and {attempt} in ({chosen})"
        )

    def _store(self, known: Progress, offset: int) -> None:
        table, epoch = self._destination.quoted(OFFSETS), self._epochs.get(known, NO_EPOCH)
        whose = (self._table_name, known.cluster_id, known.tp.topic, str(known.topic_id), known.tp.partition)
        changed = self._connection.execute(
            f"update {table} set next_offset = ?, leader_epoch = ? where {_WHOSE}", offset, epoch, *whose
        )
        if not changed:
            self._connection.execute(f"insert into {table} values (?, ?, ?, ?, ?, ?, ?)", *whose, offset, epoch)

    def discard(self, outcomes: Iterable[StagedAttempt]) -> None:  # noqa: ARG002 (all are in one table)
        with suppress(Py4JError):  # the connection is lost; what stays is dropped when it is old
            if self._connection.tables(self._destination.names.schema, self._staging):
                self._destination.drop(self._staging)
