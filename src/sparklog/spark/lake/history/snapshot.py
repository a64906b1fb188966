"""One version of a Delta table, read without a JVM: its files, and how far each partition of a log has come in it.

The package ``deltalake`` replays Delta's log. A snapshot is a value: what a task needs of it is pickled with
``narrowed``. Statistics that a file lacks are as wide as can be, so no file is left out that may have a row.
A file that a snapshot names may be gone when it is opened, once ``OPTIMIZE`` and ``VACUUM`` have run: then a newer
snapshot has its rows in another file, and the same or later offsets.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql.types import StringType, StructType

from sparklog.errors import ConfigError, DataSourceError
from sparklog.local.extras import install_line
from sparklog.record.layout import MAX_INT64
from sparklog.spark.failures import first_line
from sparklog.spark.lake.columns import TABLE_COLUMNS, TIME_COLUMNS
from sparklog.spark.lake.delta_log import DELTA_LOG, commit_name, commits_after, newest_checkpoint
from sparklog.spark.lake.files import opened
from sparklog.spark.lake.location import location_of
from sparklog.spark.lake.progress import EPOCH_APPLICATION, UPSERT_PROPERTY, Progress
from sparklog.spark.lake.value_schema import VALUES_PROPERTY, ValueSchema
from sparklog.spark.options.history import AsOf
from sparklog.spark.read.offsets import OffsetRange
from sparklog.spark.schema import check_read_schema, source_schema
from sparklog.spark.values.registry_schemas import RegistryWriters
from sparklog.structs import NO_EPOCH, TopicPartition

ROW_NAMES = ("topic", "partition", "offset")
"""The columns that say which record a row is: no table is read as history without them."""
_UNDERSTOOD = {"deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "variantType"}
"""Features of Delta that readers must know, and that change nothing here, or that are heeded."""
_ATTEMPTS = 4
_CUT = 32
"""Characters of a text that Delta's writers keep in statistics. They add one to a greatest end that they cut."""
_OWN_TIMES = "delta.enableInCommitTimestamps"
"""Of a table whose commits have their times in them; of others the times of their files count."""
_COLUMN_MAPPING = "delta.columnMapping.mode"


class TableFile(NamedTuple):
    """A file, and between which values its rows are. All bounds are inclusive."""

    path: str
    """From the table's location on, or in full."""
    size: int
    low: int
    high: int
    """Offsets."""
    partitions: tuple[int, int]
    topics: tuple[str, str] | None
    last_ms: int
    """No record is younger, by its timestamp."""
    constants: tuple[tuple[str, Any], ...]
    """Fields of the values that the table is partitioned by: the files do not have them."""
    kept: bytes | None
    """A bit a row, the first row's is the highest of the first byte: 0 for a row that is deleted. None: none is."""

    def may_have(self, tp: TopicPartition) -> bool:
        least, greatest = self.partitions
        if not least <= tp.partition <= greatest:
            return False
        return self.topics is None or self.topics[0] <= tp.topic <= self.topics[1]

    @property
    def partition_count(self) -> int:
        """The most partitions of the log that it may have rows of; 1 where nobody knows."""
        least, greatest = self.partitions
        return greatest - least + 1 if greatest < MAX_INT64 else 1


@dataclass(frozen=True)
class Snapshot:
    """A version of a table."""

    name: str
    """As the user wrote it."""
    location: str
    version: int
    schema: StructType
    values: ValueSchema | None
    """How values are decoded; None where the table has them as they are."""
    files: tuple[TableFile, ...]
    is_pinned: bool = False
    """Whether it is this version that is wanted, not the newest."""
    registry: RegistryWriters | None = None
    _known: dict[Progress, int] = field(default_factory=dict)
    _epochs: dict[Progress, int] = field(default_factory=dict)
    _handle: Any = field(default=None, repr=False, compare=False)

    @classmethod
    def open(cls, name: str, as_of: AsOf | None = None, registry: RegistryWriters | None = None) -> Snapshot:
        """The newest version of the table at this path or URI, or the one that is asked for.

        ``registry`` has the schemas of the values of a decoded table, if they are in one.
        Raises DataSourceError where there is no such table or version, or where it cannot be read as history;
        ConfigError where the package that reads it is not installed.
        """
        return cls._at(name, location_of(name), as_of, registry)

    @classmethod
    def _at(cls, name: str, location: str, as_of: AsOf | None, registry: RegistryWriters | None) -> Snapshot:
        if location.startswith("/") and "%" in location:
            refuse(name, "its path has a % in it, which the package deltalake takes for an escape")
        for left in reversed(range(_ATTEMPTS)):
            try:
                return cls._opened(name, location, as_of, registry)
            except _delta_error() as error:
                # A file of Delta's own may go while it is looked at: VACUUM removes what an older version named.
                if not left or as_of is not None or "not found" not in str(error):
                    of = "" if as_of is None else f" as of {as_of}"
                    said = f"table {name}{of} cannot be read: {first_line(error)}"
                    raise DataSourceError("SPARKLOG_NO_TABLE", said) from error
        raise AssertionError("the last attempt raises")

    @classmethod
    def _opened(cls, name: str, location: str, as_of: AsOf | None, registry: RegistryWriters | None) -> Snapshot:
        from deltalake import DeltaTable

        handle = DeltaTable(Path(location).as_uri() if location.startswith("/") else location)
        if as_of is not None:
            _go_back(name, location, handle, as_of)
        schema = StructType.fromJson(json.loads(handle.schema().to_json()))
        values = _values(name, handle, registry)
        _check(name, schema, handle, values)
        files = _files(handle)
        version = int(handle.version())
        return cls(name, location, version, schema, values, files, as_of is not None, registry, {}, {}, handle)

    def newest(self) -> Snapshot:
        """The newest version of the same table, in whatever directory a task works. Raises as ``open`` does."""
        return Snapshot._at(self.name, self.location, None, self.registry)

    def end(self, each: Progress) -> int:
        """The next offset that is to come into the table; 0 where nothing has come yet."""
        if each not in self._known:
            found = self._handle.transaction_version(each.to_application()) if self._handle is not None else None
            self._known[each] = 0 if found is None else int(found)
        return self._known[each]

    def epoch(self, each: Progress) -> int:
        """The leader epoch in which ``end`` was found; NO_EPOCH where the table does not say. Not of a narrowed one."""
        if each not in self._epochs:
            found = self._handle.transaction_version(each.to_application(EPOCH_APPLICATION))
            self._epochs[each] = NO_EPOCH if found is None else int(found)
        return self._epochs[each]

    def files_of(self, wanted: OffsetRange) -> list[TableFile]:
        """The files that may have rows of the range, by their least offset."""
        found = (each for each in self.files if each.low < wanted.end and each.high >= wanted.start)
        return sorted((each for each in found if each.may_have(wanted.tp)), key=lambda each: each.low)

    def has_topic(self, topic: str) -> bool:
        """Whether a file surely has rows of it, by its statistics. The least may be cut, no greatest is."""
        return any(
            each.topics is not None and topic in each.topics and (len(topic) != _CUT or topic == each.topics[1])
            for each in self.files
        )

    def narrowed(self, wanted: Iterable[OffsetRange], partitions: Iterable[Progress]) -> Snapshot:
        """What a task needs that reads these ranges, of these partitions."""
        kept = {file.path: file for each in wanted for file in self.files_of(each)}
        known = {each: self.end(each) for each in partitions}
        return replace(self, files=tuple(kept.values()), _known=known, _handle=None)

    def owners(self) -> list[Progress]:
        """Partitions that have come into the table."""
        found = (Progress.from_application(text) for text in _applications(self.location))
        return sorted({each for each in found if each is not None})

    def read_schema(self, *, include_headers: bool) -> StructType:
        """The columns of a read for which nobody names any: a log's, or those of a decoded table but for the time's."""
        if self.values is None:
            return source_schema(include_headers)
        return StructType([each for each in self.schema.fields if each.name not in TIME_COLUMNS])

    def check_schema(self, schema: StructType) -> None:
        """Raises DataSourceError for columns that the table does not have, or has of another type."""
        if self.values is None:
            check_read_schema(schema)
        self.check_columns(schema.names)
        known = {each.name: each.dataType for each in self.schema.fields}
        for each in schema.fields:
            if each.dataType.simpleString() != known[each.name].simpleString():
                raise DataSourceError(
                    "SPARKLOG_UNSUPPORTED_SCHEMA",
                    f"column {each.name!r} is {known[each.name].simpleString()} in table {self.name}, not"
                    f" {each.dataType.simpleString()}; cast it after reading",
                )

    def check_columns(self, names: Iterable[str]) -> None:
        """Raises DataSourceError for a column that the table does not have."""
        missing = [name for name in names if name not in self.schema.names]
        if missing:
            raise DataSourceError(
                "SPARKLOG_UNSUPPORTED_SCHEMA",
                f"table {self.name} has no column {', '.join(missing)}, which is to be read from it; name the columns"
                " to read with .schema(…)",
            )


def _delta_error() -> type[Exception]:
    """What ``deltalake`` raises. Raises ConfigError where it is not installed."""
    try:
        from deltalake.exceptions import DeltaError
    except ImportError as error:
        raise ConfigError(f"the option 'history' needs the package deltalake; type: {install_line('spark')}") from error
    found: type[Exception] = DeltaError
    return found


def _go_back(name: str, location: str, handle: Any, as_of: AsOf) -> None:
    """Raises DataSourceError for a version that is not there yet, and for a time before the first one that is left.

    Of such a time ``deltalake`` takes the first version, which nobody has seen then.
    """
    newest = int(handle.version())
    if isinstance(as_of, int) and as_of > newest:
        raise DataSourceError("SPARKLOG_NO_TABLE", f"table {name} has no version {as_of}: the newest is {newest}")
    handle.load_as_version(as_of)
    if isinstance(as_of, int) or handle.metadata().configuration.get(_OWN_TIMES) == "true":
        return
    first = _committed(location, int(handle.version()))
    if first is not None and first > as_of:
        raise DataSourceError(
            "SPARKLOG_NO_TABLE",
            f"table {name} has no version as of {as_of.isoformat()}: the first that is left, {handle.version()}, was"
            f" committed at {first.isoformat()}",
        )


def _committed(location: str, version: int) -> datetime | None:
    """When a version was committed, to the millisecond; None where its file is gone, and a checkpoint has it."""
    filesystem, root = opened(location)
    modified = filesystem.get_file_info(f"{root.rstrip('/')}/{DELTA_LOG}/{commit_name(version)}").mtime
    return None if modified is None else modified.replace(microsecond=modified.microsecond // 1000 * 1000)


def _values(name: str, handle: Any, registry: RegistryWriters | None) -> ValueSchema | None:
    told = handle.metadata().configuration.get(VALUES_PROPERTY)
    try:
        return None if told is None else ValueSchema.from_json(told, registry)
    except ValueError as error:
        refuse(name, str(error))


def _check(name: str, schema: StructType, handle: Any, values: ValueSchema | None) -> None:
    unknown = set(handle.protocol().reader_features or ()) - _UNDERSTOOD - {"columnMapping"}
    if unknown:
        refuse(name, f"it has features of Delta that are not understood here: {', '.join(sorted(unknown))}")
    if handle.metadata().configuration.get(UPSERT_PROPERTY) == "true":
        refuse(name, f"it has the last record of each key, not all records ({UPSERT_PROPERTY})")
    if handle.metadata().configuration.get(_COLUMN_MAPPING, "none") != "none":
        refuse(
            name,
            f"its columns have other names in its files; ALTER TABLE … SET TBLPROPERTIES ('{_COLUMN_MAPPING}' ="
            " 'none') writes them anew",
        )
    known = TABLE_COLUMNS if values is None or not values.is_text_key else {**TABLE_COLUMNS, "key": StringType()}
    for column in schema.fields:
        expected = known.get(column.name)
        if expected is None and values is not None:
            continue
        if expected is None:
            refuse(
                name,
                f"it has a column {column.name}, which a log does not have, and it does not say how values are decoded"
                f" ({VALUES_PROPERTY}): the next commit of an offload with --value-format writes that",
            )
        if expected.simpleString() != column.dataType.simpleString():
            refuse(name, f"its column {column.name} is {column.dataType.simpleString()}, not that of a log")
    lacking = [each for each in ROW_NAMES if each not in schema.names]
    if lacking:
        refuse(name, f"it has no column {', '.join(lacking)}, so nobody can tell which records its rows are")


def refuse(name: str, why: str) -> NoReturn:
    """Raises DataSourceError: the table is not the history of what is read."""
    raise DataSourceError("SPARKLOG_UNSUITABLE_TABLE", f"table {name} cannot be read as history: {why}")


def _files(handle: Any) -> tuple[TableFile, ...]:
    actions = pa.table(handle.get_add_actions())
    count = actions.num_rows
    lows, highs = _bounds(actions, "offset")
    least, greatest = _bounds(actions, "partition")
    first, last = _bounds(actions, "topic")
    times = _millis(_bound(actions, "max", "timestamp"), count)
    constants = _constants(actions)
    kept = _kept(handle)
    paths, sizes = map(unquote, actions.column("path").to_pylist()), actions.column("size_bytes").to_pylist()
    return tuple(
        TableFile(
            path,
            sizes[index],
            _or(lows[index], 0),
            _or(highs[index], MAX_INT64),
            (_or(least[index], 0), _or(greatest[index], MAX_INT64)),
            None if first[index] is None or last[index] is None else (first[index], last[index]),
            times[index],
            constants[index],
            kept.get(_file_name(path)),
        )
        for index, path in enumerate(paths)
    )


def _constants(actions: pa.Table) -> list[tuple[tuple[str, Any], ...]]:
    """The values of each file that it has by its place in the table, but for those of the log and of time."""
    if "partition" not in actions.schema.names:
        return [()] * actions.num_rows
    found = [name for name in actions.schema.field("partition").type.names if name not in TABLE_COLUMNS]
    values = [pc.struct_field(actions.column("partition"), name).to_pylist() for name in found]
    return [tuple(zip(found, row, strict=True)) for row in zip(*values, strict=True)] or [()] * actions.num_rows


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _bounds(actions: pa.Table, name: str) -> tuple[list[Any], list[Any]]:
    """The least and the greatest value of a column in each file; None where the table does not tell."""
    constant = _bound(actions, "partition", name)
    if constant is not None:
        values = constant.to_pylist()
        return values, values
    found = (_bound(actions, end, name) for end in ("min", "max"))
    least, greatest = (each.to_pylist() if each is not None else [None] * actions.num_rows for each in found)
    return least, greatest


def _bound(actions: pa.Table, struct: str, name: str) -> pa.ChunkedArray | None:
    if struct not in actions.schema.names or actions.schema.field(struct).type.get_field_index(name) < 0:
        return None
    return pc.struct_field(actions.column(struct), name)


def _millis(times: pa.ChunkedArray | None, count: int) -> list[int]:
    """Milliseconds, rounded up: Delta cuts off what is less."""
    if times is None:
        return [MAX_INT64] * count
    micros = times.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    return [MAX_INT64 if each is None else each // 1000 + 1 for each in micros]


def _kept(handle: Any) -> dict[str, bytes]:
    """File name → which of its rows are not deleted, for files with a deletion vector."""
    if "deletionVectors" not in set(handle.protocol().reader_features or ()):
        return {}
    return {
        _file_name(uri): np.packbits(np.asarray(kept, dtype=bool)).tobytes()
        for batch in pa.RecordBatchReader.from_stream(handle.deletion_vectors())
        for uri, kept in _vectors(batch)
    }


def _vectors(batch: pa.RecordBatch) -> Iterator[tuple[str, Any]]:
    for uri, kept in zip(batch.column("filepath"), batch.column("selection_vector"), strict=True):
        yield uri.as_py(), kept.values.to_numpy(zero_copy_only=False)


def _applications(location: str) -> Iterator[str]:
    """The ids of application transactions in Delta's log. ``deltalake`` only looks one up.

    The newest checkpoint that is whole names all those of the commits before it.
    """
    filesystem, root = opened(location)
    paths = [each.path for each in filesystem.get_file_info(fs.FileSelector(f"{root}/{DELTA_LOG}"))]
    version, checkpoint = newest_checkpoint(paths)
    commits = [path for _, path in commits_after(paths, version)]
    for path in (*commits, *(each for each in checkpoint if each.endswith(".json"))):
        with filesystem.open_input_stream(path) as file:
            yield from (
                json.loads(line)["txn"]["appId"] for line in file.readall().splitlines() if line[:6] == b'{"txn"'
            )
    for path in (each for each in checkpoint if each.endswith(".parquet")):
        column = pq.read_table(path, filesystem=filesystem, columns=["txn"]).column("txn")
        yield from pc.struct_field(column, "appId").drop_null().to_pylist()


def _file_name(path: str) -> str:
    """The last part: every writer of Delta draws it by chance."""
    return unquote(os.path.basename(path))
