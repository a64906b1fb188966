"""What a few bytes of a value of an Avro schema may make.

A null takes no bytes, and so does a record of nulls, or a fixed of size 0. So nine bytes can say that an array has 30
million of them, and thirty records of two fields each, of the next record, are 2^30 nulls. fastavro makes them all. A
schema of which a few bytes could make so much is refused; then a value has at most a number of parts for each byte.
Spark's decoder counts them too, and passes over those that are not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparklog.errors import SerializationError

MOST_DIGITS = 10_000
"""No decimal that is meant has more, before the point or behind it; a schema can say a thousand million."""
_FOR_EACH = 10
"""So many parts without bytes a record may have for each field that takes some, and for itself."""
_PLAIN = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


def refuse_unbounded(schema: Any) -> None:
    """``schema`` is parsed by fastavro. Raises SerializationError where few bytes could make very many parts."""
    empty = EmptyParts(schema)
    for each in empty.schemas:
        if each["type"] == "array" and empty.of(each["items"]):
            raise SerializationError("an array of values that take no bytes is not read: its length has no bound")
        if "fields" in each:
            _check_record(each, empty)


def _check_record(record: Mapping[str, Any], empty: EmptyParts) -> None:
    parts = [empty.of(each["type"]) for each in record["fields"]]
    if sum(parts) > _FOR_EACH * (1 + parts.count(0)):
        raise SerializationError(f"the record {record['name']} has {sum(parts)} parts that take no bytes: too many")


class EmptyParts:
    """Of a schema that fastavro has parsed: which of its types take no bytes, and how many parts these have."""

    def __init__(self, schema: Any) -> None:
        self.schemas: list[Any] = []
        """All types that are not just a name."""
        self._named: dict[str, Mapping[str, Any]] = {}
        self._records: dict[str, int] = {}
        self._collect(schema)

    def of(self, schema: Any) -> int:
        """The parts of a value of the type that takes no bytes; 0 where a value takes some."""
        if isinstance(schema, str):
            if schema in _PLAIN:
                return int(schema == "null")
            schema = self._named[schema]
        if isinstance(schema, list):
            return 0
        if "fields" in schema:
            return self._record(schema)
        return int(schema["type"] == "null" or (schema["type"] == "fixed" and schema["size"] == 0))

    def _record(self, record: Mapping[str, Any]) -> int:
        name = record["name"]
        if name not in self._records:
            self._records[name] = 1  # while it is asked for: a record of itself has no end, and no value
            parts = [self.of(each["type"]) for each in record["fields"]]
            self._records[name] = 1 + sum(parts) if all(parts) else 0
        return self._records[name]

    def _collect(self, schema: Any) -> None:
        if isinstance(schema, list):
            for each in schema:
                self._collect(each)
        elif isinstance(schema, Mapping):
            self.schemas.append(schema)
            if "name" in schema:
                self._named[schema["name"]] = schema
            for part in (*(each["type"] for each in schema.get("fields", ())), *map(schema.get, ("items", "values"))):
                self._collect(part)
