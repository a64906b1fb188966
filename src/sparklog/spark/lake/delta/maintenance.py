"""What is done to a table between commits: small files are merged, and old ones removed.

Delta's own commands do it (``OPTIMIZE``, ``VACUUM``): they know every feature that a table may have. A merge changes no
row and no offset. If another job does the same at that moment one of them fails, and is left for the next time.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from sparklog.clock import Clock, SystemClock
from sparklog.errors import DataSourceError
from sparklog.spark.failures import first_line
from sparklog.spark.lake.columns import PartitionValue
from sparklog.spark.lake.delta.table import DeltaTable
from sparklog.spark.lake.files import WrittenFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
_DAY_S = 86_400
_LEAST_SIZE = "spark.databricks.delta.optimize.minFileSize"
_TARGET_SIZE = "spark.databricks.delta.optimize.maxFileSize"
_LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
"""So many tasks list a table's files for ``VACUUM``, however few there are: 10,000 if it is not set."""
_LISTINGS_A_CORE = 4
_IS_CHECKED = "spark.databricks.delta.retentionDurationCheck.enabled"


@dataclass(frozen=True)
class Maintenance:
    """What is wanted. Raises DataSourceError for a number that makes no sense."""

    merge_files: int | None = None
    """Merge the small files of a partition of the table when there are more than so many."""
    vacuum_s: float | None = None
    """Remove files that no version of the last so many seconds names: after the first commit, and then once a day."""
    is_vacuum_unsafe: bool = False
    """Accept a time below the one that Delta takes for safe. A reader of an old version, or another job's commit that
    takes longer, then loses files."""

    def __post_init__(self) -> None:
        if self.merge_files is not None and self.merge_files < 1:
            raise DataSourceError("SPARKLOG_INVALID_OPTION", f"files to merge are 1 or more, not {self.merge_files}")


class TableMaintenance:
    """Looks after one table. It belongs to one thread."""

    def __init__(
        self,
        spark: SparkSession,
        table: DeltaTable,
        wanted: Maintenance,
        file_bytes: int,
        clock: Clock | None = None,
    ) -> None:
        """``file_bytes``: a smaller file is a small one."""
        self._spark = spark
        self._table = table
        self._wanted = wanted
        self._file_bytes = file_bytes
        self._clock = clock or SystemClock()
        self._small: Counter[PartitionValue] | None = None
        """How many small files each partition of the table has, by what this job knows."""
        self._vacuumed_s: float | None = None

    def check(self) -> None:
        """Raises DataSourceError where ``VACUUM`` would remove what Delta would keep."""
        limit_s = self._table.deleted_files_stay_s if self._wanted.vacuum_s is not None else 0.0
        if (self._wanted.vacuum_s or 0.0) < limit_s and not self._wanted.is_vacuum_unsafe:
            raise DataSourceError(
                "SPARKLOG_INVALID_OPTION",
                f"a vacuum of {_told(self._wanted.vacuum_s or 0.0)} would remove files of table {self._table.name} that"
                f" others may be writing or reading: it keeps them {_told(limit_s)}"
                " (delta.deletedFileRetentionDuration). Take as much, or say that it is meant"
                " (--unsafe-vacuum)",
            )

    def after(self, written: Iterable[WrittenFile]) -> None:
        """What is due after a commit of these files. What fails is logged, and tried again after another commit."""
        if self._wanted.merge_files is not None:
            self._merge(self._wanted.merge_files, written)
        if self._wanted.vacuum_s is not None and self._is_vacuum_due(self._wanted.vacuum_s):
            self._vacuum(self._wanted.vacuum_s)

    def _merge(self, most: int, written: Iterable[WrittenFile]) -> None:
        if self._small is None:
            self._small = self._table.small_files(self._file_bytes)
        else:
            self._small.update(
                tuple(each.partition_values.values()) for each in written if each.nbytes < self._file_bytes
            )
        crowded = [values for values, count in self._small.items() if count > most]
        if crowded and self._tried("merged", lambda: self._optimize(crowded)):
            for values in crowded:
                self._small[values] = 1

    def _optimize(self, partitions: Iterable[PartitionValue]) -> None:
        sizes = dict.fromkeys((_LEAST_SIZE, _TARGET_SIZE), str(self._file_bytes))
        condition = partition_condition(self._table.partition_by, partitions)
        with _settings(self._spark, sizes):
            command = self._table.commands.optimize()
            (command if condition is None else command.where(condition)).executeCompaction()

    def _is_vacuum_due(self, age_s: float) -> bool:
        return self._vacuumed_s is None or self._clock.monotonic() - self._vacuumed_s >= min(age_s, _DAY_S)

    def _vacuum(self, age_s: float) -> None:
        self._vacuumed_s = self._clock.monotonic()
        is_checked = str(not self._wanted.is_vacuum_unsafe).lower()
        tasks = str(_LISTINGS_A_CORE * self._spark.sparkContext.defaultParallelism)
        with _settings(self._spark, {_IS_CHECKED: is_checked, _LISTING: tasks}):
            self._tried("vacuumed", lambda: self._table.commands.vacuum(age_s / 3600))

    def _tried(self, what: str, act: Callable[[], object]) -> bool:
        """Whether it was done. Records are offloaded whether it is or not."""
        try:
            act()
        except (PySparkException, Py4JError) as error:
            _log.warning("table %s was not %s, it is tried again later: %s", self._table.name, what, first_line(error))
            return False
        _log.info("table %s was %s", self._table.name, what)
        return True


def partition_condition(names: Iterable[str], partitions: Iterable[PartitionValue]) -> str | None:
    """The SQL condition of some partitions of a table; None for a table without any."""
    columns = list(names)
    if not columns:
        return None
    return " OR ".join(
        "(" + " AND ".join(_equals(name, value) for name, value in zip(columns, values, strict=True)) + ")"
        for values in partitions
    )


def _equals(name: str, value: str | None) -> str:
    column = "`" + name.replace("`", "``") + "`"
    if value is None:
        return f"{column} IS NULL"
    text = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"{column} = '{text}'"


def _told(seconds: float) -> str:
    return f"{seconds / _DAY_S:g} days" if seconds >= _DAY_S else f"{seconds / 3600:g} hours"


@contextmanager
def _settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Settings of the session for a while."""
    former = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in former.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)
