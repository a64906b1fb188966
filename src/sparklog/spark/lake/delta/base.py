"""What all kinds of Delta tables that an offload goes to have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sparklog.spark.lake.delta.maintenance import Maintenance, TableMaintenance
from sparklog.spark.lake.delta.table import Commit, DeltaTable
from sparklog.spark.lake.destination import Destination, OutcomeT, Target, TaskIntake
from sparklog.spark.lake.files import TableFiles, WrittenFile, remove_files
from sparklog.spark.lake.location import identity_of
from sparklog.spark.lake.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TableTarget(Target):
    """Which table, and how it is written. A kind of tables is a dataclass with these fields and its own."""

    name: str
    """A path or URI, which has a slash, or a table of the catalog. It is made if it is not there."""
    compression: str
    file_bytes: int
    """A file is complete when it has so much."""
    maintenance: Maintenance

    @property
    def identity(self) -> str:
        return identity_of(self.name)


class TableDestination(Destination[OutcomeT]):
    """The table."""

    def __init__(self, spark: SparkSession, table: DeltaTable, target: TableTarget) -> None:
        self._table = table
        self._name = target.identity
        self._maintenance = TableMaintenance(spark, table, target.maintenance, target.file_bytes)

    @property
    def place(self) -> str:
        return f"table {self._table.name}"

    @property
    def identity(self) -> str:
        return f"{self._name}, id {self._table.table_id}"

    def prepare(self) -> None:
        if not self._table.exists:
            self._create()
        self._maintenance.check()

    @abstractmethod
    def _create(self) -> None:
        """Make the table."""

    def tend(self, outcomes: Sequence[OutcomeT]) -> None:
        self._maintenance.after(file for each in outcomes for file in self._files_of(each))

    @abstractmethod
    def _files_of(self, outcome: OutcomeT) -> Iterable[WrittenFile]:
        """Those that a task wrote for the table."""


class TableIntake(TaskIntake[OutcomeT]):
    """One commit."""

    def __init__(self, commit: Commit, target: TableTarget) -> None:
        facts = commit.table
        self._commit = commit
        self._table_files = TableFiles(
            facts.location, facts.columns, facts.partition_by, target.compression, target.file_bytes
        )

    @property
    def progress(self) -> Mapping[Progress, int]:
        return self._commit.table.progress

    def settle(self) -> None:
        self._commit.settle()

    @property
    def epochs(self) -> Mapping[Progress, int]:
        return self._commit.table.epochs

    def note_epochs(self, epochs: Mapping[Progress, int]) -> None:
        self._commit.note_epochs(epochs)

    @property
    def is_empty(self) -> bool:
        return self._commit.is_empty

    def expect(self, partitions: Iterable[Progress]) -> None:
        self._commit.expect(partitions)

    def _remove(self, files: Iterable[WrittenFile]) -> None:
        """Remove files that no commit names."""
        remove_files(self._commit.table.location, list(files))
