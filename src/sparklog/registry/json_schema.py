"""JSON values of a producer and a consumer, by their ids in a schema registry. jsonschema checks them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from sparklog.errors import SerializationError
from sparklog.registry.bounded_checks import BoundedChecks, formats, refuse_unbounded
from sparklog.registry.extras import needed
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.schema import JSON, Reference, Schema
from sparklog.registry.serializing import Encoding, SchemaSerializer
from sparklog.registry.wire import FRAME, schema_id_of

JsonSchema = str | Mapping[str, Any] | bool
"""JSON text, or the parsed JSON."""
_Check = Callable[[Any], None]
"""Raises SerializationError for a value that is not of the schema."""


class JsonSerializer(SchemaSerializer):
    """Writes values as JSON in UTF-8; ``to_dict`` makes of a value what ``json`` takes. The rest is SchemaSerializer's.

    The record's name is the title of its schema. ``validate=False`` leaves out the check of each value. Raises
    SerializationError for what is no JSON Schema.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: JsonSchema | None = None,
        *,
        to_dict: Callable[[Any], Any] | None = None,
        references: tuple[Reference, ...] = (),
        validate: bool = True,
        **more: Any,
    ) -> None:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        found = None if schema is None else Schema(text, JSON, references)
        super().__init__(
            registry, found, lambda each: json_encoding(registry, each, to_dict, validate=validate), **more
        )


def json_encoding(
    registry: SchemaRegistry, schema: Schema, to_dict: Callable[[Any], Any] | None, *, validate: bool
) -> Encoding:
    """How values of the schema are written."""
    check = checker(registry, schema) if validate else None

    def encode(value: Any) -> bytes:
        written = value if to_dict is None else to_dict(value)
        if check is not None:
            check(written)
        try:
            return json.dumps(written, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError) as error:
            raise SerializationError(f"a value cannot be written as JSON: {error}") from error

    plain = _plain(schema)
    title = plain.get("title", "") if isinstance(plain, dict) else ""
    return Encoding(str(title), encode)


class JsonDeserializer:
    """A ``key_deserializer`` or ``value_deserializer``: reads JSON, and checks it by the schema whose id it has.

    ``validate=False`` leaves out the check, and asks no registry. ``from_dict`` makes an object of the value. Raises as
    AvroDeserializer does.
    """

    def __init__(
        self, registry: SchemaRegistry, *, from_dict: Callable[[Any], Any] | None = None, validate: bool = True
    ) -> None:
        self._registry = registry
        self._from_dict = from_dict
        self._validates = validate
        self._checks: dict[int, _Check] = {}

    def __call__(self, data: bytes) -> Any:
        schema_id = schema_id_of(data)
        found = read_json(data)
        if self._validates:
            check = self._checks.get(schema_id)
            if check is None:
                check = self._checks[schema_id] = self._asked(schema_id)
            check(found)
        return found if self._from_dict is None else self._from_dict(found)

    def prepare(self, schema_id: int) -> None:
        """Ask the registry now for what values of ``schema_id`` are checked by."""
        self._checks[schema_id] = self._asked(schema_id)

    def _asked(self, schema_id: int) -> _Check:
        return checker(self._registry, self._registry.schema(schema_id))


def read_json(data: bytes) -> Any:
    """The value behind the frame. Raises SerializationError for bytes that are not JSON in UTF-8."""
    try:
        return json.loads(data[FRAME.size :].decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise SerializationError(f"it is not JSON: {error}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of it")


def checker(registry: SchemaRegistry, schema: Schema) -> _Check:
    """Checks values by ``schema``, with those that it refers to. Raises SerializationError if it is none of JSON."""
    if schema.kind != JSON:
        raise SerializationError(f"its schema is of {schema.kind}, not of JSON")
    plain = _plain(schema)
    validators, errors = needed("jsonschema.validators"), needed("jsonschema.exceptions")
    unresolvable = needed("referencing.exceptions").Unresolvable
    if not isinstance(plain, dict | bool):
        raise SerializationError("the JSON Schema is neither an object nor true or false")
    others = {name: _plain(each) for name, each in registry.referenced(schema).items()}
    refuse_unbounded([plain, *others.values()])
    try:
        made = validators.validator_for(plain)
        made.check_schema(plain, format_checker=formats())
    except errors.SchemaError as error:
        raise SerializationError(f"the JSON Schema cannot be read: {error.message}{_reason(error)}") from None
    except (TypeError, RecursionError) as error:
        raise SerializationError(f"the JSON Schema cannot be read: {error}") from None
    checks = BoundedChecks()
    validator = checks.validator(made)(plain, registry=_resources(others))

    def check(value: Any) -> None:
        checks.begin()
        try:
            error = errors.best_match(validator.iter_errors(value))
        except (unresolvable, ValueError, ArithmeticError, RecursionError) as failure:
            raise SerializationError(f"a value cannot be checked by its JSON Schema: {failure}") from None
        if error is not None:
            raise SerializationError(f"a value is not of the JSON Schema: {error.json_path}: {error.message}")

    return check


def _reason(error: Any) -> str:
    """Why a pattern is none."""
    return f" ({error.cause})" if error.cause else ""


def _resources(others: Mapping[str, Any]) -> Any:
    """The schemas that one refers to, by the names that it calls them. No other is fetched from anywhere."""
    referencing, draft = needed("referencing"), needed("referencing.jsonschema").DRAFT202012
    return referencing.Registry().with_resources(
        (name, referencing.Resource.from_contents(each, default_specification=draft)) for name, each in others.items()
    )


def _plain(schema: Schema) -> Any:
    try:
        return json.loads(schema.text)
    except (ValueError, RecursionError) as error:
        raise SerializationError(f"the JSON Schema is not JSON: {error}") from None
