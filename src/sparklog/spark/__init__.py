"""The Spark data source ``format("sparklog")``: Spark's Kafka source's options and schema, without a JAR.

What is exported is imported when it is first used: Spark imports this package in each of its Python processes.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparklog.spark.lag import LagListener, QueryLag, watch

__all__ = ["LagListener", "QueryLag", "watch"]

_HOMES = dict.fromkeys(__all__, "sparklog.spark.lag")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
