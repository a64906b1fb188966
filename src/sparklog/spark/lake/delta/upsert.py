"""Upserting ranges of a log into the files of a table that has the last value of each key: the work of a task.

A task has whole partitions of the log, and with each the files of the table that have its keys: nobody else has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sparklog.errors import DataSourceError
from sparklog.spark.lake.ages import Timestamps
from sparklog.spark.lake.columns import PartitionValue, source_columns
from sparklog.spark.lake.decoding import Decoding
from sparklog.spark.lake.delta.latest_rows import LatestRows
from sparklog.spark.lake.delta.merging import PartitionMerge
from sparklog.spark.lake.delta.stored_files import StoredFile
from sparklog.spark.lake.files import TableFiles, TableWriter, WrittenFile
from sparklog.spark.read.columns import read_ranges
from sparklog.spark.read.offsets import OffsetRange
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.schema import READ_COLUMNS
from sparklog.structs import TopicPartition

_NEEDED = ("key", "value", "topic", "partition", "offset")
"""Columns that are read whether the table has them or not."""


class Share(NamedTuple):
    """A range of a log, and the files that have the keys of its partition."""

    range: OffsetRange
    files: tuple[StoredFile, ...]


class Upserted(NamedTuple):
    """What a task did."""

    added: list[WrittenFile]
    removed: list[str]
    """Files of the table that these replace, by their paths."""
    rows: int
    """Records that were read, and have keys."""
    keyless: int
    """Records that were left out, for they have no key."""
    timestamps: Timestamps
    dead_letters: list[WrittenFile]
    """Files for another table, of records that do not decode."""

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in [*self.added, *self.dead_letters])

    @property
    def file_count(self) -> int:
        return len(self.added) + len(self.dead_letters)


@dataclass(frozen=True, slots=True)
class Decoded:
    """How the values of an upsert are decoded, and where those records go that do not decode."""

    decoding: Decoding
    dead_letters: TableFiles | None


@dataclass(frozen=True, slots=True)
class UpsertRanges:
    """Apply the records of ``shares`` to ``table``."""

    read: ReadOptions
    shares: tuple[Share, ...]
    table: TableFiles
    stored: StructType
    """The columns that are in the files of the table."""
    skips_keyless: bool
    """Leave out records without a key; else they are an error."""
    key_bytes: int
    """Rows of the latest record of each key that are held, of one partition, before they are applied."""
    decoded: Decoded | None = None
    """None where the table has the values as they are."""

    def run(self) -> Upserted:
        """Raises DataSourceError, ApiError for what cannot be read; OSError, ArrowException where the disk refuses."""
        return _Work(self).run()


class _Work:
    def __init__(self, task: UpsertRanges) -> None:
        self._task = task
        self._merges: list[PartitionMerge] = []
        self._rows = self._keyless = 0
        self._timestamps = Timestamps()
        self._schema = to_arrow_schema(task.stored, timezone="UTC")
        dead_letters = None if task.decoded is None else task.decoded.dead_letters
        self._dead = None if dead_letters is None else TableWriter(dead_letters)

    def run(self) -> Upserted:
        columns = source_columns(READ_COLUMNS if self._task.decoded else {*self._task.table.columns, *_NEEDED})
        batches = read_ranges(self._task.read, columns, [each.range for each in self._task.shares])
        shares = {each.range.tp: each for each in self._task.shares}
        try:
            for tp, rows in groupby(batches, _partition_of):
                self._apply(shares[tp], rows)
            dead_letters = [] if self._dead is None else self._dead.finish()
        except BaseException:
            for merge in self._merges:
                merge.discard()
            if self._dead is not None:
                self._dead.discard()
            raise
        return Upserted(
            [file for merge in self._merges for file in merge.written],
            [path for merge in self._merges for path in merge.removed],
            self._rows,
            self._keyless,
            self._timestamps,
            dead_letters,
        )

    def _apply(self, share: Share, batches: Iterator[pa.RecordBatch]) -> None:
        merge, latest = self._merge(share), LatestRows(self._task.key_bytes)
        self._merges.append(merge)
        for batch in batches:
            self._timestamps.add(batch.column("timestamp"))
            latest.add(self._decoded(self._with_keys(batch)))
            if latest.is_full:
                _apply(latest, merge)
        _apply(latest, merge)

    def _merge(self, share: Share) -> PartitionMerge:
        table, tp = self._task.table, share.range.tp
        known_end = share.range.start if self._task.read.fail_on_data_loss else None
        return PartitionMerge(table, self._schema, share.files, partition_value(table.partition_by, tp), known_end)

    def _with_keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        keys = batch.column("key")
        if keys.null_count:
            if not self._task.skips_keyless:
                _refuse_keyless(batch)
            self._keyless += keys.null_count
            batch = batch.filter(pc.is_valid(keys))
        self._rows += batch.num_rows
        return batch

    def _decoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that take part, with the columns of the table; the dead letters are written."""
        if self._task.decoded is None:
            return batch
        found = self._task.decoded.decoding.rows(batch)
        if found.dead is not None and self._dead is not None:
            self._dead.write(found.dead)
        return self._conformed(found.decoded)

    def _conformed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """With the types of the table, whose structs may have their fields in another order, and ``value``.

        Where the table has no values only null ones are told from others: that is what a tombstone is known by.
        """
        columns = {field.name: rows.column(field.name).cast(field.type) for field in self._schema}
        if "value" not in columns:
            is_there = rows.column("value").is_valid()
            columns["value"] = pc.if_else(is_there, is_there, pa.scalar(None, pa.bool_()))
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _apply(latest: LatestRows, merge: PartitionMerge) -> None:
    rows = latest.take()
    if rows is not None:
        merge.apply(rows)


def partition_value(partition_by: tuple[str, ...], tp: TopicPartition) -> PartitionValue:
    """The partition of the table that has the keys of a partition of the log."""
    values = {"topic": tp.topic, "partition": str(tp.partition)}
    return tuple(values[name] for name in partition_by)


def _partition_of(batch: pa.RecordBatch) -> TopicPartition:
    return TopicPartition(batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py())


def _refuse_keyless(batch: pa.RecordBatch) -> None:
    offset = batch.filter(pc.is_null(batch.column("key"))).column("offset")[0].as_py()
    raise DataSourceError(
        "SPARKLOG_RECORD_WITHOUT_KEY",
        f"the record of partition {_partition_of(batch)} at offset {offset} has no key, so no row can be its: upsert a"
        " topic whose records have keys, or have such records left out"
        " (--skip-keyless)",
    )
