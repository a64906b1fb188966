"""JSON as ``decoding.py`` shows Avro values, made again what fastavro takes.

A union has no tag: the value is of the first branch that it can be of. Bytes are text by Latin-1; dates, times and
decimals are text, dates and times also the numbers that Avro keeps; NaN and the infinities are text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from sparklog.errors import SerializationError
from sparklog.registry.avro_bounds import MOST_DIGITS

_Convert = Callable[[Any], Any]
_CONSTANTS = ("nan", "inf", "-inf")
_TYPES: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "string": (str,),
    "enum": (str,),
}


class AvroJson:
    """Makes of parsed JSON values of a schema that fastavro has parsed; the numbers with a point in it are Decimals."""

    def __init__(self, schema: Any) -> None:
        self._named: dict[str, Any] = {}
        self._schema = schema
        self._note(schema)

    def value(self, found: Any) -> Any:
        """Raises SerializationError for what is no value of the schema, as far as it looks; fastavro looks at all."""
        try:
            return self._of(self._schema, found, "")
        except RecursionError:
            raise SerializationError("the value has too many levels") from None

    def _note(self, schema: Any) -> None:
        """Names that later parts refer to."""
        if isinstance(schema, list):
            for each in schema:
                self._note(each)
        elif isinstance(schema, Mapping):
            if "name" in schema:
                self._named[schema["name"]] = schema
            for field in schema.get("fields", ()):
                self._note(field["type"])
            for part in ("type", "items", "values"):
                self._note(schema.get(part))

    def _of(self, schema: Any, found: Any, place: str) -> Any:
        """``place`` says which part of the whole it is."""
        if isinstance(schema, list):
            return self._of_union(schema, found, place)
        if isinstance(schema, str):
            schema = self._named.get(schema, {"type": schema})
        kind = schema["type"]
        if isinstance(kind, Mapping | list):
            return self._of(kind, found, place)
        if "logicalType" in schema and (convert := _LOGICAL.get(schema["logicalType"])):
            return _converted(convert, found, schema["logicalType"], place)
        if kind in ("record", "error"):
            return self._of_record(schema, found, place)
        if kind == "array":
            _check(isinstance(found, list), found, "array", place)
            return [self._of(schema["items"], each, f"{place}[{number}]") for number, each in enumerate(found)]
        if kind == "map":
            _check(isinstance(found, dict), found, "map", place)
            return {name: self._of(schema["values"], each, f"{place}.{name}") for name, each in found.items()}
        value = _of_primitive(kind, found, place)
        _check(kind != "fixed" or len(value) == schema["size"], found, f"fixed {schema.get('name')}", place)
        return value

    def _of_union(self, branches: list[Any], found: Any, place: str) -> Any:
        why = []
        for branch in branches:
            try:
                return self._of(branch, found, place)
            except SerializationError as error:
                why.append(str(error))
        raise SerializationError(why[-1] if why else f"{place or 'the value'}: an empty union has no values")

    def _of_record(self, schema: Any, found: Any, place: str) -> dict[str, Any]:
        _check(isinstance(found, dict), found, f"record {schema['name']}", place)
        fields = {field["name"]: field for field in schema["fields"]}
        for name in found:
            if name not in fields:  # misspelt, it would be left out without a word
                where = f"{place}: " if place else ""
                raise SerializationError(f"{where}record {schema['name']} has no field {name!r}")
        for name, field in fields.items():
            if name not in found and "default" not in field:
                where = f"{place}: " if place else ""
                raise SerializationError(f"{where}the field {name!r} of record {schema['name']} is missing")
        return {name: self._of(fields[name]["type"], each, f"{place}.{name}") for name, each in found.items()}


def _of_primitive(kind: str, found: Any, place: str) -> Any:
    if kind in ("float", "double"):
        is_number = isinstance(found, int | Decimal) and not isinstance(found, bool)
        _check(is_number or found in _CONSTANTS, found, kind, place)
        return _converted(_float, found, kind, place)
    if kind in ("bytes", "fixed"):
        return _converted(_bytes, found, kind, place)
    right = isinstance(found, _TYPES[kind]) and (kind == "boolean" or not isinstance(found, bool))
    _check(right, found, kind, place)
    return found


def _check(is_right: bool, found: Any, kind: str, place: str) -> None:
    if not is_right:
        shown = repr(str(found) if isinstance(found, Decimal) else found)
        raise SerializationError(f"{place.removeprefix('.') or 'the value'}: {shown[:100]} is not of Avro's {kind}")


def _converted(convert: _Convert, found: Any, kind: str, place: str) -> Any:
    try:
        return convert(found)
    except (ValueError, TypeError, ArithmeticError):
        _check(False, found, kind, place)


def _bytes(found: Any) -> bytes:
    if not isinstance(found, str):
        raise TypeError
    return found.encode("latin-1")


def _float(found: Any) -> float:
    number = float(found)
    if math.isinf(number) and found not in _CONSTANTS:
        raise OverflowError
    return number


def _number_or(parse: Callable[[str], Any]) -> _Convert:
    def convert(found: Any) -> Any:
        if isinstance(found, int) and not isinstance(found, bool):
            return found
        if not isinstance(found, str):
            raise TypeError
        return parse(found)

    return convert


def _decimal(found: Any) -> Decimal:
    if isinstance(found, bool) or not isinstance(found, str | int | Decimal):
        raise TypeError
    number = Decimal(found)
    if number.is_finite() and abs(number.adjusted()) > MOST_DIGITS:
        raise OverflowError  # fastavro would make a whole number of it, before it counts its digits
    return number


_LOGICAL: dict[str, _Convert] = {
    "decimal": _decimal,
    "date": _number_or(date.fromisoformat),
    "time-millis": _number_or(time.fromisoformat),
    "time-micros": _number_or(time.fromisoformat),
    **dict.fromkeys(
        (f"{room}timestamp-{unit}" for room in ("", "local-") for unit in ("millis", "micros")),
        _number_or(datetime.fromisoformat),
    ),
}
