"""``benchmarks.stalls``."""

from __future__ import annotations

from benchmarks.report.base import Aim, Rows, Section, number

LONGEST_AIM_MS = 20.0
_TEXT = """\
One client asks the worst of each API that it may, while another asks for ApiVersions every 5 ms; how it is measured:
`benchmarks/stalls/`. The broker is one process with one loop, in compiled form. *turn* is the processor time of the
longest turn of that loop, and *garbage* what the search for cyclic garbage took of it; what else the machine does is no
part of these, though a busy one lengthens them, for its cores and caches are shared. Turns below 2 ms are not noted.
*wait* is how long the other client waited at most, by the clock: the turns before its own, other threads of the broker,
its client on the same two cores, and the machine. *nothing* is the same beside an idle broker. Milliseconds, medians of
the rounds; *rounds* are the longest wait of each. Why some APIs have no case: `benchmarks/stalls/table.py`."""


def stalls(rows: Rows) -> Section:
    """``benchmarks.stalls``."""
    return Section(
        "One client beside another",
        _TEXT,
        ["", "turn ms", "garbage ms", "wait ms", "p99 ms", "rounds"],
        [
            [
                row["measurement"],
                number(row["turn"]),
                number(row["garbage"]),
                number(row["longest"]),
                number(row["p99"]),
                ", ".join(number(each) for each in row["longests"]),
            ]
            for row in rows
        ],
        [_aim(rows)],
    )


def _aim(rows: Rows) -> Aim:
    over = [row["measurement"] for row in rows if row["turn"] > LONGEST_AIM_MS]
    worst = max(rows, key=lambda row: float(row["turn"]))
    return Aim(
        f"no request takes more than {LONGEST_AIM_MS:.0f} ms of processor time in one turn of the loop",
        f"{len(rows) - len(over)} of {len(rows)} do not, the worst is {number(worst['turn'])} ms "
        f"({worst['measurement']})",
        not over,
    )
