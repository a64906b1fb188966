"""``benchmarks.spark``."""

from __future__ import annotations

from typing import Any, NamedTuple

from benchmarks.report.base import Aim, Rows, Section, extremes, number
from benchmarks.spark_ways import BY_FETCH, DIRECT, EXACTLY_ONCE

_FETCH, _DIRECT, _EXACT = BY_FETCH.name, DIRECT.name, EXACTLY_ONCE.name


class _Wanted(NamedTuple):
    """``figure`` of a way at least ``least`` in the measurements whose names end so."""

    text: str
    endings: tuple[str, ...]
    way: str
    figure: str
    least: float


_AIMS = (
    _Wanted("read by Fetch at least twice as fast as the connector", ("all columns",), _FETCH, "ratio", 2.0),
    _Wanted("read direct within 15% of ready-made batches", ("all columns",), _DIRECT, "share", 0.85),
    _Wanted("value and offset at least 4 times as fast by Fetch", ("value and offset",), _FETCH, "ratio", 4.0),
    _Wanted("a micro-batch no slower than the connector's", ("micro-batch of 100 records",), _FETCH, "ratio", 1.0),
    _Wanted("nor one copied exactly once", ("copied",), _EXACT, "ratio", 1.0),
    _Wanted("writes level while exactly once", ("write 1000 B", "write 100 B"), _EXACT, "ratio", 1.0),
)
_TEXT = """\
One local session: Spark's own Kafka connector on Kafka 3.9.1, and beside it `format("sparklog")` on that Kafka and on
sparklog, the same records and options, in one run; how: `benchmarks/spark.py`, `benchmarks/spark_cases.py`. Reads go to
nowhere (`noop`) if nothing else is said. `ratio` is the median over the rounds of how many times better a way was than
the connector in that round, more than 1 being better. `of bound` is its share of what Spark makes of a Python source
that has nothing to do: one that yields batches made beforehand, as large as ours (its rows do not differ, so that a
filter on offsets is not measured on it). *memory of a task* is the most that a Python worker held; the connector runs
in the JVM and has none. *copied* is from a topic to another of the same broker."""
_HEADER = ["", "way", "figure", "value", "ratio", "from - to", "of bound"]


def spark(rows: Rows) -> Section:
    """A line a case and way."""
    return Section("Spark", _TEXT, _HEADER, [_line(row) for row in rows], [_aim(rows, wanted) for wanted in _AIMS])


def _line(row: dict[str, Any]) -> list[str]:
    line = [row["measurement"], row["way"], row["figure"], number(row["value"])]
    line += [f"{row['ratio']:.2f}", extremes(row["ratios"])] if "ratio" in row else ["-", "-"]
    return [*line, f"{row['share']:.2f}" if "share" in row else "-"]


def _aim(rows: Rows, wanted: _Wanted) -> Aim:
    judged = [row for row in rows if row["measurement"].endswith(wanted.endings) and row["way"] == wanted.way]
    told = "; ".join(f"{row['measurement']}: {row[wanted.figure]:.2f}" for row in judged)
    return Aim(wanted.text, told, all(row[wanted.figure] >= wanted.least for row in judged))
