"""A Delta table that takes records as they are: the columns of the source, and those it is partitioned by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparklog.errors import DataSourceError
from sparklog.spark.lake.columns import DAY, PARTITION_COLUMNS
from sparklog.spark.lake.delta.base import TableDestination, TableIntake, TableTarget
from sparklog.spark.lake.delta.maintenance import Maintenance
from sparklog.spark.lake.delta.table import DeltaTable
from sparklog.spark.lake.destination import WrittenFiles
from sparklog.spark.lake.files import WriteRanges, WrittenFile, check_compression
from sparklog.spark.lake.progress import Progress
from sparklog.spark.read.offsets import OffsetRange
from sparklog.spark.read.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class RawTable(TableTarget):
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

    def open(self, spark: SparkSession) -> RawTableDestination:
        return RawTableDestination(spark, DeltaTable(spark, self.name), self)


class RawTableDestination(TableDestination[WrittenFiles[WrittenFile]]):
    """The table."""

    def __init__(self, spark: SparkSession, table: DeltaTable, target: RawTable) -> None:
        super().__init__(spark, table, target)
        self._target = target

    def _create(self) -> None:
        self._table.create(self._target.partition_by)

    def begin(self) -> RawTableIntake:
        return RawTableIntake(self._table.begin(), self._target)

    def _files_of(self, outcome: WrittenFiles[WrittenFile]) -> list[WrittenFile]:
        return outcome.files


class RawTableIntake(TableIntake[WrittenFiles[WrittenFile]]):
    """One commit of files."""

    def task(self, reading: ReadOptions, ranges: Sequence[OffsetRange]) -> WriteRanges:
        return WriteRanges(reading, tuple(ranges), self._table_files)

    def finish(self, outcomes: Sequence[WrittenFiles[WrittenFile]], offsets: Mapping[Progress, int]) -> int:
        return self._commit.finish([file for each in outcomes for file in each.files], offsets)

    def discard(self, outcomes: Iterable[WrittenFiles[WrittenFile]]) -> None:
        self._remove(file for each in outcomes for file in each.files)
