"""Values of any schema as JSON text, for people: a command line, a web page."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from sparklog.errors import SerializationError
from sparklog.registry.avro import avro_reader, parsed_of_writer
from sparklog.registry.json_schema import read_json
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.schema import AVRO, JSON, Schema
from sparklog.registry.wire import schema_id_of

_Decode = Callable[[bytes], str]
_MOST_ZEROS = 100
"""Of a decimal that is written out: a scale may be of a thousand million digits, and its number of one."""


class ValueDecoder:
    """``decode`` makes JSON text of a value in the wire format, by whatever schema its id is."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._decoders: dict[int, _Decode] = {}

    def decode(self, data: bytes) -> str:
        """One line of JSON. Bytes are text by Latin-1, as in Avro's JSON; decimals and times are text; so is NaN.

        Raises SerializationError for bytes that are no such value, SchemaNotFound for an id that the registry does not
        have, RegistryUnavailable when it cannot be asked.
        """
        schema_id = schema_id_of(data)
        decode = self._decoders.get(schema_id)
        if decode is None:
            decode = self._decoders[schema_id] = self._decoder(self._registry.schema(schema_id))
        return decode(data)

    def _decoder(self, schema: Schema) -> _Decode:
        if schema.kind == AVRO:
            read = avro_reader(parsed_of_writer(self._registry, schema))
            return lambda data: as_line(read(data))
        if schema.kind == JSON:
            return lambda data: as_line(read_json(data))
        raise SerializationError(f"its schema is of {schema.kind}; only AVRO and JSON are read here")


def as_line(value: Any) -> str:
    """The value as one line of JSON. Raises SerializationError for one of too many levels."""
    try:
        return _line(value)
    except RecursionError:
        raise SerializationError("it has too many levels to be shown") from None


def _line(value: Any) -> str:
    try:
        line = json.dumps(value, ensure_ascii=False, default=_plain, allow_nan=False)
    except ValueError:  # it has a NaN or an infinity somewhere
        value = _without_constants(value)
        line = json.dumps(value, ensure_ascii=False, default=_plain)
    try:
        line.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can name and no file can hold
        return json.dumps(value, default=_plain)
    return line


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        is_short = value.is_finite() and abs(value.adjusted()) < _MOST_ZEROS
        return format(value, "f") if is_short else str(value)
    return str(value)


def _without_constants(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _without_constants(each) for name, each in value.items()}
    return [_without_constants(each) for each in value] if isinstance(value, list) else value
