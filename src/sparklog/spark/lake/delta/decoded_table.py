"""A Delta table that has the fields of the values as columns; what does not decode goes to another, or stops the job.

Invariants: ``docs/adr/0031-decoded-tables.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.types import StringType

from sparklog.errors import DataSourceError
from sparklog.spark.lake.ages import Timestamps
from sparklog.spark.lake.columns import DAY, TABLE_COLUMNS, TableColumns, source_columns
from sparklog.spark.lake.decoding import Decoding
from sparklog.spark.lake.delta.base import TableDestination, TableIntake, TableTarget
from sparklog.spark.lake.delta.dead_letters import DeadLetters, Settling
from sparklog.spark.lake.delta.maintenance import Maintenance
from sparklog.spark.lake.delta.table import Commit, DeltaTable
from sparklog.spark.lake.destination import WrittenFiles
from sparklog.spark.lake.files import TableFiles, TableWriter, WrittenFile, check_compression
from sparklog.spark.lake.location import is_within
from sparklog.spark.lake.progress import Progress
from sparklog.spark.lake.value_schema import VALUES_PROPERTY, ValueSchema
from sparklog.spark.read.columns import read_ranges
from sparklog.spark.read.offsets import OffsetRange
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.schema import READ_COLUMNS
from sparklog.spark.values.formats import ValueFormat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY_FORMATS = ("binary", "string")
EXTRA_COLUMNS = ("value", "headers", "timestampType")
"""Columns of the log that a decoded table has if they are asked for."""
_COLUMNS = ("key", "topic", "partition", "offset", "timestamp")


@dataclass(frozen=True)
class DecodedTable(TableTarget):
    """Which table, and how values become its columns. Raises DataSourceError for a value that there is not."""

    name: str
    """A path or URI, which has a slash, or a table of the catalog. It is made if it is not there."""
    values: ValueFormat
    key_format: str = "binary"
    """``binary`` or ``string``."""
    extra: tuple[str, ...] = ()
    """Columns of the log that a new table has besides: ``value`` (as it is), ``headers``, ``timestampType``."""
    into: str | None = None
    """One column that has all fields, as a struct. Without it each field is a column."""
    evolve: bool = False
    """Add fields that the table does not have."""
    dead_letters: str | None = None
    """The table for records that do not decode, named as ``name``. Without it the first one stops the job."""
    partition_by: tuple[str, ...] = (DAY,)
    """Of a table that is made: ``day``, ``hour`` (UTC's), ``topic``, ``partition``, a field of the values, or none."""
    compression: str = "snappy"
    file_bytes: int = 256 << 20
    """A file is complete when it has so much."""
    maintenance: Maintenance = field(default_factory=Maintenance)
    """Of both tables."""

    def __post_init__(self) -> None:
        check_compression(self.compression)
        if self.key_format not in KEY_FORMATS:
            raise _invalid(f"keys are {' or '.join(KEY_FORMATS)}, not {self.key_format!r}")
        for each in self.extra:
            if each not in EXTRA_COLUMNS:
                raise _invalid(f"a decoded table may also have {', '.join(EXTRA_COLUMNS)}, not {each!r}")
        if self.dead_letters is not None and is_within(self.dead_letters, self.name):
            raise _invalid(
                f"the table of dead letters {self.dead_letters} and table {self.name} share a directory, and VACUUM of"
                " one would remove files of the other: name a directory of its own"
            )

    def open(self, spark: SparkSession) -> TableDestination[Any]:
        values = self.value_schema()
        return DecodedTableDestination(spark, self, values, self.columns(values.decoding()))

    def value_schema(self) -> ValueSchema:
        """What the table says of its values. Raises DataSourceError for a schema that cannot be read."""
        return ValueSchema.recorded(
            self.values,
            is_text_key=self.key_format == "string",
            into=self.into,
            has_dead_letters=self.dead_letters is not None,
        )

    def columns(self, decoding: Decoding) -> TableColumns:
        """Raises DataSourceError for names that occur twice, and for a partition column that there is not."""
        known = dict(TABLE_COLUMNS)
        if self.key_format == "string":
            known["key"] = StringType()
        found = TableColumns(known, (*_COLUMNS, *self.extra), decoding.columns, self.evolve)
        taken = {each.casefold() for each in known}
        twice = [each for each in found.values.names if each.casefold() in taken]
        if twice:
            raise _invalid(
                f"a field has the name of a column of the log: {', '.join(twice)}. Put the fields into a struct"
                " (--into NAME)"
            )
        for each in self.partition_by:
            if each not in found.partition_columns:
                raise _invalid(
                    f"a table is partitioned by {', '.join(found.partition_columns)} or none of them, not by {each!r}"
                )
        return found


class DecodedFiles(NamedTuple):
    """What a task wrote."""

    rows_written: WrittenFiles[WrittenFile]
    dead_letters: WrittenFiles[WrittenFile]
    timestamps: Timestamps

    @property
    def rows(self) -> int:
        return self.rows_written.rows + self.dead_letters.rows

    @property
    def nbytes(self) -> int:
        return self.rows_written.nbytes + self.dead_letters.nbytes

    @property
    def file_count(self) -> int:
        return self.rows_written.file_count + self.dead_letters.file_count


@dataclass(frozen=True, slots=True)
class DecodeRanges:
    """Write the records of ``ranges`` into files of ``table``, and those that do not decode into files of another."""

    read: ReadOptions
    ranges: tuple[OffsetRange, ...]
    decoding: Decoding
    table: TableFiles
    dead_letters: TableFiles | None

    def run(self) -> DecodedFiles:
        """Raises DataSourceError for a record that does not decode and has nowhere to go, and as ``WriteRanges``."""
        timestamps = Timestamps()
        table = TableWriter(self.table)
        dead = TableWriter(self.dead_letters) if self.dead_letters is not None else None
        try:
            for batch in read_ranges(self.read, source_columns(READ_COLUMNS), self.ranges):
                timestamps.add(batch.column("timestamp"))
                rows = self.decoding.rows(batch)
                table.write(rows.decoded)
                if rows.dead is not None and dead is not None:
                    dead.write(rows.dead)
            nothing = Timestamps()
            return DecodedFiles(
                WrittenFiles(table.finish(), nothing), WrittenFiles(dead.finish() if dead else [], nothing), timestamps
            )
        except BaseException:
            table.discard()
            if dead is not None:
                dead.discard()
            raise


class DecodedTableDestination(TableDestination[DecodedFiles]):
    """The table, and that of its dead letters."""

    def __init__(self, spark: SparkSession, target: DecodedTable, values: ValueSchema, columns: TableColumns) -> None:
        super().__init__(spark, DeltaTable(spark, target.name, columns), target)
        self._target = target
        self._properties = {VALUES_PROPERTY: values.to_json()}
        self._decoding = values.decoding()
        self._dead_letters = dead_letters_of(spark, target)

    def prepare(self) -> None:
        super().prepare()
        if self._dead_letters is not None:
            self._dead_letters.prepare(self._table.table_id)

    def _create(self) -> None:
        self._table.create(self._target.partition_by, self._properties)

    def begin(self) -> DecodedTableIntake:
        dead_letters = self._dead_letters.begin() if self._dead_letters is not None else None
        commit = self._table.begin()
        commit.note_properties(self._properties)
        return DecodedTableIntake(commit, self._target, Settling(dead_letters, self._decoding, commit.table.progress))

    def tend(self, outcomes: Sequence[DecodedFiles]) -> None:
        super().tend(outcomes)
        if self._dead_letters is not None:
            self._dead_letters.tend(file for each in outcomes for file in each.dead_letters.files)

    def _files_of(self, outcome: DecodedFiles) -> list[WrittenFile]:
        return outcome.rows_written.files


class DecodedTableIntake(TableIntake[DecodedFiles]):
    """One commit to the table, and before it one of dead letters."""

    def __init__(self, commit: Commit, target: DecodedTable, settling: Settling) -> None:
        super().__init__(commit, target)
        self._settling = settling

    def settle(self) -> None:
        super().settle()
        self._settling.settle()

    def expect(self, partitions: Iterable[Progress]) -> None:
        expected = list(partitions)
        super().expect(expected)
        self._settling.expect(expected)

    def task(self, reading: ReadOptions, ranges: Sequence[OffsetRange]) -> DecodeRanges:
        decoding = self._settling.decoding(ranges)
        return DecodeRanges(reading, tuple(ranges), decoding, self._table_files, self._settling.files)

    def finish(self, outcomes: Sequence[DecodedFiles], offsets: Mapping[Progress, int]) -> int:
        self._settling.finish([file for each in outcomes for file in each.dead_letters.files], offsets)
        return self._commit.finish([file for each in outcomes for file in each.rows_written.files], offsets)

    def discard(self, outcomes: Iterable[DecodedFiles]) -> None:
        found = list(outcomes)
        self._remove(file for each in found for file in each.rows_written.files)
        self._settling.discard(file for each in found for file in each.dead_letters.files)


def dead_letters_of(spark: SparkSession, target: DecodedTable) -> DeadLetters | None:
    """The table that a target names for what does not decode."""
    if target.dead_letters is None:
        return None
    return DeadLetters(spark, target.dead_letters, target.compression, target.file_bytes, target.maintenance)


def _invalid(message: str) -> DataSourceError:
    return DataSourceError("SPARKLOG_INVALID_OPTION", message)
