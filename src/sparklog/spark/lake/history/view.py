"""A topic with its history as a DataFrame, and as a view for SQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

from sparklog.errors import ConfigError, DataSourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PREFIX: Final = "spark.sparklog."
"""Of the session's settings that are options of the data source."""
_BROKERS: Final = "kafka.bootstrap.servers"
_HISTORY: Final = "history"


def table(
    topic: str,
    *,
    bootstrap_servers: str | None = None,
    history: str | None = None,
    view: str | None = None,
    spark: SparkSession | None = None,
    **options: str,
) -> DataFrame:
    """The rows of a topic: of a table what an offload moved there, of the log what came later.

    ``history`` is the table's path or URI, or its name in the catalog. ``view`` is the name of a temporary view that is
    made of the rows, or made anew. ``spark`` is the active session unless it is given. ``options`` are those of
    ``format("sparklog")``. The rows are those of the first use; call it again for later ones.

    What is not given is as the session's settings have it: ``spark.sparklog.NAME`` is the option NAME of the data
    source, such as ``spark.sparklog.kafka.bootstrap.servers``. In ``spark.sparklog.history`` the topic's name takes the
    place of ``{topic}``.

    Raises ConfigError where there is no session, or nobody says brokers or history; DataSourceError for a table that is
    not in the catalog, Spark's AnalysisException for one that does not suit; options that do not suit raise it at the
    first use.
    """
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise ConfigError("there is no Spark session: make one with sparklog.spark.session(), or give it as spark=")
    settings = session.conf.getAll
    defaults = {name.removeprefix(_PREFIX): value for name, value in settings.items() if name.startswith(_PREFIX)}
    servers = bootstrap_servers or _needed(defaults, _BROKERS, "bootstrap_servers")
    place = history or _needed(defaults, _HISTORY, "history").replace("{topic}", topic)
    location = place if "/" in place else _location(session, place)
    reader = session.read.format("sparklog").options(**defaults).options(**options).option("subscribe", topic)
    frame = reader.option(_HISTORY, location).option(_BROKERS, servers).load()
    if view is not None:
        frame.createOrReplaceTempView(view)
    return frame


def _needed(defaults: Mapping[str, str], name: str, argument: str) -> str:
    """A setting of the session. Raises ConfigError where there is none."""
    if name not in defaults:
        raise ConfigError(f"say {argument}=, or have the session's setting {_PREFIX}{name}")
    return defaults[name]


def _location(session: SparkSession, name: str) -> str:
    if not session.catalog.tableExists(name):
        raise DataSourceError("SPARKLOG_NO_TABLE", f"there is no table {name}; a path has a slash in it")
    return str(session.sql(f"DESCRIBE DETAIL {name}").first()["location"])
