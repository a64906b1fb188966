"""Converts Avro's binary encoding to Arrow structs and back. The types correspond like this:

| Avro | Spark |
| --- | --- |
| boolean, int, long, float, double, string, bytes | boolean, int, long, float, double, string, binary |
| fixed, enum, array, map, record | binary, string, array, map, struct |
| union of null and one type | that type, nullable |
| date; timestamp-millis, -micros; local-timestamp-millis, -micros | date; timestamp; timestamp_ntz |
| decimal | decimal, up to 38 digits |
| any other logical type | the type beneath |

A column to be written may also have a type that Avro promotes to these (int to long, integers to float and double,
float to double, string and bytes to each other), another integer or decimal type, or be a struct with more fields. Each
value must be the same in both types. Only for -millis are the microseconds of a timestamp cut off, as by Spark's
``to_avro``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sparklog.errors import ConfigError, DataSourceError, SerializationError
from sparklog.local.extras import install_line
from sparklog.registry.wire import FRAME, framed, schema_id_of
from sparklog.spark.values.avro_binary import never
from sparklog.spark.values.avro_decoder import DAYS, MICROSECONDS, NANOS, decoder
from sparklog.spark.values.decoded import Unreadable

Schema = str | Mapping[str, Any]
"""An Avro schema: JSON text, or the parsed JSON."""

Writers = Callable[[int], Any]
"""A schema's id → that schema, as ``parsed_schema`` gives it. Raises Unreadable if there is none. It is pickled."""

_Decode = Callable[[bytes, int], Any]
"""The record behind a position of the bytes. Raises Unreadable."""

_PRIMITIVES: dict[str, type[DataType]] = {
    "boolean": BooleanType,
    "int": IntegerType,
    "long": LongType,
    "float": FloatType,
    "double": DoubleType,
    "string": StringType,
    "bytes": BinaryType,
    "fixed": BinaryType,
    "enum": StringType,
}
_LOGICAL: dict[tuple[str, str], type[DataType]] = {
    ("int", "date"): DateType,
    ("long", "timestamp-millis"): TimestampType,
    ("long", "timestamp-micros"): TimestampType,
    ("long", "local-timestamp-millis"): TimestampNTZType,
    ("long", "local-timestamp-micros"): TimestampNTZType,
}
_INTEGERS = (ByteType, ShortType, IntegerType, LongType)
_WRITABLE_FROM: dict[type[DataType], tuple[type[DataType], ...]] = {
    IntegerType: _INTEGERS,
    LongType: _INTEGERS,
    FloatType: (FloatType, *_INTEGERS),
    DoubleType: (DoubleType, FloatType, *_INTEGERS),
    StringType: (StringType, BinaryType),
    BinaryType: (BinaryType, StringType),
}
"""Type → the column types that can be written as it; a type that is missing takes only itself. The cast of a batch
checks the values."""
_MOST_DIGITS = 38
_MOST_DECODERS = 1000
"""That a task keeps; a topic with values of more schemas than that makes them again."""


def spark_schema(schema: Schema) -> StructType:
    """Spark's struct for the record ``schema``. Raises DataSourceError for types that Spark does not have."""
    parsed = parsed_schema(schema)
    name = parsed.get("name", "the root") if isinstance(parsed, dict) else "the root"
    found, _ = _spark_type(parsed, {}, name)
    if not isinstance(found, StructType):
        raise _unsupported("the root of an Avro schema must be a record")
    return found


class AvroReader:
    """``decode`` is an Arrow UDF from binary to ``returns``: a struct of ``data``, and of ``error`` for a bad value.

    Spark pickles it to the workers with its schemas. Raises DataSourceError for a default that is not of its type.
    """

    def __init__(self, schema: Schema, writers: Mapping[int, Schema] | Writers | None) -> None:
        self._schema = parsed_schema(schema)
        given = {n: parsed_schema(each) for n, each in writers.items()} if isinstance(writers, Mapping) else {}
        self._writers = _Given(given) if isinstance(writers, Mapping) else writers
        self._data = spark_schema(schema)
        self.returns = StructType([StructField("data", self._data), StructField("error", StringType())])
        for writer in given.values() if isinstance(writers, Mapping) else [self._schema]:
            decoder(writer, self._schema)
        self._decoders: dict[int, _Decode] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_decoders": {}}

    def decode(self, values: pa.Array) -> pa.Array:
        if values.null_count == len(values):
            return pa.nulls(len(values), to_arrow_type(self.returns, timezone="UTC"))
        rows: list[Any] = [None] * len(values)
        errors: list[str | None] = [None] * len(values)
        decode = self._decoder()
        for index, value in enumerate(values.to_pylist()):
            if value is None:
                continue
            try:
                rows[index] = decode(value)
            except Unreadable as error:
                errors[index] = str(error)
        data = pa.array(rows, to_arrow_type(self._data, timezone="UTC"))
        return pa.StructArray.from_arrays([data, pa.array(errors, pa.string())], ["data", "error"])

    def _decoder(self) -> Callable[[bytes], Any]:
        if self._writers is None:
            whole = decoder(self._schema, self._schema)
            return lambda value: whole(value, 0)
        decoders, made = self._decoders, self._made

        def read(value: bytes) -> Any:
            try:
                number = schema_id_of(value)
            except SerializationError as error:
                raise Unreadable(str(error)) from None
            if number not in decoders:
                if len(decoders) == _MOST_DECODERS:
                    decoders.clear()
                decoders[number] = made(number)
            return decoders[number](value, FRAME.size)

        return read

    def _made(self, number: int) -> _Decode:
        """Whatever is wrong with a schema that anybody may have registered, it is its values that are unreadable."""
        assert self._writers is not None
        writer = self._writers(number)
        try:
            return decoder(writer, self._schema)
        except RecursionError:
            return never("its schema is nested too deeply")
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            return never(f"its schema cannot be read: {error!r}")


class _Given:
    """The writers' schemas that a program names."""

    def __init__(self, schemas: Mapping[int, Any]) -> None:
        self._schemas = schemas

    def __call__(self, number: int) -> Any:
        if number not in self._schemas:
            known = ", ".join(map(str, sorted(self._schemas)))
            raise Unreadable(f"its schema has id {number}; given are {known}")
        return self._schemas[number]


class AvroWriter:
    """``encode`` is an Arrow UDF from structs of the columns ``names`` to binary.

    ``columns`` are those of the DataFrame. Raises DataSourceError for a column that cannot be written as the schema's
    type; ``encode`` raises it for a value that the schema cannot hold.
    """

    def __init__(self, schema: Schema, schema_id: int | None, columns: StructType) -> None:
        self._schema = parsed_schema(schema)
        self._prefix = b"" if schema_id is None else framed(schema_id)
        self._wanted = spark_schema(schema)
        self.names = self._wanted.names
        named = StructType([each for each in columns.fields if each.name in self.names])
        self._columns = _cast_struct(named, self._wanted, "")

    def encode(self, rows: pa.Array) -> pa.Array:
        from fastavro import schemaless_writer

        encoded = []
        for row in self._written(rows):
            stream = BytesIO(self._prefix)
            stream.seek(len(self._prefix))
            try:
                schemaless_writer(stream, self._schema, row)
            except Exception as error:  # fastavro raises any error, depending on the row
                raise _unsupported_value(f"a row is not of the Avro schema: {error}") from error
            encoded.append(stream.getvalue())
        return pa.array(encoded, pa.binary())

    def _written(self, rows: pa.Array) -> list[dict[str, Any]]:
        """The rows as fastavro takes them. Raises DataSourceError for values that it would change, or cannot take."""
        converted = self._as_the_schema(rows)
        _check_values(converted, self._wanted, "")
        try:
            written: list[dict[str, Any]] = converted.to_pylist(maps_as_pydicts="strict")
        except UnicodeDecodeError as error:
            raise _unsupported_value(f"a text is not UTF-8: {error}") from error
        except ValueError as error:
            raise _unsupported_value(f"a key occurs twice in a map: {error}") from error
        return written

    def _as_the_schema(self, rows: pa.Array) -> pa.Array:
        """The rows in the types of the schema. fastavro would convert other types silently, as far as it can."""
        kinds = list(to_arrow_type(self._columns, timezone="UTC"))
        columns = []
        for kind in kinds:
            try:
                columns.append(rows.field(kind.name).cast(kind.type))
            except pa.ArrowException as error:
                raise _unsupported_value(f"a value of {kind.name} is not of the Avro schema: {error}") from error
        return pa.StructArray.from_arrays(columns, fields=kinds)


def _check_values(values: pa.Array, kind: DataType, where: str) -> None:
    """Raises DataSourceError for a null within the values, which are none, or a time that fastavro cannot write."""
    if isinstance(kind, StructType):
        for each in kind.fields:
            path = f"{where}.{each.name}" if where else each.name
            _check_nullable(values.field(each.name), each.dataType, each.nullable, path)
    elif isinstance(kind, ArrayType):
        _check_nullable(values.flatten(), kind.elementType, kind.containsNull, f"{where}[]")
    elif isinstance(kind, MapType) and len(values):
        first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
        within = values.items.slice(first, last - first)
        _check_nullable(within, kind.valueType, kind.valueContainsNull, f"{where}{{}}")
    elif isinstance(kind, DateType):
        _check_years(values.view(pa.int32()), DAYS, where)
    elif isinstance(kind, TimestampType | TimestampNTZType):
        _check_years(values.view(pa.int64()), MICROSECONDS, where)


def _check_nullable(values: pa.Array, kind: DataType, is_nullable: bool, where: str) -> None:
    if values.null_count and not is_nullable:
        raise _unsupported_value(f"a value of {where} is null, which the Avro schema does not allow there")
    _check_values(values.drop_null(), kind, where)


def _check_years(numbers: pa.Array, allowed: range, where: str) -> None:
    import pyarrow.compute as pc

    bounds = pc.min_max(numbers).as_py()
    if len(numbers) and not (bounds["min"] in allowed and bounds["max"] in allowed):
        raise _unsupported_value(f"a value of {where} is outside of the years 1 to 9999")


def _cast_struct(found: StructType, wanted: StructType, path: str) -> StructType:
    missing = [f"{path}{name}" for name in wanted.names if name not in found.names]
    if missing:
        raise _unsupported(f"the Avro schema has fields that are no columns: {', '.join(missing)}")
    twice = sorted({f"{path}{name}" for name in found.names if found.names.count(name) > 1})
    if twice:
        raise _unsupported(f"columns that occur twice cannot be written as Avro: {', '.join(twice)}")
    kinds = {each.name: each.dataType for each in wanted.fields}
    return StructType(
        [
            StructField(each.name, _cast_type(each.dataType, kinds[each.name], path + each.name))
            if each.name in kinds
            else each
            for each in found.fields
        ]
    )


def _cast_type(found: DataType, wanted: DataType, where: str) -> DataType:
    """The type to cast a column to before it is written. Raises DataSourceError if the cast would change values."""
    if isinstance(found, StructType) and isinstance(wanted, StructType):
        return _cast_struct(found, wanted, f"{where}.")
    if isinstance(found, ArrayType) and isinstance(wanted, ArrayType):
        return ArrayType(_cast_type(found.elementType, wanted.elementType, f"{where}[]"))
    if isinstance(found, MapType) and isinstance(wanted, MapType):
        key = _cast_type(found.keyType, wanted.keyType, f"the key of {where}")
        return MapType(key, _cast_type(found.valueType, wanted.valueType, f"{where}{{}}"))
    if isinstance(found, (NullType, *_WRITABLE_FROM.get(type(wanted), (type(wanted),)))):
        return wanted
    raise _unsupported(
        f"{where} is {found.simpleString()}, which is not written as {wanted.simpleString()}, the type that the Avro"
        " schema has there: cast the column"
    )


def parsed_schema(schema: Schema) -> Any:
    """The schema with full names, and without the logical types that Spark does not have. Raises DataSourceError."""
    try:
        import fastavro
    except ImportError:
        raise ConfigError(f"Avro needs fastavro, also on the executors; type: {install_line('avro')}") from None
    try:
        plain = json.loads(schema) if isinstance(schema, str) else schema
        return fastavro.parse_schema(without_unknown_types(plain))
    except Exception as error:  # fastavro raises any error, depending on the schema
        raise _unsupported(f"the Avro schema cannot be read: {error!r}") from None


def _spark_type(schema: Any, named: dict[str, Any], where: str) -> tuple[DataType, bool]:
    """The type, and whether it may be null. ``named``: name → type defined so far; None while it is being defined."""
    if isinstance(schema, list):
        return _union(schema, named, where)
    if isinstance(schema, str):
        if schema in named:
            return _named_type(schema, named, where)
        schema = {"type": schema}
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _spark_type(kind, named, where)
    if kind in ("record", "error"):
        return _record(schema, named, where), False
    if kind in ("fixed", "enum"):
        named[schema["name"]] = schema
    if kind == "array":
        element, nullable = _spark_type(schema["items"], named, f"{where}[]")
        return ArrayType(element, nullable), False
    if kind == "map":
        value, nullable = _spark_type(schema["values"], named, f"{where}{{}}")
        return MapType(StringType(), value, nullable), False
    if kind not in _PRIMITIVES:
        return _named_type(kind, named, where)
    return _primitive(schema, kind, where), False


def _primitive(schema: Mapping[str, Any], kind: str, where: str) -> DataType:
    logical = schema.get("logicalType")
    if logical == "decimal":
        if schema["precision"] > _MOST_DIGITS:
            raise _unsupported(f"{where} is a decimal of {schema['precision']} digits; Spark has {_MOST_DIGITS}")
        return DecimalType(schema["precision"], schema.get("scale", 0))
    return _LOGICAL.get((kind, str(logical)), _PRIMITIVES[kind])()


def _record(schema: Mapping[str, Any], named: dict[str, Any], where: str) -> StructType:
    name = schema["name"]
    named[name] = None
    fields = []
    for field in schema["fields"]:
        kind, nullable = _spark_type(field["type"], named, f"{where}.{field['name']}")
        fields.append(StructField(field["name"], kind, nullable))
    named[name] = schema
    return StructType(fields)


def _union(schema: list[Any], named: dict[str, Any], where: str) -> tuple[DataType, bool]:
    rest = [each for each in schema if each != "null"]
    if len(rest) != 1:
        raise _unsupported(f"{where} is a union of more than null and one type, which no Spark type is")
    return _spark_type(rest[0], named, where)[0], len(rest) < len(schema)


def _named_type(name: str, named: dict[str, Any], where: str) -> tuple[DataType, bool]:
    if name in named:
        if named[name] is None:
            raise _unsupported(f"{where} is a {name} in a {name}; Spark has no recursive types")
        return _spark_type(named[name], dict(named), where)
    raise _unsupported(f"{where} has the unknown Avro type {name!r}")


def without_unknown_types(schema: Any) -> Any:
    """The parsed JSON without the logical types that Spark does not have: such values are read as the type beneath.

    Those of nanoseconds stay: their numbers are read as timestamps, and timestamps as such numbers.
    """
    if isinstance(schema, list):
        return [without_unknown_types(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    plain = {name: without_unknown_types(each) if name in _NESTED else each for name, each in schema.items()}
    kind, logical = plain.get("type"), plain.get("logicalType")
    is_decimal = logical == "decimal" and kind in ("bytes", "fixed") and "precision" in plain
    is_nanos = kind == "long" and logical in NANOS
    if logical is not None and not is_decimal and not is_nanos and (str(kind), str(logical)) not in _LOGICAL:
        del plain["logicalType"]
    return plain


_NESTED = ("type", "items", "values", "fields")


def _unsupported_value(message: str) -> DataSourceError:
    return DataSourceError("SPARKLOG_UNSUPPORTED_VALUE", message)


def _unsupported(message: str) -> DataSourceError:
    return DataSourceError("SPARKLOG_UNSUPPORTED_SCHEMA", message)
