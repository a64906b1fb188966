"""The schemas of a schema registry, on the driver and in Spark's workers.

A worker asks for an id when it meets it, and keeps the schema as long as it lives. A registry that cannot be asked
fails the task, which Spark tries again; only an id that the registry does not have makes a value unreadable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from sparklog.errors import ConfigError, DataSourceError, RegistryError, RegistryUnavailable, SchemaNotFound
from sparklog.registry.avro import of_writer, whole
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.schema import AVRO, JSON, Registered, Schema
from sparklog.registry.settings import RegistrySettings
from sparklog.spark.values.avro import parsed_schema
from sparklog.spark.values.decoded import Unreadable

_MOST_KEPT = 10_000
_Properties = tuple[tuple[str, str], ...]
"""The settings of a registry."""


def registry_settings(given: Mapping[str, Any]) -> _Properties:
    """The settings as they go to workers: with passwords, so in nothing that a plan shows. Raises ConfigError."""
    return tuple(sorted(RegistrySettings.of(given).properties().items()))


@dataclass(frozen=True)
class RegistryWriters:
    """The schemas that values were written with, by id."""

    properties: _Properties = field(repr=False)

    def __call__(self, number: int) -> Any:
        """The schema of that id, parsed.

        Raises Unreadable if there is none of Avro, DataSourceError without an answer.
        """
        try:
            found = _writer(self.properties, number)
        except SchemaNotFound as error:
            raise Unreadable(f"its schema has id {number}, which the registry does not have") from error
        if isinstance(found, Unreadable):
            raise Unreadable(*found.args)
        return found


@lru_cache(maxsize=_MOST_KEPT)
def _writer(properties: _Properties, number: int) -> Any:
    """The parsed schema, or Unreadable with the reason why it is none: that stays so, and is kept as well."""
    with asking():
        registry = _registry(properties)
        schema = registry.schema(number)
        if schema.kind != AVRO:
            return Unreadable(f"its schema, of id {number}, is of {schema.kind}, not of Avro")
        try:
            return of_writer(registry, schema, parsed_schema)
        except (RegistryError, ConfigError):
            raise
        except Exception as error:  # fastavro raises any error, depending on the schema
            return Unreadable(f"its schema, of id {number}, cannot be read: {error}")


@lru_cache(maxsize=16)
def _registry(properties: _Properties) -> SchemaRegistry:
    return SchemaRegistry(dict(properties))


@contextmanager
def asking() -> Iterator[None]:
    """Raises what a registry refuses as DataSourceError, which Spark's users see. SchemaNotFound stays what it is."""
    try:
        yield
    except RegistryUnavailable as error:
        raise DataSourceError("SPARKLOG_REGISTRY_UNAVAILABLE", str(error)) from error
    except SchemaNotFound:
        raise
    except RegistryError as error:
        raise DataSourceError("SPARKLOG_REGISTRY_REFUSED", str(error)) from error


def latest_schema(properties: _Properties, subject: str) -> tuple[Registered, Any]:
    """The newest version of a subject, and its parsed JSON. Raises DataSourceError if there is none."""
    with _answering(), asking():
        registry = _registry(properties)
        found = registry.latest(subject)
        if found.schema.kind not in (AVRO, JSON):
            raise DataSourceError(
                "SPARKLOG_UNSUPPORTED_SCHEMA", f"{subject} has schemas of {found.schema.kind}; AVRO and JSON are read"
            )
        return found, whole(registry, found.schema) if found.schema.kind == AVRO else found.schema.text


def known_writers(properties: _Properties, subject: str) -> dict[int, Any]:
    """The Avro schemas that a subject has now, by id, as parsed JSON. Raises DataSourceError if there is none."""
    with _answering(), asking():
        registry = _registry(properties)
        versions = [registry.version(subject, each) for each in registry.versions(subject)]
        return {each.id: whole(registry, each.schema) for each in versions if each.schema.kind == AVRO}


def id_of(properties: _Properties, subject: str, text: str, *, registers: bool) -> int:
    """The id of an Avro schema under a subject. Raises DataSourceError if it has none there."""
    with _answering(), asking():
        registry = _registry(properties)
        ask = registry.register if registers else registry.id_of
        return ask(subject, Schema(text))


@contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except SchemaNotFound as error:
        raise DataSourceError("SPARKLOG_REGISTRY_REFUSED", str(error)) from error
