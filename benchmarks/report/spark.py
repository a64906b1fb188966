"""``benchmarks.spark``."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from benchmarks.report.base import Aim, Rows, Section, extremes, number
from benchmarks.spark_ways import BY_FETCH, DIRECT, EXACTLY_ONCE, READY, RECORDS

_CORES = os.cpu_count() or 1

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
that has nothing to do: one that yields batches made beforehand, as large as ours, a hundred megabytes of them a task
(its offsets are not those of a log, so that a filter on them is not measured on it). *one ready-made batch* is one and
the same all the time, whose bytes never leave the processor's cache: Spark without the memory of this machine.
*memory of a task* is the most that a Python worker held; the connector runs in the JVM and has none. *copied* is from a
topic to another of the same broker."""
_HEADER = ["", "way", "figure", "value", "ratio", "from - to", "of bound"]


def spark(rows: Rows) -> Section:
    """A line a case and way."""
    aims = [_never_behind(rows), *(_aim(rows, wanted) for wanted in _AIMS)]
    return Section("Spark", _TEXT, _HEADER, [_line(row) for row in rows], aims, _costs(rows))


def _line(row: dict[str, Any]) -> list[str]:
    line = [row["measurement"], row["way"], row["figure"], number(row["value"])]
    line += [f"{row['ratio']:.2f}", extremes(row["ratios"])] if "ratio" in row else ["-", "-"]
    return [*line, f"{row['share']:.2f}" if "share" in row else "-"]


def _aim(rows: Rows, wanted: _Wanted) -> Aim:
    judged = [row for row in rows if row["measurement"].endswith(wanted.endings) and row["way"] == wanted.way]
    told = "; ".join(f"{row['measurement']}: {row[wanted.figure]:.2f}" for row in judged)
    return Aim(wanted.text, told, all(row[wanted.figure] >= wanted.least for row in judged))


def _never_behind(rows: Rows) -> Aim:
    judged = [row for row in rows if row["way"] in (_FETCH, _DIRECT, _EXACT) and "ratio" in row]
    behind = [f"{row['measurement']}, {row['way']}, {row['ratio']:.2f}" for row in judged if row["ratio"] < 1]
    told = f"behind in {len(behind)} of {len(judged)}" + (f" ({'; '.join(behind)})" if behind else "")
    return Aim("not behind Spark's Kafka connector on Kafka in any figure", told, not behind)


def _costs(rows: Rows) -> list[str]:
    """What a record costs that is read directly, and how much of that is whose."""
    rates = {(row["measurement"], row["way"]): row["value"] for row in rows}
    told = []
    for size in RECORDS:
        whole, alone = f"read {size} B, all columns", f"read {size} B, one Python process without Spark"
        total, spark = (1e6 * _CORES / rates[whole, way] for way in (DIRECT.name, READY.name))
        decode, fetch = (1e6 / rates[alone, way] for way in (DIRECT.name, BY_FETCH.name))
        told.append(
            f"What bounds it, {size} B: direct, a record costs {total:.2f} us of {_CORES} cores; {spark:.2f} us of that"
            f" are Spark's, from Python to the JVM and through it (the bound); reading and decoding by itself takes"
            f" {decode:.2f} us. By Fetch it takes {fetch:.2f} us, beside what the broker does."
        )
    return told
