"""Parquet files of a table, written by a task from ranges of a log.

Each file has the rows of one partition of the table, up to a size that is aimed at. A file is complete, and on the disk
where that is a local one, when it is told of. Its name is drawn anew by every attempt, so attempts disturb nobody.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from sparklog.errors import DataSourceError
from sparklog.spark.lake.ages import Timestamps
from sparklog.spark.lake.columns import PartitionValue, by_partition, source_columns
from sparklog.spark.lake.destination import WrittenFiles
from sparklog.spark.lake.statistics import FileStatistics, is_measured
from sparklog.spark.read.columns import read_ranges
from sparklog.spark.read.offsets import OffsetRange
from sparklog.spark.read.options import ReadOptions

ROW_GROUP_BYTES = 32 << 20
"""Rows that are held for one file before they are written, as Arrow has them in memory."""
_PENDING_BYTES = 128 << 20
"""Rows that a task holds, of all files together, before it writes the largest of them."""
_OPEN_FILES = 64
_COMPRESSIONS = ("snappy", "zstd", "lz4", "gzip", "none")
_NULL = "__HIVE_DEFAULT_PARTITION__"
"""In the name of a directory, as Spark has it."""
_NO_DICTIONARY = ("key", "value", "offset", "timestamp")
"""Columns that differ in most rows: a dictionary would cost more than it saves."""
_ENCODINGS = {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"}
_MOST_OF_A_NAME = 100
"""Characters of a value that are in the name of a directory."""


def check_compression(name: str) -> None:
    """Raises DataSourceError for a compression that files do not have."""
    if name not in _COMPRESSIONS:
        raise DataSourceError(
            "SPARKLOG_INVALID_OPTION", f"compression is one of {', '.join(_COMPRESSIONS)}, not {name!r}"
        )


@dataclass(frozen=True, slots=True)
class TableFiles:
    """Where and how the files of a table are written."""

    location: str
    """A Hadoop path: ``/a``, ``file:/a`` or ``scheme://host/a``, without escapes."""
    columns: tuple[str, ...]
    partition_by: tuple[str, ...]
    compression: str = "snappy"
    target_bytes: int = 256 << 20

    @property
    def stored(self) -> frozenset[str]:
        """The columns that are in the files: those of the partition are in their names."""
        return frozenset(self.columns) - frozenset(self.partition_by)


class WrittenFile(NamedTuple):
    """A file that waits for its commit."""

    path: str
    """From the table's location on."""
    partition_values: dict[str, str | None]
    nbytes: int
    modified_ms: int
    rows: int
    stats: str
    """JSON, as Delta's protocol has it."""

    def to_action(self) -> dict[str, Any]:
        """Delta's ``add``.

        The path is escaped as Hadoop does it, to the letter: ``VACUUM`` compares texts, and removes a file that the
        table names in another way. Hadoop leaves ``=`` as it is.
        """
        return {
            "path": quote(self.path, safe="/="),
            "partitionValues": self.partition_values,
            "size": self.nbytes,
            "modificationTime": self.modified_ms,
            "dataChange": True,
            "stats": self.stats,
        }


@dataclass(frozen=True, slots=True)
class WriteRanges:
    """Write the records of ``ranges`` into files of ``table``."""

    read: ReadOptions
    ranges: tuple[OffsetRange, ...]
    table: TableFiles

    def run(self) -> WrittenFiles[WrittenFile]:
        """Raises DataSourceError, ApiError for what cannot be read; OSError, ArrowException where the disk refuses."""
        writer, timestamps = TableWriter(self.table), Timestamps()
        try:
            for batch in read_ranges(self.read, source_columns(self.table.columns), self.ranges):
                timestamps.add(batch.column("timestamp"))
                writer.write(batch)
            return WrittenFiles(writer.finish(), timestamps)
        except BaseException:
            writer.discard()
            raise


@dataclass(slots=True)
class _Pending:
    batches: list[pa.RecordBatch] = field(default_factory=list)
    nbytes: int = 0


class TableWriter:
    """Divides rows among the files of the table's partitions."""

    def __init__(self, table: TableFiles) -> None:
        self._table = table
        self._stored = table.stored
        self._fs, self._root = opened(table.location)
        self._pending: dict[PartitionValue, _Pending] = {}
        self._open: dict[PartitionValue, _FileWriter] = {}
        self._written: list[WrittenFile] = []
        self._nbytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows of one partition of the log."""
        for value, rows in by_partition(batch, self._table.partition_by):
            self.write_to(value, rows)
        while self._nbytes > _PENDING_BYTES:
            self._flush(max(self._pending, key=lambda value: self._pending[value].nbytes))

    def write_to(self, value: PartitionValue, rows: pa.RecordBatch) -> None:
        """Write rows of one partition of the table. Those of a partition all have the same columns."""
        kept = [name for name in rows.schema.names if name in self._stored]
        pending = self._pending.setdefault(value, _Pending())
        pending.batches.append(rows.select(kept))
        pending.nbytes += rows.nbytes
        self._nbytes += rows.nbytes
        if pending.nbytes >= ROW_GROUP_BYTES:
            self._flush(value)

    def _flush(self, value: PartitionValue) -> None:
        """Write the rows of one file that wait, as a row group."""
        pending = self._pending.pop(value)
        self._nbytes -= pending.nbytes
        rows = pa.Table.from_batches(pending.batches)
        file = self._open.pop(value, None) or self._begin(value, rows.schema)
        self._open[value] = file  # the last of all: it was written last
        file.write(rows)
        if file.size >= self._table.target_bytes:
            self._complete(value)
        if len(self._open) > _OPEN_FILES:
            self._complete(next(iter(self._open)))

    def _begin(self, value: PartitionValue, schema: pa.Schema) -> _FileWriter:
        values = dict(zip(self._table.partition_by, value, strict=True))
        return _FileWriter(self._fs, self._root, values, schema, self._table.compression)

    def _complete(self, value: PartitionValue) -> None:
        self._written.append(self._open[value].finish())
        del self._open[value]

    def finish(self) -> list[WrittenFile]:
        for value in list(self._pending):
            self._flush(value)
        for value in list(self._open):
            self._complete(value)
        return self._written

    def discard(self) -> None:
        """Remove what was written, as far as that can be done."""
        for file in self._open.values():
            file.discard()
        remove_files(self._table.location, self._written)


def open_parquet(sink: Any, schema: pa.Schema, compression: str) -> pq.ParquetWriter:
    """A writer of Parquet with columns of a log, into a file object or a stream of Arrow's."""
    return pq.ParquetWriter(
        sink,
        schema,
        compression=compression,
        use_dictionary=[each.name for each in schema if _has_dictionary(each)] or False,
        column_encoding={name: each for name, each in _ENCODINGS.items() if name in schema.names} or None,
        write_statistics=[each.name for each in schema if is_measured(each.type)] or False,
    )


class _FileWriter:
    """One file."""

    def __init__(
        self, filesystem: fs.FileSystem, root: str, values: dict[str, str | None], schema: pa.Schema, compression: str
    ) -> None:
        self._fs = filesystem
        self._root = root
        self._values = values
        directory = "".join(f"{_directory(name)}={_directory(value)}/" for name, value in values.items())
        self._path = f"{directory}part-{uuid4()}.{compression}.parquet"
        self._full = f"{root.rstrip('/')}/{self._path}"
        self._stats = FileStatistics()
        filesystem.create_dir(f"{root.rstrip('/')}/{directory}", recursive=True)
        self._sink = filesystem.open_output_stream(self._full, compression=None)
        self._parquet = open_parquet(self._sink, schema, compression)

    @property
    def size(self) -> int:
        """Bytes written."""
        return int(self._sink.tell())

    def write(self, rows: pa.Table) -> None:
        self._parquet.write_table(rows, row_group_size=max(rows.num_rows, 1))
        self._stats.add(rows)

    def finish(self) -> WrittenFile:
        self._parquet.close()
        size = self.size
        self._sink.close()
        if isinstance(self._fs, fs.LocalFileSystem):
            sync_local(self._root, self._path)
        modified = int(datetime.now(UTC).timestamp() * 1000)
        return WrittenFile(self._path, self._values, size, modified, self._stats.rows, self._stats.to_json())

    def discard(self) -> None:
        for act in (self._parquet.close, self._sink.close, lambda: self._fs.delete_file(self._full)):
            with suppress(OSError, pa.ArrowException):  # what no commit names is nothing; VACUUM removes it
                act()


def _has_dictionary(field: pa.Field) -> bool:
    return field.name not in _NO_DICTIONARY and not pa.types.is_nested(field.type)


def _directory(value: str | None) -> str:
    """A name or a value of the partition in the name of a directory, where nobody reads it back: the commit has it.

    It is of ASCII letters, digits, ``_.-~%`` and blanks, whose escapes are the same in all of Delta's writers.
    """
    return _NULL if value is None else quote(value[:_MOST_OF_A_NAME], safe=" ")[:_MOST_OF_A_NAME]


def opened(location: str) -> tuple[fs.FileSystem, str]:
    """The file system of a Hadoop path, and what the place is called there.

    A local path is none of a URI: it may have spaces, and ``%20`` in it is ``%20``.
    """
    if location.startswith("file:"):
        return fs.LocalFileSystem(), "/" + location.removeprefix("file:").lstrip("/")
    if "://" not in location:
        return fs.LocalFileSystem(), location
    filesystem, root = fs.FileSystem.from_uri(quote(location, safe=":/@+=&,;!$'()*~"))
    return filesystem, root


def sync_local(root: str, path: str) -> None:
    """Put a local file on the disk, and the names that lead to it from ``root`` on. Raises OSError."""
    for each in (Path(path), *Path(path).parents):
        fd = os.open(Path(root, each), os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def remove_files(location: str, files: list[WrittenFile]) -> None:
    """Remove files that no commit names, as far as that can be done."""
    filesystem, root = opened(location)
    for each in files:
        with suppress(OSError):  # VACUUM removes it
            filesystem.delete_file(f"{root.rstrip('/')}/{each.path}")
