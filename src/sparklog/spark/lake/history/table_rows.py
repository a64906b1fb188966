"""Reads the rows of one partition of a log from the files of a table, in the order of their offsets.

A table promises no order: days and hours interleave offsets, ``OPTIMIZE`` mixes the partitions of a log in a file. So
the pieces of files (row groups) whose offsets overlap are read together and sorted, others one after the other.
Together they have ``SORTED_BYTES`` at most, or else are read in several goes, each of which keeps a stretch of offsets.
An offset that comes twice is an error, whoever wrote it.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sparklog.client.cluster.offsets import OffsetAndTimestamp
from sparklog.errors import DataSourceError
from sparklog.spark.lake.files import opened
from sparklog.spark.lake.history.snapshot import Snapshot, TableFile
from sparklog.spark.read.columns import BATCH_BYTES, Constants, pieces
from sparklog.spark.read.offsets import OffsetRange
from sparklog.structs import TopicPartition

SORTED_BYTES = 128 << 20
"""Bytes of rows, before compression, that are read together to be sorted."""
_OPEN_FILES = 32
_OFFSET = pa.field("offset", pa.int64())
_OFFSETS = pa.schema([_OFFSET])
_TIMES = pa.schema([_OFFSET, pa.field("timestamp", pa.timestamp("us", "UTC"))])
_MARKS = ("offset", "partition", "topic")


class Rows(NamedTuple):
    """Rows in the order of offsets, and the offset after the last of them."""

    next_offset: int
    batch: pa.RecordBatch


class _Piece(NamedTuple):
    """A row group: where it is, and between which offsets its rows are that are wanted. Bounds are inclusive."""

    file: TableFile
    number: int
    first_row: int
    low: int
    high: int
    nbytes: int
    is_pure: bool
    """Whether all rows are of the one partition of the log, and none is deleted."""


class _Interval(Protocol):
    @property
    def low(self) -> int: ...

    @property
    def high(self) -> int: ...


IntervalT = TypeVar("IntervalT", bound=_Interval)


class TableRows:
    """Reads from one snapshot. Close it."""

    def __init__(self, snapshot: Snapshot, schema: StructType) -> None:
        self._snapshot = snapshot
        self._schema = to_arrow_schema(schema, timezone="UTC")
        stored = [field for field in self._schema if field.name not in ("topic", "partition", "offset")]
        self._stored = pa.schema([_OFFSET, *stored])
        self._files = _ParquetFiles(snapshot)

    def close(self) -> None:
        self._files.close()

    def batches(self, wanted: OffsetRange) -> Iterator[Rows]:
        """The rows of the range, in Arrow batches of 2 to 4 MB where there is so much.

        Raises FileNotFoundError where a file has gone, DataSourceError for an offset that comes twice.
        """
        waiting: list[pa.Table] = []
        nbytes = 0
        for table in self._checked(wanted):
            waiting.append(table)
            nbytes += table.nbytes
            if nbytes >= BATCH_BYTES:
                yield from self._batches(wanted, waiting)
                waiting, nbytes = [], 0
        if waiting:
            yield from self._batches(wanted, waiting)

    def _batches(self, wanted: OffsetRange, tables: list[pa.Table]) -> Iterator[Rows]:
        table = pa.concat_tables(tables)
        most = max(table.num_rows * BATCH_BYTES // max(table.nbytes, 1), 1)
        constants = Constants(wanted, self._schema.names)
        for batch in table.combine_chunks().to_batches(max_chunksize=most):
            yield from self._shown(batch, constants)

    def _shown(self, batch: pa.RecordBatch, constants: Constants) -> Iterator[Rows]:
        arrays = [
            constants.column(name, batch.num_rows) if name in constants.names else batch.column(name)
            for name in self._schema.names
        ]
        offsets, row = batch.column("offset"), 0
        for piece in pieces(pa.RecordBatch.from_arrays(arrays, schema=self._schema)):
            row += piece.num_rows
            yield Rows(offsets[row - 1].as_py() + 1, piece)

    def _checked(self, wanted: OffsetRange) -> Iterator[pa.Table]:
        last = -1
        for table in self._in_order(wanted):
            offsets = _numbers(table.column("offset"))
            if offsets[0] <= last or not (np.diff(offsets) > 0).all():
                raise self._doubled(wanted.tp, last, offsets)
            last = int(offsets[-1])
            yield table

    def _doubled(self, tp: TopicPartition, last: int, offsets: np.ndarray) -> DataSourceError:
        before = np.concatenate([[last], offsets[:-1]])
        offset = int(offsets[np.argmax(offsets <= before)])
        return DataSourceError(
            "SPARKLOG_UNSUITABLE_TABLE",
            f"table {self._snapshot.name} has offset {offset} of partition {tp} twice: an offload went on in a log that"
            " was cut off, or somebody wrote rows to the table; delete the rows that do not belong there",
        )

    def _in_order(self, wanted: OffsetRange) -> Iterator[pa.Table]:
        for files in overlapping(self._snapshot.files_of(wanted)):
            found = [piece for file in files for piece in self._files.pieces(file, wanted)]
            for together in overlapping(found):
                for stretch in _stretches(wanted, together):
                    yield from self._sorted(stretch, together)

    def _sorted(self, wanted: OffsetRange, together: Sequence[_Piece]) -> Iterator[pa.Table]:
        tables = [
            table
            for piece in together
            if piece.low < wanted.end and piece.high >= wanted.start
            for table in self._files.rows(piece, wanted, self._stored)
        ]
        if not tables:
            return
        table = pa.concat_tables(tables)
        offsets = _numbers(table.column("offset"))
        if (np.diff(offsets) < 0).any():
            table = table.combine_chunks().take(pa.array(np.argsort(offsets, kind="stable")))
        yield table

    # Where a partition begins, and where a time is

    def first(self, wanted: OffsetRange, at_ms: int | None = None) -> OffsetAndTimestamp | None:
        """The row of the least offset in the range; of those at or after a timestamp (ms), where one is given."""
        best: OffsetAndTimestamp | None = None
        for file in self._snapshot.files_of(wanted):
            if best is not None and file.low > best.offset:
                break
            if at_ms is not None and file.last_ms < at_ms:
                continue
            for piece in self._files.pieces(file, wanted):
                found = self._first_of(piece, wanted, at_ms)
                best = found if best is None or (found is not None and found.offset < best.offset) else best
        return best

    def _first_of(self, piece: _Piece, wanted: OffsetRange, at_ms: int | None) -> OffsetAndTimestamp | None:
        if at_ms is None and piece.is_pure and piece.low > wanted.start:
            return OffsetAndTimestamp(piece.low, -1)
        for table in self._files.rows(piece, wanted, _OFFSETS if at_ms is None else _TIMES):
            offsets = _numbers(table.column("offset"))
            if at_ms is None:
                return OffsetAndTimestamp(int(offsets.min()), -1)
            micros = _numbers(table.column("timestamp").cast(pa.int64()))
            late = np.flatnonzero(micros >= at_ms * 1000)
            if len(late):
                row = late[np.argmin(offsets[late])]
                return OffsetAndTimestamp(int(offsets[row]), int(micros[row]) // 1000)
        return None


class _ParquetFiles:
    """The files of a snapshot, a few of them open at a time."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._filesystem, self._root = opened(snapshot.location)
        self._open: OrderedDict[str, pq.ParquetFile] = OrderedDict()

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close(force=True)

    def _file(self, path: str) -> pq.ParquetFile:
        """Raises FileNotFoundError."""
        if path not in self._open:
            while len(self._open) >= _OPEN_FILES:
                self._open.popitem(last=False)[1].close(force=True)
            with self._named(path):
                source = self._filesystem.open_input_file(f"{self._root.rstrip('/')}/{path}")
                self._open[path] = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
        self._open.move_to_end(path)
        return self._open[path]

    def pieces(self, file: TableFile, wanted: OffsetRange) -> Iterator[_Piece]:
        """The row groups of a file that may have rows of the range."""
        metadata, first_row = self._file(file.path).metadata, 0
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            bounds = _bounds(group)
            low, high = bounds.get("offset", (file.low, file.high))
            partition = bounds.get("partition", file.partitions)
            low, high = max(low, wanted.start), min(high, wanted.end - 1)
            if low <= high and partition[0] <= wanted.tp.partition <= partition[1]:
                is_pure = file.kept is None and _is_of(wanted.tp, file, bounds)
                yield _Piece(file, number, first_row, low, high, group.total_byte_size, is_pure)
            first_row += group.num_rows

    def rows(self, piece: _Piece, wanted: OffsetRange, schema: pa.Schema) -> Iterator[pa.Table]:
        """The rows of a row group that are in the range, as ``schema`` has them; nothing where there are none.

        A column by which the table is partitioned has the value of the file; one that was added to the table after the
        file was written is null.
        """
        parquet = self._file(piece.file.path)
        there = set(parquet.schema_arrow.names)
        marks = self._columns(
            parquet, piece, _MARKS[:1] if piece.is_pure else [each for each in _MARKS if each in there]
        )
        chosen = _chosen(marks, piece, wanted)
        if not chosen.any():
            return
        others = [each for each in schema.names if each in there and each != "offset"]
        found = self._columns(parquet, piece, others) if others else marks.select([])
        constants = dict(piece.file.constants)
        arrays = [
            marks.column("offset")
            if field.name == "offset"
            else _as(found.column(field.name), field.type)
            if field.name in there
            else pa.repeat(pa.scalar(constants.get(field.name), field.type), len(chosen))
            for field in schema
        ]
        yield _picked(pa.Table.from_arrays(arrays, schema=schema), chosen)

    def _columns(self, parquet: pq.ParquetFile, piece: _Piece, names: Sequence[str]) -> pa.Table:
        with self._named(piece.file.path):
            return parquet.read_row_group(piece.number, columns=list(names), use_threads=False)

    @contextmanager
    def _named(self, path: str) -> Iterator[None]:
        """Say which file cannot be read. One that is not there is FileNotFoundError, as it may be in another by now."""
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise DataSourceError("SPARKLOG_HISTORY_UNREADABLE", f"file {self._root}/{path}: {error}") from error


def overlapping(intervals: Iterable[IntervalT]) -> Iterator[list[IntervalT]]:
    """The intervals that have something in common, together, by their least number."""
    group: list[IntervalT] = []
    high = 0
    for each in sorted(intervals, key=lambda each: each.low):
        if group and each.low > high:
            yield group
            group = []
        high = max(high, each.high) if group else each.high
        group.append(each)
    if group:
        yield group


def _stretches(wanted: OffsetRange, together: Sequence[_Piece]) -> Iterator[OffsetRange]:
    """The offsets of these pieces, cut so that the rows of a stretch have few enough bytes by estimate."""
    low, high = min(each.low for each in together), max(each.high for each in together) + 1
    count = math.ceil(sum(each.nbytes for each in together) / SORTED_BYTES) if len(together) > 1 else 1
    count = max(min(count, high - low), 1)
    bounds = [low + (high - low) * index // count for index in range(count + 1)]
    for start, end in pairwise(bounds):
        yield wanted._replace(start=start, end=end)


def _chosen(marks: pa.Table, piece: _Piece, wanted: OffsetRange) -> np.ndarray:
    """Which rows are wanted, as booleans."""
    offsets = _numbers(marks.column("offset"))
    chosen: np.ndarray = (offsets >= wanted.start) & (offsets < wanted.end)
    if piece.is_pure:
        return chosen
    if "partition" in marks.column_names:
        chosen &= _numbers(marks.column("partition")) == wanted.tp.partition
    if "topic" in marks.column_names:
        topics = _as(marks.column("topic"), pa.string())
        chosen &= _numbers(pc.equal(topics, wanted.tp.topic).fill_null(False))
    if piece.file.kept is not None:
        chosen &= _kept(piece.file.kept, piece.first_row, len(chosen))
    return chosen


def _kept(bits: bytes, first_row: int, count: int) -> np.ndarray:
    """Which of these rows are not deleted. Rows that the vector does not reach are not."""
    start, end = first_row // 8, -(-(first_row + count) // 8)
    found = np.unpackbits(np.frombuffer(bits[start:end], np.uint8)).astype(bool)[first_row - start * 8 :][:count]
    return np.concatenate([found, np.ones(count - len(found), bool)])


def _picked(table: pa.Table, chosen: np.ndarray) -> pa.Table:
    """The rows that are chosen; a slice where they follow one another."""
    count, first = int(np.count_nonzero(chosen)), int(np.argmax(chosen))
    if chosen[first : first + count].all():
        return table.slice(first, count)
    return table.filter(pa.array(chosen))


def _bounds(group: pq.RowGroupMetaData) -> dict[str, tuple[int, int]]:
    """The least and the greatest value of the columns that say which record a row is, where the file tells."""
    found = {}
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema in _MARKS:
            statistics = column.statistics
            if statistics is not None and statistics.has_min_max:
                found[column.path_in_schema] = (statistics.min, statistics.max)
    return found


def _is_of(tp: TopicPartition, file: TableFile, bounds: Mapping[str, tuple[object, object]]) -> bool:
    partitions, topics = bounds.get("partition", file.partitions), bounds.get("topic", file.topics)
    return partitions == (tp.partition, tp.partition) and topics == (tp.topic, tp.topic) and "offset" in bounds


def _as(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """The column as ``kind``: other writers have times without a zone, views of texts, other names in lists."""
    if column.type == kind:
        return column
    if pa.types.is_timestamp(kind) and column.type.tz is None:
        return column.cast(pa.timestamp("us")).cast(pa.int64()).cast(kind)
    return column.cast(kind)


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    found: np.ndarray = column.to_numpy()
    return found
