"""The Spark data source ``format("sparklog")``: the options and schema of Spark's Kafka source, without a JAR.

Names are loaded at first use, since Spark imports this package in every Python process.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparklog.spark.lake.history.view import table as table
    from sparklog.spark.sessions import session as session
    from sparklog.spark.stream.lag import LagListener as LagListener
    from sparklog.spark.stream.lag import QueryLag as QueryLag
    from sparklog.spark.stream.lag import watch as watch
    from sparklog.spark.values.columns import avro_values as avro_values
    from sparklog.spark.values.columns import json_values as json_values
    from sparklog.spark.values.columns import to_avro_values as to_avro_values
    from sparklog.spark.values.columns import to_json_values as to_json_values
    from sparklog.spark.values.registry_values import registry_values as registry_values
    from sparklog.spark.values.registry_values import to_registry_values as to_registry_values

_HOMES = {
    "LagListener": "stream.lag",
    "QueryLag": "stream.lag",
    "avro_values": "values.columns",
    "json_values": "values.columns",
    "registry_values": "values.registry_values",
    "session": "sessions",
    "table": "lake.history.view",
    "to_avro_values": "values.columns",
    "to_json_values": "values.columns",
    "to_registry_values": "values.registry_values",
    "watch": "stream.lag",
}

__all__ = [
    "LagListener",
    "QueryLag",
    "avro_values",
    "json_values",
    "registry_values",
    "session",
    "table",
    "to_avro_values",
    "to_json_values",
    "to_registry_values",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
