"""A Delta table that takes records as they are: the columns of the source, and those it is partitioned by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparklog.errors import DataSourceError
from sparklog.spark.lake.columns import DAY, PARTITION_COLUMNS
from sparklog.spark.lake.delta.maintenance import Maintenance, TableMaintenance
from sparklog.spark.lake.delta.table import Commit, DeltaTable
from sparklog.spark.lake.destination import Destination, Intake, Target
from sparklog.spark.lake.files import Offloaded, TableFiles, WriteRanges, check_compression, remove_files
from sparklog.spark.lake.location import identity_of
from sparklog.spark.lake.progress import Progress
from sparklog.spark.read.offsets import OffsetRange
from sparklog.spark.read.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class RawTable(Target):
    """Which table, and how it is written. Raises DataSourceError for a value that there is not."""

    name: str
    """A path or URI, which has a slash, or a table of the catalog. It is made if it is not there."""
    partition_by: tuple[str, ...] = (DAY,)
    """Of a table that is made: ``day``, ``hour`` (UTC's), ``topic``, ``partition``, or none."""
    compression: str = "snappy"
    file_bytes: int = 256 << 20
    """A file is complete when it has so much."""
    maintenance: Maintenance = field(default_factory=Maintenance)

    def __post_init__(self) -> None:
        for each in self.partition_by:
            if each not in PARTITION_COLUMNS:
                raise DataSourceError(
                    "SPARKLOG_INVALID_OPTION",
                    f"a table is partitioned by {', '.join(PARTITION_COLUMNS)} or none of them, not by {each!r}",
                )
        check_compression(self.compression)

    @property
    def identity(self) -> str:
        return identity_of(self.name)

    def open(self, spark: SparkSession) -> RawTableDestination:
        return RawTableDestination(spark, DeltaTable(spark, self.name), self)


class RawTableDestination(Destination[Offloaded]):
    """The table."""

    def __init__(self, spark: SparkSession, table: DeltaTable, target: RawTable) -> None:
        self._table = table
        self._target = target
        self._maintenance = TableMaintenance(spark, table, target.maintenance, target.file_bytes)

    @property
    def place(self) -> str:
        return f"table {self._target.name}"

    def prepare(self) -> None:
        if not self._table.exists:
            self._table.create(self._target.partition_by)
        self._maintenance.check()

    def begin(self) -> RawTableIntake:
        return RawTableIntake(self._table.begin(), self._target)

    def tend(self, outcomes: Sequence[Offloaded]) -> None:
        self._maintenance.after(file for each in outcomes for file in each.files)


class RawTableIntake(Intake[Offloaded]):
    """One commit of files."""

    def __init__(self, commit: Commit, target: RawTable) -> None:
        self._commit = commit
        self._target = target

    @property
    def progress(self) -> Mapping[Progress, int]:
        return self._commit.table.progress

    @property
    def epochs(self) -> Mapping[Progress, int]:
        return self._commit.table.epochs

    def note_epochs(self, epochs: Mapping[Progress, int]) -> None:
        self._commit.note_epochs(epochs)

    @property
    def is_empty(self) -> bool:
        return self._commit.table.is_empty

    def expect(self, partitions: Iterable[Progress]) -> None:
        self._commit.expect(partitions)

    def task(self, reading: ReadOptions, ranges: Sequence[OffsetRange]) -> WriteRanges:
        table, target = self._commit.table, self._target
        files = TableFiles(table.location, table.columns, table.partition_by, target.compression, target.file_bytes)
        return WriteRanges(reading, tuple(ranges), files)

    def finish(self, outcomes: Sequence[Offloaded], offsets: Mapping[Progress, int]) -> int:
        return self._commit.finish([file for each in outcomes for file in each.files], offsets)

    def discard(self, outcomes: Iterable[Offloaded]) -> None:
        remove_files(self._commit.table.location, [file for each in outcomes for file in each.files])
