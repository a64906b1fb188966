"""Sources of a load: files whose rows become records, and what tells two sources apart."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparklog.errors import DataSourceError
from sparklog.record.columnar import partition_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SEGMENTS = "segments"
FORMATS = ("parquet", "delta", "csv", "json", SEGMENTS)
_PLACES = ("file", "part", "row")
_DEFAULTS = {"csv": {"header": "true", "inferSchema": "true", "mode": "FAILFAST"}, "json": {"mode": "FAILFAST"}}
"""Spark by itself makes a row of nulls of a line that it cannot read."""


_GLOB = frozenset("{}[]*?\\")
_CHOOSES_FILES = (
    *("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_HOME", "SPARK_CONF_DIR"),
    *("SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR", "YARN_CONF_DIR"),
)
"""Variables of a Spark whose plain paths may be those of another file system than this machine's (fs.defaultFS)."""


@dataclass(frozen=True)
class Source:
    """Rows of files, and which column is what. Columns that are not binary are written as text."""

    path: str
    format: str
    key: str | None = None
    value: str | None = None
    """None for all columns that are nothing else, as one JSON object."""
    timestamp: str | None = None
    """A timestamp, or a long in ms; without one records have the time of the load."""
    headers: str | None = None
    """As the source reads them: an array of structs of key and value."""
    partition: str | None = None
    """The partition's number; without one the key decides, as it does for a producer."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Of Spark's reader."""
    keep_order: bool = False
    """Rows of a partition stay in the order of the files, though there are timestamps."""

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise DataSourceError("SPARKLOG_INVALID_OPTION", f"{self.format!r} is none of {', '.join(FORMATS)}")

    @property
    def may_keep_order(self) -> bool:
        """Whether tasks may read the files by themselves: nothing is to be sorted, nor made by Spark."""
        is_sorted = self.timestamp is not None and not self.keep_order
        return self.format == "parquet" and self.value is not None and not self.options and not is_sorted

    @property
    def special(self) -> list[str]:
        """Columns that are something else than a part of the value."""
        return [each for each in (self.key, self.timestamp, self.headers, self.partition) if each is not None]


def require_source(source: Source, environment: Mapping[str, str]) -> None:
    """Look for a plain path before Spark starts in this ``environment``: the user hears at once that it is missing.

    Raises DataSourceError where it is certain that Spark would find nothing.
    """
    path = source.path
    is_plain = ":" not in path and not _GLOB.intersection(path) and not (source.format == "delta" and "@" in path)
    if not is_plain or any(environment.get(each) for each in _CHOOSES_FILES):
        return
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DataSourceError("SPARKLOG_NOT_LOADED", f"{path} is not there, and nothing of it is loaded") from error
    except (OSError, ValueError):  # Spark will say what it has against it
        return


def rows_of(spark: SparkSession, source: Source, partition_count: int) -> DataFrame:
    """Rows as (key, value, headers, timestamp in ms, partition): a task for each partition, which has its rows sorted
    by time where they have one, or in the order of the files where that is to be kept: a shuffle keeps none.

    Raises DataSourceError for columns that are not there or have the wrong type.
    """
    from pyspark.sql import functions as f

    read = _read(spark, source)
    named = [each for each in (*source.special, source.value) if each is not None]
    missing = [each for each in named if each not in read.columns]
    if missing:
        raise DataSourceError(
            "SPARKLOG_UNSUPPORTED_SCHEMA", f"{source.path} has no column {missing[0]!r}; it has {read.columns}"
        )
    key, value = _bytes_of(read, source.key), _value(read, source)
    rows = read.select(
        key.alias("key"),
        value.alias("value"),
        (
            _column(source.headers) if source.headers else f.lit(None).cast("array<struct<key:string,value:binary>>")
        ).alias("headers"),
        _milliseconds(read, source.timestamp).alias("timestamp"),
        _partition(source, key, value, partition_count).alias("partition"),
        *(_places(read) if source.keep_order else ()),
    )
    spread = rows.repartitionById(partition_count, "partition")
    if source.keep_order:
        return spread.sortWithinPartitions(*_PLACES).drop(*_PLACES)
    return spread.sortWithinPartitions("timestamp") if source.timestamp else spread


def _places(read: DataFrame) -> tuple[Column, ...]:
    """Where each row stands: its file, the part of that which a task reads, and its number there."""
    from pyspark.sql import functions as f

    file = read.metadataColumn("_metadata")
    found = (file.getField("file_path"), file.getField("file_block_start"), f.monotonically_increasing_id())
    return tuple(column.alias(name) for column, name in zip(found, _PLACES, strict=True))


def _read(spark: SparkSession, source: Source) -> DataFrame:
    """The files. Key and value of a CSV file are its text: what looks like a number may begin with zeros."""
    from pyspark.sql.types import StringType, StructField, StructType

    reader = spark.read.format(source.format).options(**{**_DEFAULTS.get(source.format, {}), **source.options})
    read = reader.load(source.path)
    texts = {source.key, source.value} - {source.timestamp, source.partition, None}
    if source.format != "csv" or not texts.intersection(read.columns):
        return read
    inferred = (StructField(each.name, StringType()) if each.name in texts else each for each in read.schema)
    return reader.schema(StructType(list(inferred))).load(source.path)


def _column(name: str) -> Column:
    """A column of the files, whatever is in its name."""
    from pyspark.sql import functions as f

    quoted = name.replace("`", "``")
    return f.col(f"`{quoted}`")


def _bytes_of(read: DataFrame, name: str | None) -> Column:
    from pyspark.sql import functions as f

    if name is None:
        return f.lit(None).cast("binary")
    return _column(name) if dict(read.dtypes)[name] == "binary" else _column(name).cast("string").cast("binary")


def _value(read: DataFrame, source: Source) -> Column:
    from pyspark.sql import functions as f

    if source.value is not None:
        return _bytes_of(read, source.value)
    parts = [each for each in read.columns if each not in source.special]
    return f.to_json(f.struct(*(_column(each) for each in parts or read.columns))).cast("binary")


def _milliseconds(read: DataFrame, name: str | None) -> Column:
    from pyspark.sql import functions as f

    if name is None:
        return f.lit(None).cast("long")
    kind = dict(read.dtypes)[name]
    if kind in ("timestamp", "timestamp_ntz"):
        return f.unix_millis(_column(name).cast("timestamp"))
    if kind not in ("bigint", "int"):
        raise DataSourceError(
            "SPARKLOG_UNSUPPORTED_SCHEMA", f"column {name!r} is {kind}: a timestamp, or a long in ms, is wanted"
        )
    return _column(name).cast("long")


def _partition(source: Source, key: Column, value: Column, count: int) -> Column:
    """Rows without a key are spread by their content: a task that is tried again has the same ones."""
    from pyspark.sql import functions as f

    if source.partition is not None:
        number = _column(source.partition).cast("int")
        complaint = f.concat(
            f.lit(f"[SPARKLOG_INVALID_PARTITION] the topic has partitions 0 to {count - 1}, a row names "),
            f.coalesce(number.cast("string"), f.lit("null")),
        )
        return f.when(number.between(0, count - 1), number).otherwise(f.raise_error(complaint).cast("int"))
    spread = f.pmod(f.xxhash64(value), f.lit(count)).cast("int")
    return spread if source.key is None else f.when(key.isNull(), spread).otherwise(_of_keys(count)(key))


def _of_keys(count: int) -> Any:
    """The partition of a key, as the default partitioner has it."""
    from pyspark.sql import functions as f

    @f.arrow_udf("int")  # type: ignore[untyped-decorator, unused-ignore]
    def partition_of(keys: pa.Array) -> pa.Array:
        import numpy as np

        found = np.zeros(len(keys), dtype=np.int32)
        for number, rows in enumerate(partition_rows(keys, count)):
            found[np.frombuffer(rows, dtype=np.int32)] = number
        return pa.array(found)

    return partition_of


def fingerprint(spark: SparkSession, source: Source, rows: DataFrame) -> str:
    """What tells this source from any other: names, sizes and times of its files, and what is made of them."""
    digest = hashlib.sha256()
    columns = (source.key, source.value, source.timestamp, source.headers, source.partition)
    settings = (source.format, *columns, *sorted(source.options.items()))
    digest.update(repr(settings).encode())
    for name in sorted(rows.inputFiles()):
        digest.update(repr((name, *_facts_of(spark, name))).encode())
    return digest.hexdigest()


def fingerprint_of_files(source: Source) -> str:
    """The same, of local files. Raises OSError."""
    digest = hashlib.sha256(source.format.encode())
    for path in sorted(each for each in Path(source.path).rglob("*") if each.is_file()):
        facts = path.stat()
        digest.update(repr((str(path.relative_to(source.path)), facts.st_size, facts.st_mtime_ns)).encode())
    return digest.hexdigest()


def _facts_of(spark: SparkSession, name: str) -> tuple[int, int]:
    """Size and time of a file on any Hadoop file system."""
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(name))
    status = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).getFileStatus(path)
    return status.getLen(), status.getModificationTime()
