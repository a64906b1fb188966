"""Stretches of a source that a task reads by itself, so that no row passes the JVM: row groups of Parquet files, and
the segment files of a partition, of whatever format.

The rows of a stretch keep their order within each partition that they go to; stretches follow one another in theirs.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparklog.errors import CorruptRecord, DataSourceError, LogError
from sparklog.log.files import LOG_SUFFIX, find_base_offset, is_dir_aside, parse_partition_dir
from sparklog.log.stopped import log_starts, segment_files
from sparklog.record.batch import RecordBatch
from sparklog.record.columnar import HEADERS_TYPE, ColumnarDecoder
from sparklog.record.control import ControlType, read_marker
from sparklog.record.legacy.columns import LegacyColumnarDecoder
from sparklog.record.legacy.message import LegacyMessage
from sparklog.record.legacy.segment import iter_entries
from sparklog.record.visibility import Visibility
from sparklog.structs import IsolationLevel

if TYPE_CHECKING:
    from sparklog.spark.batch.sources import Source

_COLUMNS = ("key", "value", "headers", "timestamp")
_STRETCH_BYTES = 512 << 20
_PIECE_BYTES = 32 << 20
_FIRST_FORMAT_SUFFIX = ".kafka"
_PLAIN = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)


class Stretch(Protocol):
    """What one task reads. It is sent to the workers."""

    @property
    def path(self) -> str:
        """Of the file, or of the directory, for people to read."""

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Key, value, headers, timestamp in ms, and the partition (int32), null where the key decides."""


@dataclass(frozen=True)
class ParquetStretch:
    """Row groups of one file."""

    path: str
    groups: tuple[int, ...]
    source: Source

    def rows(self) -> Iterator[pa.RecordBatch]:
        source = self.source
        named = {source.key, source.value, source.headers, source.timestamp, source.partition} - {None}
        # INT96 holds all of Spark's times; as nanoseconds, which are what Arrow takes, those after 2262 wrap around
        file = pq.ParquetFile(self.path, coerce_int96_timestamp_unit="us")
        for group in self.groups:
            for found in file.read_row_group(group, columns=sorted(map(str, named))).to_batches():
                yield _as_records(found, source)


def _as_records(found: pa.RecordBatch, source: Source) -> pa.RecordBatch:
    count = found.num_rows
    times = _column(found, source.timestamp, pa.int64())
    if pa.types.is_timestamp(times.type):
        whole = pc.floor_temporal(times, unit="millisecond")  # as Spark has it, before 1970 too
        times = whole.cast(pa.timestamp("ms", times.type.tz)).cast(pa.int64())
    headers = _column(found, source.headers, HEADERS_TYPE)
    partition = _column(found, source.partition, pa.int32()).cast(pa.int32())
    if source.partition is not None and partition.null_count:
        raise OSError(f"a row names no partition: column {source.partition!r} is null")
    return _records(
        _column(found, source.key, pa.binary()),
        _column(found, source.value, pa.binary()),
        headers,
        times.cast(pa.int64()) if source.timestamp else pa.nulls(count, pa.int64()),
        partition,
    )


def _column(found: pa.RecordBatch, name: str | None, kind: pa.DataType) -> pa.Array:
    return pa.nulls(found.num_rows, kind) if name is None else found.column(name)


def _records(*columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns), names=[*_COLUMNS, "partition"])


def parquet_stretches(files: Sequence[str], source: Source) -> list[Stretch] | None:
    """Those of local files, in the order of their names; None where Spark has to read them: they are elsewhere, or lack
    a column, or a column is to be converted in Spark's way.
    """
    stretches: list[Stretch] = []
    for name in sorted(files):
        parts = urlsplit(name)
        path = Path(unquote(parts.path))
        if parts.scheme not in ("", "file") or not path.is_file():
            return None
        file = pq.ParquetFile(path)
        if not _is_plain(file, source):
            return None
        stretches += (ParquetStretch(str(path), groups, source) for groups in _groups_of(file.metadata))
    return stretches


def _is_plain(file: pq.ParquetFile, source: Source) -> bool:
    schema = file.schema_arrow
    names = set(schema.names)
    if not {*source.special, source.value} <= names:
        return False
    texts = (schema.field(each).type for each in (source.key, source.value) if each is not None)
    is_time_plain = source.timestamp is None or _is_moment(file, schema.field(source.timestamp))
    return is_time_plain and all(any(check(kind) for check in _PLAIN) for kind in texts)


def _is_moment(file: pq.ParquetFile, column: pa.Field) -> bool:
    """Whether a column says the same time whatever the session's time zone is. One without a zone does not, but for
    Parquet's INT96, which Spark takes for UTC's."""
    if not pa.types.is_timestamp(column.type):
        return bool(pa.types.is_integer(column.type))
    if column.type.tz is not None:
        return True
    stored = (file.schema.column(number) for number in range(len(file.schema)))
    return any(each.path == column.name and each.physical_type == "INT96" for each in stored)


def _groups_of(metadata: pq.FileMetaData) -> Iterator[tuple[int, ...]]:
    """Row groups, as many together as are worth a task."""
    chosen: list[int] = []
    size = 0
    for number in range(metadata.num_row_groups):
        chosen.append(number)
        size += metadata.row_group(number).total_byte_size
        if size >= _STRETCH_BYTES:
            yield tuple(chosen)
            chosen, size = [], 0
    if chosen:
        yield tuple(chosen)


@dataclass(frozen=True)
class SegmentStretch:
    """The segment files of one partition, the oldest first: what a reader of committed records is shown of them."""

    paths: tuple[str, ...]
    partition: int | None
    start: int = 0
    """Where the log begins: what the files have before was deleted."""

    @property
    def path(self) -> str:
        return str(Path(self.paths[0]).parent)

    def rows(self) -> Iterator[pa.RecordBatch]:
        visibility = Visibility(_hidden(self.paths), IsolationLevel.READ_COMMITTED)
        for path in self.paths:
            with _in_file(path):
                for columns in _decoded(path, visibility, self.start):
                    count = len(columns["value"])
                    number = pa.scalar(self.partition, pa.int32())
                    yield _records(*(columns[name] for name in _COLUMNS), pa.repeat(number, count))


@contextmanager
def _in_file(path: str) -> Iterator[None]:
    """What is damaged is said with the name of the segment file."""
    try:
        yield
    except CorruptRecord as error:
        raise CorruptRecord(f"{Path(path).name}: {error}") from error


def _entries(path: str) -> Iterator[LegacyMessage | RecordBatch]:
    with open(path, "rb") as file:
        if not file.seek(0, 2):
            return
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    yield from iter_entries(view, base_offset=find_base_offset(Path(path)) or 0)


def _hidden(paths: Sequence[str]) -> list[tuple[int, int]]:
    """(producer id, first offset) of the transactions that were aborted, or never ended."""
    hidden, begun = [], dict[int, int]()
    for entry in (each for path in paths for each in _transactional(path)):
        if not entry.is_control:
            begun.setdefault(entry.producer_id, entry.base_offset)
            continue
        first = begun.pop(entry.producer_id, None)
        if first is not None and entry.record_count and read_marker(entry).type is ControlType.ABORT:
            hidden.append((entry.producer_id, first))
    return [*hidden, *begun.items()]


def _transactional(path: str) -> Iterator[RecordBatch]:
    with _in_file(path):
        for entry in _entries(path):
            if isinstance(entry, RecordBatch) and entry.is_transactional:
                yield entry


def _decoded(path: str, visibility: Visibility, start: int) -> Iterator[dict[str, pa.Array]]:
    """Columns from the offset ``start`` on, a piece at a time. Raises CorruptRecord."""
    old, new = LegacyColumnarDecoder(_COLUMNS), ColumnarDecoder(_COLUMNS)
    for entry in _entries(path):
        if isinstance(entry, LegacyMessage):
            if new.rows:
                yield new.finish()
            old.append(entry, start)
        else:
            entry.validate()
            if visibility.shows(entry):
                if old.rows:
                    yield old.finish()
                new.append(entry, start)
        for decoder in (old, new):
            if decoder.nbytes >= _PIECE_BYTES:
                yield decoder.finish()
    for decoder in (old, new):
        if decoder.rows:
            yield decoder.finish()


def segment_stretches(path: str) -> list[SegmentStretch]:
    """Of a directory of segment files, or of one that has such directories, ``TOPIC-PARTITION`` or otherwise named.

    What a broker has beside its partitions is passed over, unless ``path`` names it. Raises DataSourceError where there
    are none, or only their broker can say what belongs to a log.
    """
    home = Path(path).absolute()  # the name tells the partition
    if not home.is_dir():
        raise DataSourceError(
            "SPARKLOG_INVALID_OPTION", f"{path} is no directory here: segments are read from local files"
        )
    try:
        stretches = list(_stretches_in(home))
    except LogError as error:
        raise DataSourceError("SPARKLOG_NOT_LOADED", str(error)) from error
    if not stretches:
        raise DataSourceError("SPARKLOG_INVALID_OPTION", f"{path} has no segment files, nor directories with some")
    return stretches


def _stretches_in(home: Path) -> Iterator[SegmentStretch]:
    """Raises LogError."""
    starts = cache(log_starts)
    for each in [home, *sorted(each for each in home.iterdir() if each.is_dir() and not is_dir_aside(each.name))]:
        paths = tuple(str(path) for _, path in segment_files(each, (LOG_SUFFIX, _FIRST_FORMAT_SUFFIX)))
        tp = parse_partition_dir(each.name)
        if paths:
            yield SegmentStretch(paths, tp and tp.partition, starts(each.parent).get(tp, 0) if tp else 0)
