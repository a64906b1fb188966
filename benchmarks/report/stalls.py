"""``benchmarks.stalls``."""

from __future__ import annotations

from benchmarks.report.base import Aim, Rows, Section, number

LONGEST_AIM_MS = 20.0
NOTHING = "nothing"
"""The case in which the broker is left alone."""
_MOST = f"{LONGEST_AIM_MS:.0f} ms"
_TEXT = """\
One client asks the worst of each API that it may, while another asks for ApiVersions every 5 ms; how it is measured:
`benchmarks/stalls/`. The broker is one process with one loop, in compiled form. *turn* is the processor time of the
longest turn of that loop, and *garbage* what the search for cyclic garbage took of it; what else the machine does is no
part of these, though a busy one lengthens them, for its cores and caches are shared. Turns below 2 ms are not noted.
*wait* is how long the other client waited at most, by the clock: the turns before its own, other threads of the broker,
its client on the same two cores, and the machine. *nothing* is the same beside an idle broker. Milliseconds, medians of
the rounds; *rounds* are the longest wait of each. The aim is of the wait, and only a quiet machine can show it: where
*nothing* is some milliseconds already, the machine is not quiet, and the turns tell more. Why some APIs have no case:
`benchmarks/stalls/table.py`."""


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
        _aims(rows),
    )


def _aims(rows: Rows) -> list[Aim]:
    asked = [row for row in rows if row["measurement"] != NOTHING]
    beside = "".join(
        f"; beside an idle broker it is {number(row['longest'])} ms" for row in rows if row["measurement"] == NOTHING
    )
    return [
        _aim(f"beside no request another client waits longer than {_MOST}", asked, "longest", beside),
        _aim(f"no request takes more than {_MOST} of processor time in one turn of the loop", asked, "turn"),
    ]


def _aim(wanted: str, rows: Rows, column: str, more: str = "") -> Aim:
    over = [row for row in rows if row[column] > LONGEST_AIM_MS]
    worst = max(rows, key=lambda row: float(row[column]))
    return Aim(
        wanted,
        f"{len(rows) - len(over)} of {len(rows)} keep to it, the longest is {number(worst[column])} ms "
        f"({worst['measurement']}){more}",
        not over,
    )
