"""Columns of values whose schemas are in a schema registry."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from sparklog.errors import DataSourceError
from sparklog.registry.avro import text_of
from sparklog.registry.schema import JSON
from sparklog.registry.wire import FRAME
from sparklog.spark.values.avro import AvroReader, Schema, without_unknown_types
from sparklog.spark.values.columns import avro_columns, json_values, to_avro_values
from sparklog.spark.values.jvm_avro import decoded_in_jvm, plain_writers
from sparklog.spark.values.registry_schemas import (
    RegistryWriters,
    id_of,
    known_writers,
    latest_schema,
    registry_settings,
)


def registry_values(
    df: DataFrame,
    registry: Mapping[str, Any],
    subject: str | None = None,
    *,
    schema: Schema | StructType | None = None,
    value: str = "value",
    into: str = "data",
    dead_letter: str | None = "_error",
    in_jvm: bool = False,
) -> DataFrame:
    """As ``json_values``, for values in the wire format of schema registries. ``registry`` has the settings of one.

    Avro: each value is read by the schema of its own id, which workers get from the registry when they meet it, and is
    resolved to ``schema``, or to the newest version of ``subject`` as it is now. JSON: ``schema`` is a struct (Spark's
    DDL or a StructType); the id names what the value was checked by when it was written, and is passed over.

    With ``in_jvm``, Spark's own ``from_avro`` decodes values whose schemas ``subject`` has now, as far as these have
    the reader's types; the workers decode the others. That is two to three times as fast, and less strict: bytes that
    are left over, and damage that happens to be a value, are not noticed. It needs Spark's Avro on the class path.

    A value that is not in the wire format, or whose id the registry does not have, is a dead letter. Raises
    DataSourceError when the registry cannot be asked: here, or in a task, which Spark tries again.
    """
    settings = registry_settings(registry)
    if _is_struct(schema):
        return _json(df, schema, value, into, dead_letter)
    if schema is None:
        if subject is None:
            raise DataSourceError(
                "SPARKLOG_INVALID_OPTION", "say which schema values are read as: a subject of the registry, or schema="
            )
        found, schema = latest_schema(settings, subject)
        if found.schema.kind == JSON:
            raise DataSourceError(
                "SPARKLOG_UNSUPPORTED_SCHEMA",
                f"{subject} has JSON Schema, which says no types of Spark: give schema=, a struct such as 'id bigint'",
            )
    reader = AvroReader(schema, RegistryWriters(settings))
    early = _in_jvm(settings, subject, schema) if in_jvm else None
    return avro_columns(df, reader, early, value=value, into=into, dead_letter=dead_letter)


def to_registry_values(
    df: DataFrame,
    registry: Mapping[str, Any],
    subject: str,
    *,
    schema: Schema | None = None,
    auto_register_schemas: bool = False,
    key: str | None = None,
    keep: Sequence[str] = (),
) -> DataFrame:
    """As ``to_avro_values``, with the id of ``schema`` under ``subject``; without one with its newest version.

    The registry is asked here, once. A schema that it does not have is registered with ``auto_register_schemas``, and
    else refused. Raises DataSourceError: what the registry refuses, and where the newest version is of JSON Schema.
    """
    settings = registry_settings(registry)
    if schema is not None:
        number = id_of(settings, subject, text_of(schema), registers=auto_register_schemas)
        return to_avro_values(df, schema, key=key, keep=keep, schema_id=number)
    found, newest = latest_schema(settings, subject)
    if found.schema.kind == JSON:
        raise DataSourceError("SPARKLOG_UNSUPPORTED_SCHEMA", f"{subject} has JSON Schema; Spark writes Avro with ids")
    return to_avro_values(df, newest, key=key, keep=keep, schema_id=found.id)


def _in_jvm(settings: Any, subject: str | None, schema: Any) -> Callable[[Column], Column]:
    if subject is None:
        raise DataSourceError("SPARKLOG_INVALID_OPTION", "in_jvm needs the subject, whose schemas it begins with")
    # from_avro knows logical types that AvroReader does not: it makes a time of a time-micros, not a number
    reader = without_unknown_types(json.loads(schema) if isinstance(schema, str) else schema)
    known = {number: without_unknown_types(each) for number, each in known_writers(settings, subject).items()}
    writers = plain_writers(known, reader)
    return lambda data: decoded_in_jvm(data, writers, reader)


def _is_struct(schema: Any) -> bool:
    """Whether it is Spark's, not Avro's, which is JSON."""
    return isinstance(schema, StructType) or (isinstance(schema, str) and schema.lstrip()[:1] not in ("{", "[", '"'))


def _json(df: DataFrame, schema: Any, value: str, into: str, dead_letter: str | None) -> DataFrame:
    """The values behind the frames. One without a frame becomes empty text, which is no JSON: it has no value."""
    plain = f"{value} behind its id"
    data = f.col(value).cast("binary")
    is_framed = (f.octet_length(data) >= FRAME.size) & (f.substring(data, 1, 1) == f.lit(b"\0"))
    behind = f.when(data.isNull(), None).when(is_framed, f.substring(data, FRAME.size + 1, _MOST)).otherwise(f.lit(b""))
    found = json_values(df.withColumn(plain, behind), schema, value=plain, into=into, dead_letter=dead_letter)
    if dead_letter is not None:
        reason = f.lit("it does not begin with a zero byte and a schema's id")
        found = found.withColumn(
            dead_letter, f.when(data.isNotNull() & ~is_framed, reason).otherwise(f.col(dead_letter))
        )
    return found.drop(plain)


_MOST = 2**31 - 1
"""Bytes of a value that Spark may hold."""
