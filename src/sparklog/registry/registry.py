"""``SchemaRegistry``: what a registry knows of schemas, asked once and kept."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

from sparklog.clock import Clock, SystemClock
from sparklog.errors import IncompatibleSchema, RegistryError, SchemaNotFound
from sparklog.registry.http import HttpRegistry
from sparklog.registry.questions import Questions
from sparklog.registry.schema import (
    Reference,
    Registered,
    Schema,
    names_of,
    number_of,
    numbers_of,
    registered_of,
    schema_of,
)
from sparklog.registry.settings import RegistrySettings

_UNKNOWN_FOR_S = 5.0
"""For how long it is believed that there is no schema of an id. A registry may learn of one later than the log."""
_MOST_UNKNOWN = 1000
_DEEPEST = 100
"""So many schemas may refer to one another in a row."""
_IN_WORDS = {
    "BACKWARD": "it must read what its latest version wrote, so a field that is new needs a default",
    "BACKWARD_TRANSITIVE": "it must read what all its versions wrote, so a field that is new needs a default",
    "FORWARD": "its latest version must read what it writes, so a field that is gone must have had a default",
    "FORWARD_TRANSITIVE": "all its versions must read what it writes, so a field that is gone must have had a default",
    "FULL": "it and its latest version must read one another, so fields that come and go need defaults",
    "FULL_TRANSITIVE": "it and all its versions must read one another, so fields that come and go need defaults",
}
"""The compatibility of a subject → what a schema must be."""


class SchemaRegistry:
    """A client of a registry with Confluent's API. Karapace was tried; docs/schema-registry.md says what was not.

    Settings by the names of Kafka's serializers, as a mapping or as keywords with underscores
    (``schema_registry_url="http://host:8081"``, ``basic_auth_user_info="user:password"``). For any thread; it blocks.
    Every call raises RegistryUnavailable when no server answers, and RegistryError for what is refused.
    """

    def __init__(self, settings: Mapping[str, Any] | None = None, *, clock: Clock | None = None, **more: Any) -> None:
        self.settings = RegistrySettings.of(settings, **more)
        self._clock = clock or SystemClock()
        self._http = HttpRegistry(self.settings, self._clock)
        self._questions = Questions()
        self._schemas: dict[int, Schema] = {}
        self._unknown: dict[int, tuple[float, SchemaNotFound]] = {}
        self._ids: dict[tuple[str, Schema], int] = {}
        self._versions: dict[tuple[str, int], Registered] = {}

    def schema(self, schema_id: int) -> Schema:
        """The schema of that id. Raises SchemaNotFound if there is none."""
        found = self._schemas.get(schema_id)
        if found is None:
            found = self._questions.once(self._schemas, schema_id, schema_id, partial(self._asked_schema, schema_id))
        return found

    def _asked_schema(self, schema_id: int) -> Schema:
        until, error = self._unknown.get(schema_id, (0.0, None))
        if error is not None and self._clock.monotonic() < until:
            raise error
        try:
            return schema_of(self._http.ask("GET", f"/schemas/ids/{schema_id}"))
        except SchemaNotFound as missing:
            if len(self._unknown) >= _MOST_UNKNOWN:
                self._unknown.clear()
            self._unknown[schema_id] = (self._clock.monotonic() + _UNKNOWN_FOR_S, missing)
            raise

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """The id of the schema, which becomes the subject's newest version unless it is one already.

        Raises IncompatibleSchema, which says why, if it does not go with the earlier versions.
        """
        return self._known_id(subject, schema, f"{_of(subject)}/versions", normalize)

    def id_of(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """The id of the schema. Raises SchemaNotFound if it is no version of the subject; nothing is registered."""
        try:
            return self._known_id(subject, schema, _of(subject), normalize)
        except SchemaNotFound as error:
            raise SchemaNotFound(
                f"the schema is not registered under {subject}: {error}; register it, or let the serializer do it"
                " (auto_register_schemas=True)",
                error.status,
                error.code,
            ) from None

    def _known_id(self, subject: str, schema: Schema, path: str, normalize: bool) -> int:
        ask = partial(self._asked_id, subject, schema, path, normalize)
        return self._questions.once(self._ids, (subject, schema), (path, schema, normalize), ask)

    def _asked_id(self, subject: str, schema: Schema, path: str, normalize: bool) -> int:
        query = "?normalize=true" if normalize else ""
        try:
            return number_of(self._http.ask("POST", path + query, schema.request()), "id")
        except IncompatibleSchema as error:
            raise IncompatibleSchema(self._why_incompatible(subject, error), error.status, error.code) from None

    def _why_incompatible(self, subject: str, error: IncompatibleSchema) -> str:
        said = f"the schema cannot become a version of {subject}"
        try:
            level = self.compatibility(subject)
        except RegistryError:  # whoever may register a schema need not be allowed to ask for that
            return f"{said}: {error}"
        return f"{said}, whose compatibility is {level}: {_IN_WORDS.get(level, '')}. {error}"

    def compatibility(self, subject: str) -> str:
        """The level that counts for the subject: ``BACKWARD``, ``FULL_TRANSITIVE``, ``NONE``, …"""
        path = f"/config/{quote(subject, safe='')}"
        try:
            answer = self._http.ask("GET", f"{path}?defaultToGlobal=true")
        except SchemaNotFound:
            answer = self._http.ask("GET", "/config")
        found = answer.get("compatibilityLevel") if isinstance(answer, dict) else None
        return str(found)

    def complaints(self, subject: str, schema: Schema, version: int | str = "latest") -> list[str]:
        """Why the schema could not be registered beside that version; empty if it could be. Registers nothing.

        Raises RegistryError.
        """
        path = f"/compatibility{_of(subject)}/versions/{version}?verbose=true"
        answer = self._http.ask("POST", path, schema.request())
        if not isinstance(answer, dict) or "is_compatible" not in answer:
            raise RegistryError(f"the schema registry says nothing of compatibility: {str(answer)[:200]!r}")
        if answer["is_compatible"]:
            return []
        return [str(each) for each in answer.get("messages") or ["it is not compatible"]]

    def latest(self, subject: str) -> Registered:
        """The newest version, asked each time. Raises SchemaNotFound if there is no such subject."""
        return registered_of(self._http.ask("GET", f"{_of(subject)}/versions/latest"))

    def version(self, subject: str, version: int) -> Registered:
        """That version, kept. Raises SchemaNotFound if there is none."""
        path = f"{_of(subject)}/versions/{version}"
        return self._questions.once(
            self._versions, (subject, version), path, lambda: registered_of(self._http.ask("GET", path))
        )

    def versions(self, subject: str) -> list[int]:
        """The numbers of a subject's versions, asked each time."""
        return numbers_of(self._http.ask("GET", f"{_of(subject)}/versions"))

    def subjects(self) -> list[str]:
        """The names of all subjects, asked each time."""
        return sorted(names_of(self._http.ask("GET", "/subjects")))

    def referenced(self, schema: Schema) -> dict[str, Schema]:
        """The schemas that one refers to, and those that these refer to, by name; each after what it refers to.

        Raises RegistryError where one refers to itself.
        """
        found: dict[str, Schema] = {}
        self._gather(schema, found, set(), ())
        return found

    def _gather(
        self, schema: Schema, found: dict[str, Schema], done: set[Reference], above: tuple[Reference, ...]
    ) -> None:
        for each in schema.references:
            if each in above or len(above) >= _DEEPEST:
                raise RegistryError(f"version {each.version} of {each.subject} refers to itself, or through too many")
            if each in done:
                continue
            done.add(each)
            inner = self.version(each.subject, each.version).schema
            self._gather(inner, found, done, (*above, each))
            found[each.name] = inner


def _of(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}"
