"""Avro's binary encoding to Arrow structs and back, by fastavro, with Avro's types as Spark knows them.

| Avro | Spark |
| --- | --- |
| boolean, int, long, float, double, string, bytes | boolean, int, long, float, double, string, binary |
| fixed, enum, array, map, record | binary, string, array, map, struct |
| union of null and one type | that type, nullable |
| date; timestamp-millis, -micros; local-timestamp-millis, -micros | date; timestamp; timestamp_ntz |
| decimal | decimal, up to 38 digits |
| any other logical type | the type beneath |

A column to be written may also be of what Avro promotes to these (int to long, integers to float and double, float to
double, string and bytes to each other), of another integer or decimal, or a struct with more fields: each value must be
the same in both. Of a timestamp what is below the milliseconds is cut off for -millis, as by Spark's ``to_avro``.
"""

from __future__ import annotations

import json
import struct
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

from sparklog.errors import ConfigError, DataSourceError
from sparklog.local.extras import install_line

Schema = str | Mapping[str, Any]
"""JSON text, or what it parses to."""

_FRAME = struct.Struct(">bi")
"""Before a value in the wire format of schema registries: zero, and the schema's id."""

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
_TAKEN: dict[type[DataType], tuple[type[DataType], ...]] = {
    IntegerType: _INTEGERS,
    LongType: _INTEGERS,
    FloatType: (FloatType, *_INTEGERS),
    DoubleType: (DoubleType, FloatType, *_INTEGERS),
    StringType: (StringType, BinaryType),
    BinaryType: (BinaryType, StringType),
}
"""The columns that are written as a type, if not that type alone; the cast of a batch checks their values."""
_MOST_DIGITS = 38


def spark_schema(schema: Schema) -> StructType:
    """The struct that a record of ``schema`` is to Spark. Raises DataSourceError for what Spark cannot hold."""
    parsed = _parsed(schema)
    name = parsed.get("name", "the root") if isinstance(parsed, dict) else "the root"
    found, _ = _spark_type(parsed, {}, name)
    if not isinstance(found, StructType):
        raise _unsupported("the root of an Avro schema must be a record")
    return found


class AvroReader:
    """``decode`` is an Arrow UDF from binary to ``returns``: ``data``, or ``error``, which says why there is none.

    Pickled to the workers with its schemas.
    """

    def __init__(self, schema: Schema, writers: Mapping[int, Schema] | None) -> None:
        self._schema = _parsed(schema)
        self._writers = None if writers is None else {number: _parsed(each) for number, each in writers.items()}
        self._data = spark_schema(schema)
        self.returns = StructType([StructField("data", self._data), StructField("error", StringType())])

    def decode(self, values: pa.Array) -> pa.Array:
        rows: list[Any] = [None] * len(values)
        errors: list[str | None] = [None] * len(values)
        decode = self._decoder()
        for index, value in enumerate(values.to_pylist()):
            if value is None:
                continue
            try:
                rows[index] = decode(value)
            except _Unreadable as error:
                errors[index] = str(error)
            except Exception as error:  # fastavro raises whatever the bytes lead it to
                errors[index] = _not_of_the_schema(error)
        data = self._columns(rows, errors)
        return pa.StructArray.from_arrays([data, pa.array(errors, pa.string())], ["data", "error"])

    def _columns(self, rows: list[Any], errors: list[str | None]) -> pa.Array:
        """What bytes may say and a column cannot hold, such as an int of 40 bits, is found row by row."""
        kind = to_arrow_type(self._data, timezone="UTC")
        try:
            return pa.array(rows, kind)
        except (pa.ArrowException, OverflowError, ValueError):
            for index, row in enumerate(rows):
                try:
                    pa.array([row], kind)
                except (pa.ArrowException, OverflowError, ValueError) as error:
                    rows[index], errors[index] = None, _not_of_the_schema(error)
            return pa.array(rows, kind)

    def _decoder(self) -> Callable[[bytes], Any]:
        from fastavro import schemaless_reader

        reader = self._schema
        if self._writers is None:
            return lambda value: _whole(value, 0, lambda stream: schemaless_reader(stream, reader, None))
        writers = self._writers

        def framed(value: bytes) -> Any:
            if len(value) < _FRAME.size or value[0] != 0:
                raise _Unreadable("it does not begin with a zero byte and a schema's id")
            number = _FRAME.unpack_from(value)[1]
            if number not in writers:
                raise _Unreadable(f"its schema has id {number}; given are {', '.join(map(str, sorted(writers)))}")
            return _whole(value, _FRAME.size, lambda stream: schemaless_reader(stream, writers[number], reader))

        return framed


class _Unreadable(Exception):
    """Why a value is no record, in our words."""


def _not_of_the_schema(error: Exception) -> str:
    return f"it is not of the schema: {str(error) or type(error).__name__}"


class AvroWriter:
    """``encode`` is an Arrow UDF from structs of ``names`` to binary; DataSourceError for a row that cannot be held.

    ``columns`` are those of the DataFrame; DataSourceError for what no row of them could be.
    """

    def __init__(self, schema: Schema, schema_id: int | None, columns: StructType) -> None:
        self._schema = _parsed(schema)
        self._prefix = b"" if schema_id is None else _FRAME.pack(0, schema_id)
        wanted = spark_schema(schema)
        self.names = wanted.names
        named = StructType([each for each in columns.fields if each.name in wanted.names])
        self._columns = _struct_as(named, wanted, "")

    def encode(self, rows: pa.Array) -> pa.Array:
        from fastavro import schemaless_writer

        encoded = []
        for row in self._as_the_schema(rows).to_pylist(maps_as_pydicts="strict"):
            stream = BytesIO(self._prefix)
            stream.seek(len(self._prefix))
            try:
                schemaless_writer(stream, self._schema, row)
            except Exception as error:  # fastavro raises whatever the row leads it to
                raise _not_to_be_held(f"a row is not of the Avro schema: {error}") from error
            encoded.append(stream.getvalue())
        return pa.array(encoded, pa.binary())

    def _as_the_schema(self, rows: pa.Array) -> pa.Array:
        """The rows in the types of the schema: of other types fastavro makes what it can, without a word."""
        kinds = list(to_arrow_type(self._columns, timezone="UTC"))
        columns = []
        for kind in kinds:
            try:
                columns.append(rows.field(kind.name).cast(kind.type))
            except pa.ArrowException as error:
                raise _not_to_be_held(f"a value of {kind.name} is not of the Avro schema: {error}") from error
        return pa.StructArray.from_arrays(columns, fields=kinds)


def _struct_as(found: StructType, wanted: StructType, path: str) -> StructType:
    missing = [f"{path}{name}" for name in wanted.names if name not in found.names]
    if missing:
        raise _unsupported(f"the Avro schema has fields that are no columns: {', '.join(missing)}")
    kinds = {each.name: each.dataType for each in wanted.fields}
    return StructType(
        [
            StructField(each.name, _type_as(each.dataType, kinds[each.name], path + each.name))
            if each.name in kinds
            else each
            for each in found.fields
        ]
    )


def _type_as(found: DataType, wanted: DataType, where: str) -> DataType:
    """What to cast a column to before it is written. Raises DataSourceError where values would become others."""
    if isinstance(found, StructType) and isinstance(wanted, StructType):
        return _struct_as(found, wanted, f"{where}.")
    if isinstance(found, ArrayType) and isinstance(wanted, ArrayType):
        return ArrayType(_type_as(found.elementType, wanted.elementType, f"{where}[]"))
    if isinstance(found, MapType) and isinstance(wanted, MapType):
        key = _type_as(found.keyType, wanted.keyType, f"the key of {where}")
        return MapType(key, _type_as(found.valueType, wanted.valueType, f"{where}{{}}"))
    if isinstance(found, (NullType, *_TAKEN.get(type(wanted), (type(wanted),)))):
        return wanted
    raise _unsupported(
        f"{where} is {found.simpleString()}, which is not written as {wanted.simpleString()}, the type that the Avro"
        " schema has there: cast the column"
    )


def _whole(value: bytes, start: int, read: Callable[[BytesIO], Any]) -> Any:
    stream = BytesIO(value)
    stream.seek(start)
    try:
        found = read(stream)
    except (EOFError, IndexError):
        if stream.tell() < len(value):
            raise
        raise _Unreadable("it ends in the middle of a record") from None
    if stream.tell() != len(value):
        raise _Unreadable(f"{len(value) - stream.tell()} bytes follow the record")
    return found


def _parsed(schema: Schema) -> Any:
    """The schema with full names, without the logical types that Spark has not."""
    try:
        import fastavro
    except ImportError:
        raise ConfigError(f"Avro needs fastavro, also on the executors; type: {install_line('avro')}") from None
    try:
        plain = json.loads(schema) if isinstance(schema, str) else schema
        return fastavro.parse_schema(_without_unknown_types(plain))
    except Exception as error:  # whatever is wrong with what was given
        raise _unsupported(f"the Avro schema cannot be read: {error!r}") from None


def _spark_type(schema: Any, named: dict[str, Any], where: str) -> tuple[DataType, bool]:
    """The type, and whether it may be null. ``named``: the types defined so far; None while one is being defined."""
    if isinstance(schema, list):
        return _union(schema, named, where)
    if isinstance(schema, str):
        if schema in named:
            return _again(schema, named, where)
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
        return _again(kind, named, where)
    return _primitive(schema, kind, where), False


def _primitive(schema: Mapping[str, Any], kind: str, where: str) -> DataType:
    logical = schema.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
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


def _again(name: str, named: dict[str, Any], where: str) -> tuple[DataType, bool]:
    if name in named:
        if named[name] is None:
            raise _unsupported(f"{where} is a {name} in a {name}; Spark has no recursive types")
        return _spark_type(named[name], dict(named), where)
    raise _unsupported(f"{where} has the unknown Avro type {name!r}")


def _without_unknown_types(schema: Any) -> Any:
    """The schema with no logical type but those that Spark has too: the others are read as what is beneath them."""
    if isinstance(schema, list):
        return [_without_unknown_types(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    plain = {name: _without_unknown_types(each) if name in _NESTED else each for name, each in schema.items()}
    kind, logical = plain.get("type"), plain.get("logicalType")
    if logical is not None and logical != "decimal" and (str(kind), str(logical)) not in _LOGICAL:
        del plain["logicalType"]
    return plain


_NESTED = ("type", "items", "values", "fields")


def _not_to_be_held(message: str) -> DataSourceError:
    return DataSourceError("SPARKLOG_UNSUPPORTED_VALUE", message)


def _unsupported(message: str) -> DataSourceError:
    return DataSourceError("SPARKLOG_UNSUPPORTED_SCHEMA", message)
