"""Lines of JSON as values with the id of their schema: what ``decoding.py`` makes of values, the other way round."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from sparklog.errors import SerializationError
from sparklog.registry.avro import avro_encoding, parsed
from sparklog.registry.avro_json import AvroJson
from sparklog.registry.json_schema import json_encoding
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.schema import AVRO, JSON, Schema
from sparklog.registry.serializing import Encoding, SchemaSerializer


class ValueEncoder:
    """``encode`` makes of a line of JSON a value in the wire format, under the topic's subject (``TOPIC-value``).

    ``schema`` is registered at the first value. Without one, values are written with the subject's newest version.
    """

    def __init__(self, registry: SchemaRegistry, schema: Schema | None = None) -> None:
        """Raises SerializationError for a text that is no such schema."""
        self._serializer = SchemaSerializer(
            registry, schema, lambda each: _encoding(registry, each), use_latest_version=schema is None
        )

    def prepare(self, topic: str) -> None:
        """Ask the registry now. Raises RegistryError, and SchemaNotFound where the subject has no version."""
        self._serializer.prepare(topic)

    def encode(self, topic: str, line: bytes | None) -> bytes | None:
        """The bytes of a value; None is a tombstone. Raises SerializationError for a line that is no such value."""
        return self._serializer.serialize(topic, line)


def _encoding(registry: SchemaRegistry, schema: Schema) -> Encoding:
    if schema.kind == AVRO:
        of_avro = parsed(registry, schema)
        values, avro = AvroJson(of_avro), avro_encoding(of_avro, None)
        return Encoding(avro.record, lambda line: avro.encode(values.value(_read(line, Decimal))))
    if schema.kind == JSON:
        plain = json_encoding(registry, schema, None, validate=True)
        return Encoding(plain.record, lambda line: plain.encode(_read(line, float)))
    raise SerializationError(f"its schema is of {schema.kind}; only AVRO and JSON are written here")


def _read(line: bytes, number: Callable[[str], Any]) -> Any:
    try:
        return json.loads(line.decode(), parse_float=number, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise SerializationError(f"it is no JSON: {error.msg}, character {error.pos + 1}") from None
    except (ValueError, RecursionError):
        raise SerializationError("it is no JSON that can be read") from None


def _no_constant(name: str) -> Any:
    raise ValueError(name)
