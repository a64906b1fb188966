"""``benchmarks.spark_read``."""

from __future__ import annotations

from benchmarks.report.base import Aim, Rows, Section

RATIO_AIM = 1.0
_TEXT = """\
To nowhere (`noop`), one local session: `format("sparklog")` on sparklog and on Kafka 3.9.1, beside Spark's own Kafka
connector on Kafka 3.9.1, the same records. `ratio` is to the connector reading the same columns. How it is measured:
`benchmarks/spark_read.py`."""


def spark(rows: Rows) -> Section:
    """``benchmarks.spark_read``."""
    aims = [
        Aim(
            "read 1 KB records at least as fast as Spark's Kafka connector",
            f"{row['ratio']:.1f} times",
            row["ratio"] >= RATIO_AIM,
        )
        for row in rows
        if row["record_size"] == 1000 and row["reader"] == "sparklog on sparklog"
    ]
    return Section(
        "Spark batch read",
        _TEXT,
        ["", "records/s", "MB/s", "ratio"],
        [
            [
                f"{row['record_size']} B, {row['reader']}",
                f"{row['records_per_second']:,}",
                f"{row['mb_per_second']:,}",
                f"{row['ratio']:.2f}",
            ]
            for row in rows
        ],
        aims,
    )
