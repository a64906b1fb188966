"""``benchmarks.stalls``."""

from __future__ import annotations

from benchmarks.report.base import Aim, Rows, Section, number

LONGEST_AIM_MS = 20.0
_TEXT = """\
The longest wait of a client that asks for ApiVersions every 5 ms, while another asks the worst of each API that it may;
how it is measured: `benchmarks/stalls.py`. The broker is one process with one loop. *nothing* is the same client beside
an idle broker: what it and the machine add by themselves. Milliseconds, the median of the rounds; *rounds* are the
longest wait of each."""


def stalls(rows: Rows) -> Section:
    """``benchmarks.stalls``."""
    return Section(
        "One client beside another",
        _TEXT,
        ["", "longest ms", "p99 ms", "rounds"],
        [
            [
                row["measurement"],
                number(row["longest"]),
                number(row["p99"]),
                ", ".join(number(each) for each in row["longests"]),
            ]
            for row in rows
        ],
        [_aim(rows)],
    )


def _aim(rows: Rows) -> Aim:
    over = [row["measurement"] for row in rows if row["longest"] > LONGEST_AIM_MS]
    worst = max(rows, key=lambda row: float(row["longest"]))
    return Aim(
        f"no request holds up another client for more than {LONGEST_AIM_MS:.0f} ms",
        f"{len(rows) - len(over)} of {len(rows)} do not, the worst is {number(worst['longest'])} ms "
        f"({worst['measurement']})",
        not over,
    )
