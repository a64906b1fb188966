"""``benchmarks.lake``."""

from __future__ import annotations

from benchmarks.report.base import Aim, Rows, Section
from benchmarks.report.compared import BESIDE_HEADER, beside_rows

_TEXT = """\
Topics into Delta tables and back, in one local Spark session of two cores; how each part is measured:
`benchmarks/lake/`. *offload* is a whole job on a new table beside Spark's connector on Kafka 3.9.1 with
`df.write.format("delta")`, on the same records; *MB of CPU time/s* is what a second of processor time of the whole
session (driver, JVM, Python workers) moves. Figures are the best of the rounds; `ratio` is between these, more than 1
being better, and `from - to` the extremes of the rounds. """


def lake(rows: Rows) -> Section:
    """``benchmarks.lake``."""
    return Section(
        "Log and lake",
        _TEXT,
        BESIDE_HEADER,
        beside_rows(rows),
        [*_rates(rows), *_costs(rows), *_freshness(rows), *_union(rows), *_load(rows)],
    )


def _rates(rows: Rows) -> list[Aim]:
    found = [row for row in rows if row["measurement"].startswith("offload") and row["figure"] == "records/s"]
    if not found:
        return []
    got = ", ".join(f"{row['ratio']:.2f} times ({row['measurement']})" for row in found)
    return [Aim("offload five times as fast as the connector", got, min(row["ratio"] for row in found) >= 5)]


def _costs(rows: Rows) -> list[Aim]:
    """Of the larger records alone: what a small one costs is not its bytes."""
    return [
        Aim("offload 300 MB/s a core at 1 KB", f"{row['sparklog']:,.0f} MB/s", row["sparklog"] >= 300)
        for row in rows
        if row["measurement"] == "offload 1000 B" and row["figure"] == "of CPU time: MB/s"
    ]


def _freshness(rows: Rows) -> list[Aim]:
    return [
        Aim("95 % of the records are in the table within 10 s", f"{row['sparklog']:.1f} s", row["sparklog"] < 10)
        for row in rows
        if row["figure"] == "s old, p95"
    ]


def _union(rows: Rows) -> list[Aim]:
    found = [row for row in rows if row["part"] == "union"]
    if not found:
        return []
    got = ", ".join(f"{row['ratio']:.2f} of their rate ({row['measurement']})" for row in found)
    return [
        Aim("table and log read as one within 10 % of both by themselves", got, min(r["ratio"] for r in found) > 0.9)
    ]


def _load(rows: Rows) -> list[Aim]:
    """The disk bounds what adoption can gain: so how far it lets a load be faster is told beside the aim."""
    loads = {row["figure"]: row for row in rows if row["measurement"].startswith("load ")}
    aims = []
    if "MB/s" in loads:
        row = loads["MB/s"]
        got = f"{row['ratio']:.2f} times"
        if (disk := loads.get("of the disk: MB/s")) is not None:
            got += f", where a plain write to the disk is {disk['other'] / row['other']:.2f} times as fast"
        aims.append(Aim("load twice as fast as by a producer", got, row["ratio"] >= 2))
    return aims + [
        Aim("load at half the rate of a plain write to the disk", f"{row['ratio']:.2f} of it", row["ratio"] >= 0.5)
        for row in rows
        if row["figure"].startswith("of the disk")
    ]
