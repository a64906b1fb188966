"""One JSON value as a schema says, by Python's ``json``: the rules, which ``JsonDecoder`` keeps for many at once.

A value is one JSON object in UTF-8. Fields that the schema does not name are ignored; one that is missing is null; if
one occurs twice, the last counts. Types must be those of the schema:

| type | in JSON |
| --- | --- |
| boolean, string | the same |
| tinyint to bigint | a number without fraction and exponent, in its range |
| float, double | any number in its range: the nearest value |
| decimal | a number, or text of one, that has no more digits than the type |
| date | text, ``2026-01-31`` |
| timestamp | text by ISO 8601, up to six digits of a second; without an offset it is UTC |
| timestamp_ntz | the same, without an offset |
| array, struct | an array, an object |
| map from string | an object, no key of it twice |

NaN and infinities are not JSON. Text must be writable as UTF-8: half of a surrogate pair is not.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
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
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sparklog.errors import DataSourceError
from sparklog.spark.values.decoded import Unreadable

BITS: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]{1,3})?")
_Read = Callable[[Any], Any]


class _Integer(str):
    """A number without fraction and exponent, as it is written."""


class _Fraction(str):
    """Any other number, as it is written."""


class _Object(list[tuple[str, Any]]):
    """The fields of a JSON object."""


def json_value(schema: StructType) -> Callable[[bytes], dict[str, Any]]:
    """The function that decodes a value. It raises Unreadable.

    What it returns is as pyarrow takes it: dates are days, timestamps microseconds since 1970. Raises DataSourceError
    for a type that JSON does not have here.
    """
    read = _struct(schema, "")

    def decode(value: bytes) -> dict[str, Any]:
        found = _parsed(value)
        if not isinstance(found, _Object):
            raise Unreadable("it is not a JSON object")
        fields: dict[str, Any] = read(found)
        return fields

    return decode


def _parsed(value: bytes) -> Any:
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise Unreadable(f"it is not UTF-8, from byte {error.start} on") from None
    try:
        return json.loads(
            text,
            object_pairs_hook=_Object,
            parse_int=_Integer,
            parse_float=_Fraction,
            parse_constant=_no_constant,
        )
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            raise Unreadable("something follows the JSON object") from None
        raise Unreadable(f"it is not JSON: {error.msg}, at character {error.pos}") from None
    except RecursionError:
        raise Unreadable("it is nested too deeply") from None


def _no_constant(name: str) -> NoReturn:
    raise Unreadable(f"it is not JSON: {name} is no number of it")


def _read(kind: DataType, where: str) -> _Read:
    """Reads a value that is not null."""
    if isinstance(kind, StructType):
        return _struct(kind, where)
    if isinstance(kind, ArrayType):
        return _array(kind, where)
    if isinstance(kind, MapType):
        return _map(kind, where)
    scalar = _SCALARS.get(type(kind))
    if scalar is None:
        raise DataSourceError(
            "SPARKLOG_UNSUPPORTED_SCHEMA", f"{where} is {kind.simpleString()}, which is not read from JSON here"
        )
    return partial(scalar, kind, where)


def _struct(kind: StructType, where: str) -> _Read:
    path = f"{where}." if where else ""
    fields = [(each, path + each.name, _read(each.dataType, path + each.name)) for each in kind.fields]

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, _Object):
            raise _wrong(where, kind)
        given = dict(value)
        return {each.name: _field(given.get(each.name), each, name, inner) for each, name, inner in fields}

    return read


def _field(value: Any, field: StructField, where: str, read: _Read) -> Any:
    if value is not None:
        return read(value)
    if not field.nullable:
        raise Unreadable(f"it has no {where}")
    return None


def _array(kind: ArrayType, where: str) -> _Read:
    inner = _read(kind.elementType, f"{where}[]")

    def read(value: Any) -> list[Any]:
        if not isinstance(value, list) or isinstance(value, _Object):
            raise _wrong(where, kind)
        if not kind.containsNull and None in value:
            raise Unreadable(f"it has a null in {where}")
        return [None if each is None else inner(each) for each in value]

    return read


def _map(kind: MapType, where: str) -> _Read:
    if not isinstance(kind.keyType, StringType):
        raise DataSourceError(
            "SPARKLOG_UNSUPPORTED_SCHEMA", f"{where} is {kind.simpleString()}: in JSON the keys of a map are strings"
        )
    inner = _read(kind.valueType, f"{where}{{}}")

    def read(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, _Object):
            raise _wrong(where, kind)
        if len({key for key, _ in value}) < len(value):
            raise Unreadable(f"it has a key twice in {where}")
        if not kind.valueContainsNull and any(each is None for _, each in value):
            raise Unreadable(f"it has a null in {where}")
        return [(_text(key, where), None if each is None else inner(each)) for key, each in value]

    return read


# Scalars


def _boolean(kind: DataType, where: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(where, kind)
    return value


def _integer(kind: DataType, where: str, value: Any) -> int:
    if not isinstance(value, _Integer) or len(value) > 20:
        raise _wrong(where, kind)
    number, limit = int(value), 1 << (BITS[type(kind)] - 1)
    if not -limit <= number < limit:
        raise _wrong(where, kind)
    return number


def _double(kind: DataType, where: str, value: Any) -> float:
    if not isinstance(value, _Integer | _Fraction):
        raise _wrong(where, kind)
    number = float(value)
    if isinstance(kind, FloatType):
        with np.errstate(over="ignore"):
            number = float(np.float32(number))
    if not math.isfinite(number):
        raise _wrong(where, kind)
    return number


def _decimal(kind: DataType, where: str, value: Any) -> Decimal:
    if not isinstance(value, str) or not _NUMBER.fullmatch(value):
        raise _wrong(where, kind)
    try:
        number = pa.scalar(Decimal(value), pa.decimal128(kind.precision, kind.scale))
    except (pa.ArrowException, ValueError):
        raise _wrong(where, kind) from None
    found: Decimal = number.as_py()
    return found


def _string(kind: DataType, where: str, value: Any) -> str:
    if not isinstance(value, str) or isinstance(value, _Integer | _Fraction):
        raise _wrong(where, kind)
    return _text(value, where)


def _text(value: str, where: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Unreadable(f"it has half of a surrogate pair in {where}") from None
    return value


def _moment(kind: DataType, where: str, value: Any) -> int:
    text = _string(kind, where, value)
    try:
        found: int = as_moments(pa.array([text]), kind).view(STORED[type(kind)])[0].as_py()
    except pa.ArrowException:
        raise _wrong(where, kind) from None
    return found


_MICROS, _UTC_MICROS = pa.timestamp("us"), pa.timestamp("us", "UTC")
STORED: dict[type[DataType], pa.DataType] = {
    DateType: pa.int32(),
    TimestampType: pa.int64(),
    TimestampNTZType: pa.int64(),
}
"""The types of time, and the numbers that they are."""


def as_moments(texts: pa.Array, kind: DataType) -> pa.Array:
    """Texts as dates or timestamps. Raises ArrowException if one is none."""
    if isinstance(kind, DateType):
        return texts.cast(pa.date32())
    if isinstance(kind, TimestampNTZType):
        return texts.cast(_MICROS)
    try:
        return texts.cast(_UTC_MICROS)
    except pa.ArrowException:  # one has no offset; where others have one, this raises too
        return texts.cast(_MICROS).cast(_UTC_MICROS)


_SCALARS: dict[type[DataType], Callable[[Any, str, Any], Any]] = {
    BooleanType: _boolean,
    **dict.fromkeys(BITS, _integer),
    FloatType: _double,
    DoubleType: _double,
    DecimalType: _decimal,
    StringType: _string,
    **dict.fromkeys(STORED, _moment),
}


def _wrong(where: str, kind: DataType) -> Unreadable:
    return Unreadable(f"it is not of the schema: {where or 'the root'} is not {kind.simpleString()}")
