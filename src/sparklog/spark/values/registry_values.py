"""Columns of values whose schemas are in a schema registry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from sparklog.errors import DataSourceError
from sparklog.registry.avro import text_of
from sparklog.registry.schema import JSON
from sparklog.registry.wire import FRAME
from sparklog.spark.values.avro import Schema
from sparklog.spark.values.columns import avro_values, json_values, to_avro_values
from sparklog.spark.values.registry_schemas import RegistryWriters, id_of, latest_schema, registry_settings


def registry_values(
    df: DataFrame,
    registry: Mapping[str, Any],
    subject: str | None = None,
    *,
    schema: Schema | StructType | None = None,
    value: str = "value",
    into: str = "data",
    dead_letter: str | None = "_error",
) -> DataFrame:
    """As ``json_values``, for values in the wire format of schema registries. ``registry`` has the settings of one.

    Avro: each value is read by the schema of its own id, which workers get from the registry when they meet it, and is
    resolved to ``schema``, or to the newest version of ``subject`` as it is now. JSON: ``schema`` is a struct (Spark's
    DDL or a StructType); the id names what the value was checked by when it was written, and is passed over.

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
    return avro_values(df, schema, value=value, into=into, dead_letter=dead_letter, writers=RegistryWriters(settings))


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
    else refused.
    """
    settings = registry_settings(registry)
    if schema is not None:
        number = id_of(settings, subject, text_of(schema), registers=auto_register_schemas)
        return to_avro_values(df, schema, key=key, keep=keep, schema_id=number)
    found, newest = latest_schema(settings, subject)
    if found.schema.kind == JSON:
        raise DataSourceError("SPARKLOG_UNSUPPORTED_SCHEMA", f"{subject} has JSON Schema; Spark writes Avro with ids")
    return to_avro_values(df, newest, key=key, keep=keep, schema_id=found.id)


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
