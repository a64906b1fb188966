"""Avro values of a producer and a consumer, by their ids in a schema registry. fastavro reads and writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

from sparklog.errors import RegistryError, SerializationError
from sparklog.registry.avro_bounds import refuse_unbounded
from sparklog.registry.extras import needed
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.schema import AVRO, Reference, Schema
from sparklog.registry.serializing import Encoding, SchemaSerializer
from sparklog.registry.wire import FRAME, schema_id_of

AvroSchema = str | Mapping[str, Any] | list[Any]
"""JSON text, or the parsed JSON."""
_PARTS = ("type", "items", "values", "fields")


class AvroSerializer(SchemaSerializer):
    """Writes values as Avro; ``to_dict`` makes of a value what fastavro takes. The rest is SchemaSerializer's.

    Raises SerializationError for what is no Avro schema.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: AvroSchema | None = None,
        *,
        to_dict: Callable[[Any], Any] | None = None,
        references: tuple[Reference, ...] = (),
        **more: Any,
    ) -> None:
        found = None if schema is None else Schema(text_of(schema), AVRO, references)
        super().__init__(registry, found, lambda each: avro_encoding(parsed(registry, each), to_dict), **more)


def avro_encoding(schema: Any, to_dict: Callable[[Any], Any] | None) -> Encoding:
    """How values of a parsed schema are written."""
    avro = needed("fastavro")
    validate = needed("fastavro.validation").validate

    def encode(value: Any) -> bytes:
        written = value if to_dict is None else to_dict(value)
        stream = BytesIO()
        try:
            validate(written, schema)  # the writer alone takes null for false, and cuts long numbers
            avro.schemaless_writer(stream, schema, written)
        except Exception as error:  # fastavro raises any error, depending on the value
            raise SerializationError(f"a value is not of the Avro schema: {error}") from error
        return stream.getvalue()

    name = schema.get("name", "") if isinstance(schema, Mapping) else ""
    return Encoding(name, encode)


class AvroDeserializer:
    """A ``key_deserializer`` or ``value_deserializer``: reads a value with the schema whose id it has.

    With ``schema``, the reader's, the value is resolved to it, as Avro specifies. ``from_dict`` makes an object of it.
    Raises SerializationError for bytes that are no such value, SchemaNotFound for an id that the registry does not
    have, RegistryUnavailable when it cannot be asked: the consumer stays before the record.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: AvroSchema | None = None,
        *,
        from_dict: Callable[[Any], Any] | None = None,
    ) -> None:
        self._registry = registry
        self._reader = None if schema is None else parsed(registry, Schema(text_of(schema)))
        self._from_dict = from_dict
        self._reads: dict[int, Callable[[bytes], Any]] = {}

    def __call__(self, data: bytes) -> Any:
        schema_id = schema_id_of(data)
        read = self._reads.get(schema_id)
        if read is None:
            read = self._reads[schema_id] = self._asked(schema_id)
        found = read(data)
        return found if self._from_dict is None else self._from_dict(found)

    def prepare(self, schema_id: int) -> None:
        """Ask the registry now for what values of ``schema_id`` were written with."""
        self._reads[schema_id] = self._asked(schema_id)

    def _asked(self, schema_id: int) -> Callable[[bytes], Any]:
        return avro_reader(parsed_of_writer(self._registry, self._registry.schema(schema_id)), self._reader)


def avro_reader(writer: Any, reader: Any = None) -> Callable[[bytes], Any]:
    """Reads the value behind the frame, of parsed schemas.

    It raises SerializationError for bytes that are not exactly one value of ``writer``. A value of a schema that refers
    to itself has as many levels as its bytes say, and fastavro's compiled reader ends the process where they are too
    many for its stack: those are read by the one in Python, which raises RecursionError.

    Raises SerializationError for a schema of which a few bytes could make any number of parts, and for one of too many
    levels.
    """
    try:
        refuse_unbounded(writer)
        module = needed("fastavro._read_py" if refers_to_itself(writer) else "fastavro")
    except RecursionError:
        raise SerializationError("its schema is nested too deeply") from None

    def read(data: bytes) -> Any:
        stream = BytesIO(data)
        stream.seek(FRAME.size)
        try:
            found = module.schemaless_reader(stream, writer, reader)
        except Exception as error:  # fastavro raises any error, depending on the bytes
            raise SerializationError(f"it is no value of its Avro schema: {error!r}") from error
        if left := len(data) - stream.tell():
            raise SerializationError(f"{left} bytes follow the value")
        return found

    return read


def refers_to_itself(schema: Any, above: tuple[str, ...] = ()) -> bool:
    """Whether a type of the parsed schema has a part of the same type; ``above`` are the names of what it is in."""
    if isinstance(schema, str):
        return schema in above
    if isinstance(schema, list):
        return any(refers_to_itself(each, above) for each in schema)
    if "fields" in schema:
        above = (*above, schema["name"])
        return any(refers_to_itself(each["type"], above) for each in schema["fields"])
    return any(refers_to_itself(schema[part], above) for part in ("type", "items", "values") if part in schema)


def parsed(registry: SchemaRegistry, schema: Schema) -> Any:
    """The schema as fastavro takes it, with those that it refers to. Raises SerializationError if it is not Avro."""
    return _parsed(schema, lambda parse: parse(whole(registry, schema)))


def parsed_of_writer(registry: SchemaRegistry, schema: Schema) -> Any:
    """As ``parsed``, for a schema that values were written with."""
    return _parsed(schema, lambda parse: of_writer(registry, schema, parse))


def _parsed(schema: Schema, read: Callable[[Callable[[Any], Any]], Any]) -> Any:
    if schema.kind != AVRO:
        raise SerializationError(f"its schema is of {schema.kind}, not of Avro")
    avro = needed("fastavro")
    try:
        return read(avro.parse_schema)
    except RegistryError:
        raise
    except Exception as error:  # fastavro raises any error, depending on the schema
        raise SerializationError(f"the Avro schema cannot be read: {error!r}") from error


def of_writer(registry: SchemaRegistry, schema: Schema, parse: Callable[[Any], Any]) -> Any:
    """What ``parse`` makes of the whole schema, or of that without the defaults of its fields. Raises as it does.

    A reader of what was written by it needs no default of it, and Java's Avro before 1.9 let any be registered.
    fastavro refuses those that are not of their type.
    """
    try:
        return parse(whole(registry, schema))
    except RegistryError:
        raise
    except Exception:  # fastavro raises any error, depending on the schema
        return parse(whole(registry, schema, _without_defaults))


def whole(registry: SchemaRegistry, schema: Schema, edited: Callable[[Any], Any] = lambda plain: plain) -> Any:
    """The parsed JSON, with the schemas that it refers to in their places. Raises what ``json`` and fastavro raise."""
    plain = edited(_json(schema.text))
    if not schema.references:
        return plain
    texts = {name: edited(_json(each.text)) for name, each in registry.referenced(schema).items()}
    repository = needed("fastavro.repository").AbstractSchemaRepository

    class Referenced(repository):  # type: ignore[misc, valid-type]
        def load(self, name: str) -> Any:
            return texts[name] if name else plain

    return needed("fastavro.schema").load_schema("", repo=Referenced())


def _without_defaults(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_defaults(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {name: _without_defaults(each) if name in _PARTS else each for name, each in schema.items()}
    for field in found.get("fields", ()):
        if isinstance(field, dict):
            field.pop("default", None)
    return found


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it has too many levels") from None


def text_of(schema: AvroSchema) -> str:
    """The schema as text: what is text already is left as it is, for its id belongs to that."""
    return schema if isinstance(schema, str) else json.dumps(schema)
