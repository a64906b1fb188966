"""``benchmarks.replication``."""

from __future__ import annotations

from benchmarks.report.base import Aim, Rows, Section
from benchmarks.report.compared import HEADER, compared_rows, judgement

RATE_AIM = 2.0
_TEXT = """\
Three sparklog brokers beside three of Kafka 3.9.1 on one machine, topics of three partitions with three replicas and
`min.insync.replicas=2`; how it is measured: `benchmarks/replication.py`. Columns as above. *after ...*: a broker that
leads a third of so many partitions is killed, or stopped, and this is the longest time until each of them acknowledged
a record of librdkafka's again, which asks once a second who leads now; both have a session timeout of 6 s."""


def replication(rows: Rows) -> Section:
    """``benchmarks.replication``."""
    rates = [row for row in rows if row["figure"] == "MB/s"]
    aims = [
        judgement(rows),
        Aim(
            f"{RATE_AIM:.0f} times Kafka's MB/s",
            "; ".join(f"{row['measurement']}: {row['ratio']:.2f}" for row in rates),
            all(row["ratio"] >= RATE_AIM for row in rates),
        ),
    ]
    return Section("Three replicas", _TEXT, HEADER, compared_rows(rows), aims)
