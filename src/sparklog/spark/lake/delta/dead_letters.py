"""The table of dead letters: raw records that do not decode, and why.

It has offsets of its own: below them, each record is settled, as a dead letter or as a row of the other table
(``docs/adr/0031-decoded-tables.md``, invariants 4 to 8).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructType

from sparklog.spark.lake.columns import TableColumns
from sparklog.spark.lake.decoding import REASON, Decoding, Settled
from sparklog.spark.lake.delta.maintenance import Maintenance, TableMaintenance
from sparklog.spark.lake.delta.table import Commit, DeltaTable
from sparklog.spark.lake.destination import refuse
from sparklog.spark.lake.files import TableFiles, WrittenFile, remove_files
from sparklog.spark.lake.progress import Progress
from sparklog.spark.read.offsets import OffsetRange
from sparklog.structs import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
_OWNER = "sparklog.deadLetters.of"
"""The property that has the id of the table whose dead letters these are."""
_COLUMNS = TableColumns(values=StructType().add(REASON, StringType()))


class DeadLetters:
    """A table of dead letters. It belongs to one thread."""

    def __init__(
        self, spark: SparkSession, name: str, compression: str, file_bytes: int, maintenance: Maintenance
    ) -> None:
        self.table = DeltaTable(spark, name, _COLUMNS)
        self._maintenance = TableMaintenance(spark, self.table, maintenance, file_bytes)
        self._compression = compression
        self._file_bytes = file_bytes

    def prepare(self, owner_id: str) -> None:
        """Make the table unless it is there, for the table of this id.

        Raises DataSourceError where it is something else, or belongs to another one.
        """
        if not self.table.exists:
            self.table.create((), {_OWNER: owner_id})
        found = self.table.properties.get(_OWNER)
        if found != owner_id:
            whose = "is not a table of dead letters" if found is None else f"has the dead letters of table {found}"
            refuse(f"table {self.table.name}", f"it {whose}, not of table {owner_id}. Name another one")
        self._maintenance.check()

    def tend(self, written: Iterable[WrittenFile]) -> None:
        self._maintenance.after(written)

    def begin(self) -> DeadLetterCommit:
        """To be called before the commit on the other table begins."""
        return DeadLetterCommit(self.table, self.table.begin(), self._compression, self._file_bytes)


class DeadLetterCommit:
    """A commit of dead letters that has begun."""

    def __init__(self, table: DeltaTable, commit: Commit, compression: str, file_bytes: int) -> None:
        self._table = table
        self._commit = commit
        facts = commit.table
        self.files = TableFiles(facts.location, facts.columns, facts.partition_by, compression, file_bytes)
        self._is_committed = False

    @property
    def name(self) -> str:
        """Of the table."""
        return self._table.name

    def settle(self) -> None:
        """As an intake does."""
        self._commit.settle()

    def expect(self, partitions: Iterable[Progress]) -> None:
        self._commit.expect(partitions)

    def settled(
        self, partitions: Iterable[Progress], progress: Mapping[Progress, int]
    ) -> dict[TopicPartition, Settled]:
        """What was settled beyond ``progress``, that of the other table, by a job that died, or is about to go on."""
        upto = {each: self._commit.table.progress.get(each, 0) for each in partitions}
        ahead = {each: offset for each, offset in upto.items() if offset > progress.get(each, 0)}
        return {
            each.tp: Settled(offset, self._offsets(each.tp, progress.get(each, 0), offset))
            for each, offset in ahead.items()
        }

    def _offsets(self, tp: TopicPartition, start: int, end: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        is_meant = (f.col("topic") == tp.topic) & (f.col("partition") == tp.partition)
        is_between = (f.col("offset") >= start) & (f.col("offset") < end)
        rows = self._table.rows_of(self._commit.table.version, is_meant & is_between).select("offset").toArrow()
        return np.unique(rows.column("offset").to_numpy().astype(np.int64))

    def finish(
        self, files: Iterable[WrittenFile], offsets: Mapping[Progress, int], back: Iterable[TopicPartition]
    ) -> None:
        """Commit the dead letters, and that all below ``offsets`` is settled. Raises as ``Commit.finish`` does.

        ``back`` are those whose log was cut off: their offsets go back.
        """
        goes_back = set(back)
        known = self._commit.table.progress
        upto = {
            each: offset if each.tp in goes_back else max(offset, known.get(each, 0))
            for each, offset in offsets.items()
        }
        self._commit.finish(files, upto)
        self._is_committed = True

    def discard(self, files: Iterable[WrittenFile]) -> None:
        """Remove files, unless they are committed."""
        if not self._is_committed:
            remove_files(self.files.location, list(files))


class Settling:
    """The decoding of one commit of a table, and the commit of dead letters before it, if there is a place for them."""

    def __init__(
        self, dead_letters: DeadLetterCommit | None, decoding: Decoding, known: Mapping[Progress, int]
    ) -> None:
        """``known`` is how far the table has come."""
        self._dead_letters = dead_letters
        self._decoding = decoding
        self._known = known
        self._ends = {each.tp: offset for each, offset in known.items()}
        self._back: set[TopicPartition] = set()
        """Those whose log was cut off, and that go on before where the table has come."""

    @property
    def files(self) -> TableFiles | None:
        """Where dead letters are written."""
        return None if self._dead_letters is None else self._dead_letters.files

    def settle(self) -> None:
        """As an intake does."""
        if self._dead_letters is not None:
            self._dead_letters.settle()

    def expect(self, partitions: Sequence[Progress]) -> None:
        """As an intake does."""
        if self._dead_letters is not None:
            self._dead_letters.expect(partitions)
            settled = self._dead_letters.settled(partitions, self._known)
            self._decoding = replace(self._decoding, settled=settled)

    def decoding(self, ranges: Iterable[OffsetRange]) -> Decoding:
        """Of a task that has these ranges."""
        self._back |= {each.tp for each in ranges if each.start < self._ends.get(each.tp, 0)}
        settled = {tp: each for tp, each in self._decoding.settled.items() if tp not in self._back}
        return replace(self._decoding, settled=settled)

    def finish(self, files: Sequence[WrittenFile], offsets: Mapping[Progress, int]) -> None:
        """Commit the dead letters. Raises as ``DeadLetterCommit.finish`` does."""
        if self._dead_letters is not None:
            back = self._back | {each.tp for each, offset in offsets.items() if offset < self._known.get(each, 0)}
            self._dead_letters.finish(files, offsets, back)
        letters = sum(each.rows for each in files)
        if letters:
            _log.warning("%d records did not decode, and are in table %s", letters, self._name)

    @property
    def _name(self) -> str:
        return "" if self._dead_letters is None else self._dead_letters.name

    def discard(self, files: Iterable[WrittenFile]) -> None:
        """Remove files of dead letters, unless they are committed."""
        if self._dead_letters is not None:
            self._dead_letters.discard(files)
