"""Avro values with ids, decoded in the JVM by Spark's own ``from_avro``: faster than ``AvroReader``, and less strict.

``from_avro`` knows one schema and gives no reasons. So it is given what it reads as ``AvroReader`` does: the values of
ids that are known before the query, whose schema and the reader's have the same types (``plain_writers``). The
reader's schema gets one field more, with a default: it is true where a value was decoded, and null where it was not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import reduce
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as f

from sparklog.errors import DataSourceError
from sparklog.registry.wire import FRAME, framed

MARK = "_sparklog_decoded"
"""The field that is true where a value was decoded."""
_MOST_BYTES = 2**31 - 1


def plain_writers(writers: Mapping[int, Any], reader: Any) -> dict[int, Any]:
    """Of these schemas, by id, the records whose fields have the reader's types, or that the reader has a default for.

    Avro's library for Java resolves other schemas otherwise than ``AvroReader``: it takes a timestamp of one unit for
    one of another. All are parsed JSON.
    """
    return {number: each for number, each in writers.items() if _is_plain(each, reader)}


def _is_plain(writer: Any, reader: Any) -> bool:
    if not (isinstance(writer, Mapping) and isinstance(reader, Mapping)):
        return False
    if any(writer.get(name) != reader.get(name) for name in ("type", "name", "namespace")):
        return False
    written = {each["name"]: each["type"] for each in writer.get("fields", ())}
    return all(
        written[each["name"]] == each["type"] if each["name"] in written else "default" in each
        for each in reader.get("fields", ())
    )


def decoded_in_jvm(data: Column, writers: Mapping[int, Any], reader: Any) -> Column:
    """Structs of the reader with the field ``MARK``; null, or with a null there, for what was not decoded.

    Raises DataSourceError without Spark's Avro on the class path.
    """
    marked = {**reader, "fields": [*reader["fields"], {"name": MARK, "type": "boolean", "default": True}]}
    options = {"mode": "PERMISSIVE", "avroSchema": json.dumps(marked)}
    frame, behind = f.substring(data, 1, FRAME.size), f.substring(data, FRAME.size + 1, _MOST_BYTES)
    # True, but the optimizer does not know it: it would decode once for each use of the column.
    always = f.spark_partition_id() >= 0
    none = f.when(f.lit(False), _from_avro(behind, json.dumps(marked), options))
    cases = reduce(
        lambda found, each: found.when(
            always & (frame == f.lit(framed(each[0]))), _from_avro(behind, json.dumps(each[1]), options)
        ),
        writers.items(),
        none,
    )
    return cases.otherwise(f.lit(None))


def _from_avro(data: Column, schema: str, options: dict[str, str]) -> Column:
    from pyspark.sql.avro.functions import from_avro

    try:
        return from_avro(data, schema, options)
    except TypeError as error:
        raise DataSourceError(
            "SPARKLOG_UNSUPPORTED_OPTION",
            "in_jvm needs Spark's Avro on the class path: session(jars=jar_set('avro')), or --packages"
            " org.apache.spark:spark-avro_2.13 of Spark's version",
        ) from error
