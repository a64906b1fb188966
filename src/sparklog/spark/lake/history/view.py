"""A topic with its history as a DataFrame, and as a view for SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from sparklog.errors import ConfigError, DataSourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def table(
    topic: str,
    *,
    bootstrap_servers: str,
    history: str,
    view: str | None = None,
    spark: SparkSession | None = None,
    **options: str,
) -> DataFrame:
    """The rows of a topic: of a table what an offload moved there, of the log what came later.

    ``history`` is the table's path or URI, or its name in the catalog. ``view`` is the name of a temporary view that is
    made of the rows, or made anew. ``spark`` is the active session unless it is given. ``options`` are those of
    ``format("sparklog")``. The rows are those of the first use; call it again for later ones.

    Raises ConfigError where there is no session, DataSourceError for a table that is not in the catalog, Spark's
    AnalysisException for one that does not suit; options that do not suit raise it at the first use.
    """
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise ConfigError("there is no Spark session: make one with sparklog.spark.session(), or give it as spark=")
    location = history if "/" in history else _location(session, history)
    reader = session.read.format("sparklog").options(**options).option("subscribe", topic).option("history", location)
    frame = reader.option("kafka.bootstrap.servers", bootstrap_servers).load()
    if view is not None:
        frame.createOrReplaceTempView(view)
    return frame


def _location(session: SparkSession, name: str) -> str:
    if not session.catalog.tableExists(name):
        raise DataSourceError("SPARKLOG_NO_TABLE", f"there is no table {name}; a path has a slash in it")
    return str(session.sql(f"DESCRIBE DETAIL {name}").first()["location"])
