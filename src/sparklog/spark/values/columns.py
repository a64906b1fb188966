"""Keys and values as columns: reads and writes JSON and Avro with a schema, and keeps values that do not parse.

It works in batches and streams, in any session and over Spark Connect, since it consists of columns and Arrow UDFs. The
workers need this package (and fastavro for Avro), as they do for the source.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from sparklog.errors import DataSourceError
from sparklog.spark.values.avro import AvroReader, AvroWriter, Schema, Writers
from sparklog.spark.values.decoded import nullable
from sparklog.spark.values.jvm_avro import MARK

_PARSED = "_sparklog_parsed"
_EARLY = "_sparklog_early"
_CORRUPT = "_sparklog_corrupt"
_MOST_DIGITS = 38
_MOST_SECONDS = ((1 << 63) - 1) // 1_000_000
_POSITION = ("topic", "partition", "offset")
_WRITTEN_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of ``to_json``, whose default formats end at the milliseconds. Five X: old offsets from UTC have seconds."""


_NON_NUMERIC = "allownonnumericnumbers"
_STRICT = {_NON_NUMERIC: "false", "allowsinglequotes": "false"}

_Condition = Callable[[Column], Column]
_Changed = Callable[[DataType], _Condition | None]


def json_values(
    df: DataFrame,
    schema: StructType | str,
    *,
    value: str = "value",
    into: str = "data",
    dead_letter: str | None = "_error",
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """``df`` with a column ``into``, the struct in the JSON of the column ``value`` (binary in UTF-8, or string).

    If a value does not parse, ``into`` is null and ``dead_letter`` says why; otherwise ``dead_letter`` is null. All
    columns of ``df`` stay, so a dead letter has its key, value, topic, partition and offset. With ``dead_letter=None``
    the first such row fails the query. A null value is null in both. ``options`` are those of ``from_json``, such as
    ``timestampFormat``.

    It is stricter than ``from_json`` alone, which silently accepts trailing rubbish, the first of several objects,
    empty text (as null), and numbers that are not JSON (NaN). Here a value must be one JSON object whose fields have
    the schema's types, and it must have the fields that are NOT NULL, inside structs, arrays and maps too. Fields that
    the schema does not name are ignored; if a field of a struct occurs twice, the last counts, as in Spark; a map with
    a key twice does not parse. A number that its type would change does not parse; for a decimal, as far as 38 digits
    show the change. A float or double is the nearest value, but a number beyond its range does not parse. Dates and
    timestamps are those of ``from_json``; a timestamp that is a number is seconds.
    """
    wanted = _struct(schema)
    text = f.col(value).cast("string")
    mark = f"_{secrets.token_hex(8)}"
    given = {name.lower(): setting for name, setting in (options or {}).items()}  # Spark takes these names in any case
    settings = {**_STRICT, **given, "mode": "PERMISSIVE", "columnnameofcorruptrecord": _CORRUPT}
    is_finite = str(settings[_NON_NUMERIC]).lower() != "true"  # else an infinity may be what the value says
    plain, wide = _mapped(wanted, lambda kind: kind), _mapped(wanted, _wider)
    parsed = df.withColumn(_PARSED, _from_wrapped(text, wide, settings, mark))
    root = f.get(f.col(_PARSED)["v"], f.lit(1)).dropFields(mark)
    data = root if wide == plain else root.try_cast(plain)
    reason = (
        f.when(text.isNull(), None)
        .when(~f.is_valid_utf8(text), f.lit("it is not UTF-8"))
        .when(~_is_whole(f.col(_PARSED), mark), _why_not_json(text, wanted, settings))
        .otherwise(
            f.coalesce(
                _first_reason(_faults(wanted, "", partial(_is_changed, is_finite=is_finite)), root),
                _why_too_far(text, plain, settings),
            )
        )
    )
    return _with_dead_letters(parsed, data, reason, value, into, dead_letter).drop(_PARSED)


def avro_values(
    df: DataFrame,
    schema: Schema,
    *,
    value: str = "value",
    into: str = "data",
    dead_letter: str | None = "_error",
    writers: Mapping[int, Schema] | Writers | None = None,
) -> DataFrame:
    """As ``json_values``, for values in Avro's binary encoding of ``schema`` (JSON text, or the parsed JSON).

    With ``writers``, schemas by id or what gives them, each value begins in the wire format of schema registries: a
    zero byte, and the id of the schema that it was written with. Avro's schema resolution then reads it as ``schema``.
    The schema must be a record without recursion; a union may only have null and one other type.
    ``spark/values/avro.py`` has the types.
    """
    return avro_columns(df, AvroReader(schema, writers), None, value=value, into=into, dead_letter=dead_letter)


def avro_columns(
    df: DataFrame,
    reader: AvroReader,
    early: Callable[[Column], Column] | None,
    *,
    value: str,
    into: str,
    dead_letter: str | None,
) -> DataFrame:
    """As ``avro_values``. What ``early`` makes structs of, with the field ``MARK``, the reader is not given."""
    data = f.col(value).cast("binary")
    # If it were deterministic, Spark would decode everything again for a filter by the dead letters.
    decode = f.arrow_udf(reader.decode, reader.returns).asNondeterministic()
    if early is None:
        parsed = df.withColumn(_PARSED, decode(data))
        found = f.col(_PARSED)["data"]
    else:
        is_done = f.coalesce(f.col(_EARLY)[MARK], f.lit(False))
        parsed = df.withColumn(_EARLY, early(data)).withColumn(_PARSED, decode(f.when(~is_done, data)))
        wanted = nullable(cast(StructType, reader.returns["data"].dataType))
        found = f.when(is_done, f.col(_EARLY).dropFields(MARK).cast(wanted)).otherwise(f.col(_PARSED)["data"])
    lettered = _with_dead_letters(parsed, found, f.col(_PARSED)["error"], value, into, dead_letter)
    return lettered.drop(_PARSED, _EARLY)


def to_json_values(df: DataFrame, *, key: str | None = None, keep: Sequence[str] = ()) -> DataFrame:
    """Rows for the sink: ``value`` is the JSON of a row, including fields that are null.

    Timestamps have all six digits and the offset of the session's time zone, so ``json_values`` reads the same values.

    ``key`` names a column that also becomes the record's key, as text unless it is binary. The columns in ``keep``
    (``topic``, ``partition``, ``headers``) stay separate columns, outside the value.
    """
    fields = [name for name in df.columns if name not in keep]
    return _record(df, f.to_json(f.struct(*map(_quoted, fields)), _WRITTEN_JSON), key, keep)


def to_avro_values(
    df: DataFrame,
    schema: Schema,
    *,
    key: str | None = None,
    keep: Sequence[str] = (),
    schema_id: int | None = None,
) -> DataFrame:
    """As ``to_json_values``, with the columns that ``schema`` names in Avro's binary encoding.

    With ``schema_id`` the value begins with a zero byte and that id. A column of the wrong type is refused at once; a
    row that the schema cannot hold fails the query. ``spark/values/avro.py`` has the types.
    """
    writer = AvroWriter(schema, schema_id, df.schema)
    encode = f.arrow_udf(writer.encode, "binary")
    return _record(df, encode(f.struct(*map(_quoted, writer.names))), key, keep)


def _struct(schema: StructType | str) -> StructType:
    found = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(found, StructType) or not found.fields:
        raise _unsupported(f"the schema of JSON values must be a struct with fields, not {schema!r}")
    return found


def _from_wrapped(text: Column, wanted: StructType, settings: Mapping[str, str], mark: str) -> Column:
    """The value parsed inside a list, between two sentinel objects with the random field name ``mark``.

    No text can know that name. So if the result is a list of three that begins and ends with the sentinels, the value
    did not close the list with brackets of its own: it is exactly one JSON value.
    """
    wrapped = f.concat(f.lit(f'{{"v":[{{"{mark}":1}},'), text, f.lit(f',{{"{mark}":2}}]}}'))
    nullable = [StructField(each.name, each.dataType) for each in wanted.fields]
    element = StructType([*nullable, StructField(mark, IntegerType())])
    inner = StructType([StructField("v", ArrayType(element)), StructField(_CORRUPT, StringType())])
    # True, but the optimizer does not know it: it would parse a deterministic expression several times for a filter by
    # the reasons. (It knows that rand() is positive; a stream may not use monotonically_increasing_id().)
    always = f.spark_partition_id() >= 0
    return f.when(always, f.from_json(wrapped, inner, dict(settings)))


def _is_whole(parsed: Column, mark: str) -> Column:
    first, root, last = (f.get(parsed["v"], f.lit(at)) for at in range(3))
    is_ours = (f.size(parsed["v"]) == 3) & (first[mark] == 1) & (last[mark] == 2)
    return f.coalesce(parsed[_CORRUPT].isNull() & is_ours & root.isNotNull(), f.lit(False))


def _why_not_json(text: Column, schema: StructType, settings: Mapping[str, str]) -> Column:
    """The reason why a value does not parse. It parses the value again, so it is evaluated only for such values."""
    wrong = [
        f.when(
            ~_parses(text, [StructField(each.name, each.dataType)], settings),
            f.lit(f"{each.name} is not {each.dataType.simpleString()}"),
        )
        for each in schema.fields
    ]
    return (
        f.when(f.try_parse_json(text).isNull(), f.lit("it is not JSON"))
        .when(~f.startswith(f.ltrim(text), f.lit("{")), f.lit("it is not a JSON object"))
        .when(_parses(text, schema.fields, settings), f.lit("something follows the JSON object"))
        .otherwise(f.concat(f.lit("it is not of the schema: "), f.concat_ws(", ", *wrong)))
    )


def _parses(text: Column, fields: list[StructField], settings: Mapping[str, str]) -> Column:
    """Whether the fields in the text have these types; other fields do not matter."""
    struct = StructType([*fields, StructField(_CORRUPT, StringType())])
    return f.from_json(text, struct, dict(settings))[_CORRUPT].isNull()


def _mapped(kind: StructType, leaf: Callable[[DataType], DataType]) -> StructType:
    """The struct with each inner type replaced by ``leaf``; all fields are nullable, as ``from_json`` makes them."""
    return StructType([StructField(each.name, _mapped_type(each.dataType, leaf)) for each in kind.fields])


def _mapped_type(kind: DataType, leaf: Callable[[DataType], DataType]) -> DataType:
    if isinstance(kind, StructType):
        return _mapped(kind, leaf)
    if isinstance(kind, ArrayType):
        return ArrayType(_mapped_type(kind.elementType, leaf))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _mapped_type(kind.valueType, leaf))
    return leaf(kind)


def _why_too_far(text: Column, schema: StructType, settings: Mapping[str, str]) -> Column:
    """The reason if a timestamp in seconds is beyond what a timestamp holds: ``from_json`` wraps it around.

    For this the value is parsed again, if it has so many digits. ``schema`` has no NOT NULL. The timestamps become
    variants, since a list or map of bigint with one timestamp in text would be null as a whole, and since a text of
    digits, which ``timestampFormat`` may ask for, is no number of seconds.
    """
    variants = _mapped(schema, lambda kind: VariantType() if isinstance(kind, TimestampType) else kind)
    if variants == schema:
        return f.lit(None).cast("string")
    reason = _first_reason(_faults(schema, "", _is_too_far), f.from_json(text, variants, dict(settings)))
    return f.when(text.rlike(f"[0-9]{{{len(str(_MOST_SECONDS))}}}"), reason)


def _is_too_far(kind: DataType) -> _Condition | None:
    """Whether a variant is a number of seconds beyond a timestamp; None if it is to become another type."""
    if not isinstance(kind, TimestampType):
        return None
    return lambda variant: (
        (f.schema_of_variant(variant) == "BIGINT")
        & ~f.try_variant_get(variant, "$", "bigint").between(-_MOST_SECONDS, _MOST_SECONDS)
    )


def _is_changed(kind: DataType, *, is_finite: bool) -> _Condition | None:
    """Whether a value of the wider type is not one of ``kind``; None if each is."""
    if _wider(kind) != kind:
        return lambda value: ~value.eqNullSafe(value.try_cast(kind).cast(_wider(kind)))
    if is_finite and isinstance(kind, FloatType | DoubleType):
        return lambda value: f.abs(value) == float("inf")
    return None


def _wider(kind: DataType) -> DataType:
    """A wider type, to find values that do not fit: ``from_json`` makes a tinyint -128 of 128, and rounds decimals."""
    if isinstance(kind, ByteType):
        return ShortType()
    if isinstance(kind, DecimalType):
        return DecimalType(_MOST_DIGITS, kind.scale + _MOST_DIGITS - kind.precision)
    return kind


def _first_reason(faults: Iterator[tuple[_Condition, str]], root: Column) -> Column:
    """The reason of the first fault that the value has, or null."""
    none = f.when(f.lit(False), f.lit(""))
    found = reduce(lambda found, each: found.when(each[0](root), f.lit(each[1])), faults, none)
    return found.otherwise(f.lit(None).cast("string"))


def _faults(kind: DataType, path: str, is_changed: _Changed) -> Iterator[tuple[_Condition, str]]:
    """The possible faults of a value of this type, each with its reason; the outermost first."""
    if isinstance(kind, StructType):
        for each in kind.fields:
            yield from _faults_of_field(each, f"{path}.{each.name}" if path else each.name, is_changed)
    elif isinstance(kind, ArrayType):
        yield from _faults_of_elements(kind.elementType, kind.containsNull, path, is_changed, lambda value: value)
    elif isinstance(kind, MapType):
        yield _has_twins, f"it has a key twice in {path}"
        yield from _faults_of_elements(kind.valueType, kind.valueContainsNull, path, is_changed, f.map_values)
    elif (condition := is_changed(kind)) is not None:
        yield condition, f"it is not of the schema: {path} is not {kind.simpleString()}"


def _faults_of_field(field: StructField, path: str, is_changed: _Changed) -> Iterator[tuple[_Condition, str]]:
    if not field.nullable:
        yield lambda value: value.isNotNull() & value[field.name].isNull(), f"it has no {path}"
    for is_faulty, reason in _faults(field.dataType, path, is_changed):
        yield _composed(is_faulty, lambda value: value[field.name]), reason


def _faults_of_elements(
    kind: DataType, may_be_null: bool, path: str, is_changed: _Changed, elements: _Condition
) -> Iterator[tuple[_Condition, str]]:
    if not may_be_null:
        yield lambda value: f.exists(elements(value), lambda each: each.isNull()), f"it has a null in {path}"
    for is_faulty, reason in _faults(kind, f"{path}[]", is_changed):
        yield _in_any(is_faulty, elements), reason


def _has_twins(value: Column) -> Column:
    return f.size(f.array_distinct(f.map_keys(value))) < f.size(f.map_keys(value))


def _composed(condition: _Condition, inner: _Condition) -> _Condition:
    return lambda value: condition(inner(value))


def _in_any(condition: _Condition, elements: _Condition) -> _Condition:
    return lambda value: f.exists(elements(value), condition)


def _check_free(df: DataFrame, *names: str | None) -> None:
    """Raises DataSourceError if a column to add exists already: Spark would replace it silently."""
    taken = {name.casefold() for name in df.columns}
    for name in names:
        if name is None:
            continue
        if name.casefold() in taken:
            raise _unsupported(
                f"there is a column {name!r} already: give the one to add another name (into, dead_letter)"
            )
        taken.add(name.casefold())


def _with_dead_letters(
    df: DataFrame, data: Column, reason: Column, value: str, into: str, dead_letter: str | None
) -> DataFrame:
    """Adds ``into`` for the rows that parsed, and ``dead_letter`` for the others, or makes them raise an error."""
    _check_free(df, into, dead_letter)
    if dead_letter is not None:
        reasoned = df.withColumn(dead_letter, reason)
        return reasoned.withColumn(into, f.when(f.col(dead_letter).isNull(), data))
    position = [f.concat(f.lit(f" {name} "), f.col(name).cast("string")) for name in _POSITION if name in df.columns]
    message = f.concat(f.lit(f"[SPARKLOG_UNPARSED_VALUE] column '{value}'"), *position, f.lit(": "), reason)
    return df.withColumn(into, f.when(reason.isNull(), data).otherwise(f.raise_error(message)))


def _record(df: DataFrame, value: Column, key: str | None, keep: Sequence[str]) -> DataFrame:
    columns = [value.alias("value"), *(f.col(_escaped(name)) for name in keep)]
    if key is not None:
        is_binary = df.schema[key].dataType.simpleString() == "binary"
        columns.append(f.col(_escaped(key)).cast("binary" if is_binary else "string").alias("key"))
    return df.select(*columns)


def _quoted(name: str) -> Column:
    return f.col(_escaped(name)).alias(name)


def _escaped(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _unsupported(message: str) -> DataSourceError:
    return DataSourceError("SPARKLOG_UNSUPPORTED_SCHEMA", message)
