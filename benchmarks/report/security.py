"""``benchmarks.security``."""

from __future__ import annotations

from benchmarks.report.base import Aim, Rows, Section, number
from benchmarks.report.compared import HEADER, compared_rows, judgement

COST_AIM = 5.0
_TEXT = """\
One broker of ours beside one of Kafka 3.9.1, as in the section on one broker; how: `benchmarks/security`. Certificates
are of P-256. *handshakes* are new connections, four at a time, each open when it is told which versions the broker
speaks. *under 10,000 lists and quotas*: the same brokers with an authorizer and quotas on bytes and time that nobody
reaches; the cost is the broker's processor time a request beside that of the same request without either."""


def security(rows: Rows) -> Section:
    """``benchmarks.security``."""
    costs = [row for row in rows if "ratio" not in row]
    compared = [row for row in rows if "ratio" in row]
    worst = max(row["sparklog"] for row in costs)
    aims = [
        judgement(compared),
        Aim(
            f"lists and quotas together cost under {COST_AIM:.0f} %",
            "; ".join(f"{row['measurement']}: {row['sparklog']:.1f} %, Kafka {row['kafka']:.1f} %" for row in costs),
            worst < COST_AIM,
        ),
    ]
    shown = [
        cells
        for row in rows
        for cells in (
            compared_rows([row])
            if "ratio" in row
            else [[row["measurement"], row["figure"], number(row["sparklog"]), number(row["kafka"]), "", ""]]
        )
    ]
    return Section("Security", _TEXT, HEADER, shown, aims)
