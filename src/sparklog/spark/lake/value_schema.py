"""How the values of a decoded table are decoded, as the table itself says it: a property that the offload writes.

A read of the table and the log as one decodes the log's records in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparklog.errors import DataSourceError
from sparklog.spark.lake.decoding import Decoding
from sparklog.spark.values.avro import Writers
from sparklog.spark.values.formats import ValueFormat

VALUES_PROPERTY = "sparklog.values"
"""JSON, as ``ValueSchema.to_json`` writes it."""
_IN_A_REGISTRY = "registry"
"""In place of the schemas of writers: how the registry is reached, and by which password, is in no table."""


class _InARegistry(ValueError):
    """The schemas of the values are in a registry that the caller does not name."""


@dataclass(frozen=True)
class ValueSchema:
    """A value, which is pickled. Its schema can be read without a Spark session."""

    values: ValueFormat
    is_text_key: bool = False
    """The column ``key`` is a string."""
    into: str | None = None
    """The one column that has all fields, as a struct; else each field is a column."""
    has_dead_letters: bool = False
    """Records that do not decode are not in the table, but in another."""

    @classmethod
    def recorded(
        cls, values: ValueFormat, *, is_text_key: bool, into: str | None, has_dead_letters: bool
    ) -> ValueSchema:
        """Of an offload. Raises DataSourceError for a schema that cannot be read; one in DDL needs a Spark session."""
        return cls(values.without_session(), is_text_key, into, has_dead_letters)

    def decoding(self) -> Decoding:
        """Raises DataSourceError for a schema that cannot be read."""
        return Decoding(self.values.decoder(), self.is_text_key, self.into, self.has_dead_letters)

    def to_json(self) -> str:
        """One line."""
        given, writers = self.values.writers, None
        if isinstance(given, Mapping):
            writers = {str(number): text for number, text in given.items()}
        return json.dumps(
            {
                "format": self.values.name,
                "schema": self.values.schema,
                "writers": _IN_A_REGISTRY if callable(given) else writers,
                "textKey": self.is_text_key,
                "into": self.into,
                "deadLetters": self.has_dead_letters,
            }
        )

    @classmethod
    def from_json(cls, text: str, registry: Writers | None = None) -> ValueSchema:
        """``registry`` has the schemas of writers, where the table says that they are in one.

        Raises ValueError for another text, and where the registry is missing.
        """
        try:
            told = json.loads(text)
            values = ValueFormat(told["format"], told["schema"], _writers(told["writers"], registry))
            return cls(values, told["textKey"], told["into"], told["deadLetters"])
        except _InARegistry:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, DataSourceError) as error:
            said = f"its property {VALUES_PROPERTY} is not as an offload writes it: {text[:200]!r}"
            raise ValueError(said) from error


def _writers(told: Any, registry: Writers | None) -> Mapping[int, str] | Writers | None:
    if told is None:
        return None
    if told != _IN_A_REGISTRY:
        return {int(number): text for number, text in told.items()}
    if registry is None:
        raise _InARegistry(
            "its values have their schemas in a registry, which a table does not name; the option schema.registry.url"
            " names it"
        )
    return registry
