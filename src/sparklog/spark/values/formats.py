"""The formats of values that are decoded outside of Spark's queries: JSON and Avro."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from sparklog.errors import DataSourceError
from sparklog.registry.avro import text_of
from sparklog.registry.schema import AVRO
from sparklog.spark.values.avro import AvroReader, Writers
from sparklog.spark.values.decoded import Decoded, ValueDecoder, nullable
from sparklog.spark.values.json_decoder import JsonDecoder
from sparklog.spark.values.registry_schemas import RegistryWriters, latest_schema, registry_settings

FORMATS = ("json", "avro")


@dataclass(frozen=True)
class ValueFormat:
    """How values are written. Raises DataSourceError for a format that there is not."""

    name: str
    """``json`` or ``avro``."""
    schema: str
    """Of JSON: Spark's DDL (``id BIGINT NOT NULL, place STRING``), or a struct in Spark's JSON. Of Avro: JSON text."""
    writers: Mapping[int, str] | Writers | None = field(default=None)
    """Of Avro in the wire format of schema registries: the schemas that values were written with, by id."""

    @classmethod
    def of_registry(
        cls, name: str, settings: Mapping[str, str], *, schema: str | None = None, subject: str | None = None
    ) -> ValueFormat:
        """Values whose schemas are in the registry of these ``settings``, by the ids that values have.

        They are read as ``schema``, or as the newest version of ``subject`` as it is now. Raises DataSourceError if the
        registry cannot be asked or has no such subject, ConfigError for settings that cannot be.
        """
        properties = registry_settings(settings)
        if schema is None:
            found, newest = latest_schema(properties, subject or "")
            if found.schema.kind != AVRO:
                raise _unsupported(f"{subject} has schemas of {found.schema.kind}; those of AVRO are read")
            schema = text_of(newest)
        return cls(name, schema, RegistryWriters(properties))

    def __post_init__(self) -> None:
        if self.name not in FORMATS:
            raise DataSourceError(
                "SPARKLOG_INVALID_OPTION", f"values are decoded from {' or '.join(FORMATS)}, not from {self.name!r}"
            )
        if self.writers is not None and self.name != "avro":
            raise DataSourceError("SPARKLOG_INVALID_OPTION", "only values in Avro have schemas of writers")

    def without_session(self) -> ValueFormat:
        """The same, so that its schema can be read where there is no Spark session. Raises as ``decoder`` does."""
        return self if self.name == "avro" else replace(self, schema=_struct(self.schema).json())

    def decoder(self) -> ValueDecoder:
        """Raises DataSourceError for a schema that cannot be read. A schema in DDL needs a Spark session."""
        found = JsonDecoder(_struct(self.schema)) if self.name == "json" else AvroDecoder(self.schema, self.writers)
        _check_names(found.schema, "")
        return found


class AvroDecoder:
    """Decodes values record by record, by ``AvroReader``. Raises DataSourceError for a schema that cannot be read."""

    def __init__(self, schema: str, writers: Mapping[int, str] | Writers | None = None) -> None:
        self._reader = AvroReader(schema, writers)
        found = self._reader.returns["data"].dataType
        assert isinstance(found, StructType)
        self.schema = nullable(found)

    def decode(self, values: pa.Array) -> Decoded:
        found = self._reader.decode(values)
        rows = found.field("data").cast(to_arrow_type(self.schema, timezone="UTC"))
        errors = found.field("error")
        reasons = {
            row: errors[row].as_py() for row in errors.is_valid().to_numpy(zero_copy_only=False).nonzero()[0].tolist()
        }
        return Decoded(rows, reasons)


def _struct(text: str) -> StructType:
    try:
        is_json = text.lstrip().startswith("{")
        found = StructType.fromJson(json.loads(text)) if is_json else StructType.fromDDL(text)
    except Exception as error:  # Spark raises any error, depending on the text
        raise _unsupported(f"the schema cannot be read: {error}") from error
    if not isinstance(found, StructType) or not found.fields:
        raise _unsupported(f"the schema must be a struct with fields, not {text.strip()!r}")
    return found


def _check_names(kind: DataType, where: str) -> None:
    """Raises DataSourceError for a struct that a table cannot have."""
    if isinstance(kind, StructType):
        if not kind.fields:
            raise _unsupported(f"{where or 'the schema'} is a struct without fields, which no table has")
        names = [each.name.casefold() for each in kind.fields]
        twice = sorted({each.name for each in kind.fields if names.count(each.name.casefold()) > 1})
        if twice:
            raise _unsupported(f"names differ in more than their case in a table: {', '.join(twice)}")
        for each in kind.fields:
            if not each.name or any(sign in each.name for sign in " ,;{}()\n\t="):
                raise _unsupported(
                    f"a column cannot be named {each.name!r}: no space and none of ,;{{}}()= is in a name"
                )
            _check_names(each.dataType, f"{where}.{each.name}" if where else each.name)
    elif isinstance(kind, ArrayType):
        _check_names(kind.elementType, f"{where}[]")
    elif isinstance(kind, MapType):
        _check_names(kind.valueType, f"{where}{{}}")


def _unsupported(message: str) -> DataSourceError:
    return DataSourceError("SPARKLOG_UNSUPPORTED_SCHEMA", message)
