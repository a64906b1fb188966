"""``benchmarks.spark``."""

from __future__ import annotations

from benchmarks.report.base import Aim, Rows, Section, extremes, number

RATIO_AIM = 1.0
_TEXT = """\
One local session: Spark's own Kafka connector on Kafka 3.9.1, and beside it `format("sparklog")` on that Kafka and on
sparklog, the same records and options, in one run; how: `benchmarks/spark.py` and `benchmarks/spark_cases.py`. Reads go
to nowhere (`noop`) if nothing else is said. `ratio` is the median over the rounds of how many times better
than the connector on Kafka, more than 1 being better, and `from - to` its extremes. *memory of a task* is the most
that a Python worker held; the connector runs in the JVM and has none."""
_HEADER = ["", "figure", "connector on Kafka", "sparklog on Kafka", "ratio", "from - to"]
_OURS = ("sparklog", "sparklog")


def spark(rows: Rows) -> Section:
    """A line a case."""
    cases = list(dict.fromkeys((row["measurement"], row["figure"]) for row in rows))
    header = [*_HEADER, "sparklog on sparklog", "ratio", "from - to"]
    return Section("Spark", _TEXT, header, [_line(rows, *case) for case in cases], [_aim(rows)])


def _line(rows: Rows, measurement: str, figure: str) -> list[str]:
    same = {(row["format"], row["broker"]): row for row in rows if row["measurement"] == measurement}
    connector = same.get(("kafka", "kafka"))
    line = [measurement, figure, number(connector["value"]) if connector else "-"]
    for way in (("sparklog", "kafka"), _OURS):
        row = same[way]
        line.append(number(row["value"]))
        line += [f"{row['ratio']:.2f}", extremes(row["ratios"])] if "ratio" in row else ["-", "-"]
    return line


def _aim(rows: Rows) -> Aim:
    judged = [row for row in rows if (row["format"], row["broker"]) == _OURS and "ratio" in row]
    behind = [f"{row['measurement']}, {row['ratio']:.2f}" for row in judged if row["ratio"] < RATIO_AIM]
    told = f"behind in {len(behind)} of {len(judged)}" + (f" ({'; '.join(behind)})" if behind else "")
    return Aim("not behind Spark's Kafka connector on Kafka in any figure", told, not behind)
