"""The columns of the source and of the sink: names and types of Spark's Kafka source."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparklog.errors import DataSourceError

_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

_NEVER_NULL = {"topic", "partition", "offset", "timestamp", "timestampType"}

READ_COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": _HEADERS,
}

WRITE_COLUMNS: dict[str, tuple[DataType, ...]] = {
    "key": (BinaryType(), StringType()),
    "value": (BinaryType(), StringType()),
    "headers": (_HEADERS,),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
}


def source_schema(include_headers: bool) -> StructType:
    """The schema of the source if the user gives none."""
    names = [name for name in READ_COLUMNS if include_headers or name != "headers"]
    return StructType([StructField(name, READ_COLUMNS[name]) for name in names])


def check_read_schema(schema: StructType) -> None:
    """Raises DataSourceError unless the user's schema has only columns of the source, each with the source's type.

    It also refuses NOT NULL for columns that may be null: Spark would believe it and fail obscurely at the first null.
    """
    for column in schema.fields:
        expected = READ_COLUMNS.get(column.name)
        if expected is None:
            raise DataSourceError(
                "SPARKLOG_UNSUPPORTED_SCHEMA", f"no column {column.name!r}: the source has {', '.join(READ_COLUMNS)}"
            )
        if not _same_type(column.dataType, expected):
            raise DataSourceError(
                "SPARKLOG_UNSUPPORTED_SCHEMA",
                f"column {column.name!r} is {expected.simpleString()}, not {column.dataType.simpleString()};"
                " cast it after reading",
            )
        if column.name not in _NEVER_NULL and (not column.nullable or _says_not_null(column.dataType)):
            raise DataSourceError(
                "SPARKLOG_UNSUPPORTED_SCHEMA",
                f"column {column.name!r} may have nulls: leave out NOT NULL, and filter after reading",
            )


def check_write_schema(schema: StructType, topic_option: str | None) -> None:
    """Raises DataSourceError unless a DataFrame of this schema can be written.

    Columns of other names are ignored, but not one that is the sink's in other case: Spark takes these names for the
    same, and rows would lose their keys without a word.
    """
    for name in schema.names:
        meant = name.lower()
        if name != meant and meant in WRITE_COLUMNS and meant not in schema.names:
            raise DataSourceError(
                "SPARKLOG_UNSUPPORTED_SCHEMA",
                f"column {name!r} would not be written: the sink's is {meant!r}; rename the column, or drop it",
            )
    if "value" not in schema.names:
        raise DataSourceError("SPARKLOG_UNSUPPORTED_SCHEMA", "the DataFrame to write has no column 'value'")
    if topic_option is None and "topic" not in schema.names:
        raise DataSourceError(
            "SPARKLOG_MISSING_TOPIC", "no topic to write to: set the option 'topic' or add a column 'topic'"
        )
    for column in schema.fields:
        allowed = WRITE_COLUMNS.get(column.name)
        if allowed and not any(_same_type(column.dataType, each) for each in allowed):
            names = " or ".join(each.simpleString() for each in allowed)
            raise DataSourceError(
                "SPARKLOG_UNSUPPORTED_SCHEMA",
                f"column {column.name!r} to write is {column.dataType.simpleString()}; it must be {names}",
            )


def _says_not_null(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return not kind.containsNull or _says_not_null(kind.elementType)
    return isinstance(kind, StructType) and not all(each.nullable for each in kind.fields)


def _same_type(one: DataType, other: DataType) -> bool:
    return bool(one.simpleString() == other.simpleString())
