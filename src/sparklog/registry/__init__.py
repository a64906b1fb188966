"""Schema registries with Confluent's API: their client, and the values that are written by their ids.

``SchemaRegistry`` asks one. ``AvroSerializer``, ``AvroDeserializer``, ``JsonSerializer`` and ``JsonDeserializer`` are
for ``Producer`` and ``Consumer``; ``ValueDecoder`` makes text for people of any value, and ``ValueEncoder`` a value of
such text. They are imported when they are first named.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparklog.registry.avro import AvroDeserializer as AvroDeserializer
    from sparklog.registry.avro import AvroSerializer as AvroSerializer
    from sparklog.registry.decoding import ValueDecoder as ValueDecoder
    from sparklog.registry.encoding import ValueEncoder as ValueEncoder
    from sparklog.registry.json_schema import JsonDeserializer as JsonDeserializer
    from sparklog.registry.json_schema import JsonSerializer as JsonSerializer
    from sparklog.registry.registry import SchemaRegistry as SchemaRegistry
    from sparklog.registry.schema import Reference as Reference
    from sparklog.registry.schema import Schema as Schema

_HOMES = {
    "AvroDeserializer": "avro",
    "AvroSerializer": "avro",
    "JsonDeserializer": "json_schema",
    "JsonSerializer": "json_schema",
    "Reference": "schema",
    "Schema": "schema",
    "SchemaRegistry": "registry",
    "ValueDecoder": "decoding",
    "ValueEncoder": "encoding",
}

__all__ = [
    "AvroDeserializer",
    "AvroSerializer",
    "JsonDeserializer",
    "JsonSerializer",
    "Reference",
    "Schema",
    "SchemaRegistry",
    "ValueDecoder",
    "ValueEncoder",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
