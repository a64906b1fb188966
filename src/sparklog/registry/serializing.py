"""Which schema of the registry a serializer writes with, by topic."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from sparklog.errors import ConfigError
from sparklog.registry.questions import Questions
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.schema import Schema
from sparklog.registry.subjects import SubjectName, subject_name
from sparklog.registry.wire import framed


class Encoding(NamedTuple):
    """How values of one schema are written."""

    record: str
    """The full name of the record; empty if it has none."""
    encode: Callable[[Any], bytes]
    """Raises SerializationError for a value that is not of the schema."""


class SchemaSerializer:
    """A ``key_serializer`` or ``value_serializer`` of a producer: writes values with a schema of a registry.

    The first value of a topic waits for the registry; ``prepare`` asks before. ``is_key`` names the subject of keys.
    ``schema`` is registered, or with ``auto_register_schemas=False`` looked up. With ``use_latest_version`` values are
    written with the subject's newest version instead, and ``schema`` may be left out. None stays None: a tombstone.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: Schema | None,
        encoding: Callable[[Schema], Encoding],
        *,
        is_key: bool = False,
        subject_name_strategy: str | SubjectName = "TopicNameStrategy",
        auto_register_schemas: bool = True,
        use_latest_version: bool = False,
        normalize_schemas: bool = False,
    ) -> None:
        """Raises ConfigError without a schema and without ``use_latest_version``."""
        if schema is None and not use_latest_version:
            raise ConfigError("a serializer needs a schema, or use_latest_version=True to take the registry's")
        self._registry = registry
        self._schema = schema
        self._encoding = encoding
        self._own = None if schema is None else encoding(schema)
        self._is_key = is_key
        self._subject = subject_name(subject_name_strategy)
        self._registers = auto_register_schemas
        self._takes_latest = use_latest_version
        self._normalizes = normalize_schemas
        self._questions = Questions()
        self._topics: dict[str, tuple[bytes, Callable[[Any], bytes]]] = {}

    def serialize(self, topic: str, value: Any) -> bytes | None:
        """The bytes. Raises SerializationError for a value that is not of the schema, and RegistryError."""
        if value is None:
            return None
        found = self._topics.get(topic)
        prefix, encode = found if found is not None else self._asked(topic)
        return prefix + encode(value)

    def prepare(self, topic: str) -> None:
        """Ask the registry now for what values of ``topic`` are written with."""
        self._asked(topic)

    def _asked(self, topic: str) -> tuple[bytes, Callable[[Any], bytes]]:
        return self._questions.once(
            self._topics, topic, topic, partial(self._latest if self._takes_latest else self._given, topic)
        )

    def _latest(self, topic: str) -> tuple[bytes, Callable[[Any], bytes]]:
        record = "" if self._own is None else self._own.record
        latest = self._registry.latest(self._subject(topic, self._is_key, record))
        return framed(latest.id), self._encoding(latest.schema).encode

    def _given(self, topic: str) -> tuple[bytes, Callable[[Any], bytes]]:
        assert self._schema is not None
        assert self._own is not None
        subject = self._subject(topic, self._is_key, self._own.record)
        ask = self._registry.register if self._registers else self._registry.id_of
        return framed(ask(subject, self._schema, normalize=self._normalizes)), self._own.encode
