"""The figures of the tour, from the Delta table: the worst carriers and airports, and delays by day and hour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

AIRPORTS = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "LaGuardia"}
MIN_WIDTH = 90
"""What the tables need; a narrower terminal, or none, wraps lines rather than losing columns."""
FEW = 3
"""A percentile of fewer departures says little."""
ZONE = "America/New_York"
_MEAN = "sum(mean_delay * departed) / sum(departed)"


class Group(NamedTuple):
    """A carrier or an airport over the year. ``worst_hour`` is that with the highest 90th percentile, local time."""

    code: str
    flights: int
    cancelled: int
    mean_delay: float
    worst_p90: int
    worst_hour: Any


class Summary(NamedTuple):
    """Groups come worst first; ``by_hour`` has origin, day, hour (local) and mean_delay."""

    flights: int
    carriers: list[Group]
    origins: list[Group]
    by_hour: pa.Table


def summarise(spark: SparkSession, table: str) -> Summary:
    """Read the table once for each figure; it is small."""
    windows = spark.read.format("delta").load(table).cache()
    try:
        return Summary(
            windows.agg(F.sum("flights")).first()[0],
            _groups(windows, "carrier"),
            _groups(windows, "origin"),
            _by_hour(windows),
        )
    finally:
        windows.unpersist()


def _groups(windows: DataFrame, by: str) -> list[Group]:
    busy = F.when(F.col("departed") >= FEW, F.col("p90_delay"))
    local = F.from_utc_timestamp("window_start", ZONE)
    rows = windows.groupBy(by).agg(
        F.sum("flights").alias("flights"),
        (F.sum("flights") - F.sum("departed")).alias("cancelled"),
        F.expr(_MEAN).alias("mean_delay"),
        F.max(busy).alias("worst_p90"),
        F.max_by(local, busy).alias("worst_hour"),
    )
    return [Group(*row) for row in rows.orderBy(F.desc("mean_delay")).collect()]


def _by_hour(windows: DataFrame) -> pa.Table:
    local = F.from_utc_timestamp("window_start", ZONE)
    rows = windows.where("departed > 0").groupBy("origin", F.dayofyear(local).alias("day"), F.hour(local).alias("hour"))
    return rows.agg(F.expr(_MEAN).alias("mean_delay"), F.sum("departed").alias("departed")).toArrow()


def print_groups(title: str, groups: list[Group], names: Mapping[str, str]) -> None:
    """A table on standard output."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("", "", "flights", "cancelled", "mean delay", "worst hour"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for each in groups:
        worst = f"{each.worst_hour:%d %b %H:%M}, p90 {each.worst_p90} min" if each.worst_hour else ""
        table.add_row(
            each.code,
            names.get(each.code, ""),
            f"{each.flights:,}",
            f"{each.cancelled / each.flights:.1%}",
            f"{each.mean_delay:.1f} min",
            worst,
        )
    console = Console(highlight=False)
    console.width = max(console.width, MIN_WIDTH)
    console.print(table)
