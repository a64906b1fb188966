"""The view in a terminal, which keys change."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sparklog.cli.display import printable
from sparklog.cli.top.view import SORTS, BrokerRow, GroupRow, TopicRow, View, sorted_rows

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

KEYS = {name[0]: name for name in SORTS if name != "read"} | {"o": "read"}
"""What is typed to sort by it: r, b, s, l, n, and o for what goes out."""
QUIT = "q"
_FRAME_LINES = 13
"""Of headings and rules, which leave the rest of a screen to rows."""


@contextmanager
def keyboard() -> Iterator[None]:
    """Keys come at once, and are not shown; as before at the end."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def pressed(timeout: float) -> str | None:
    """The next key within so many seconds; None for no key, QUIT for the end of the input."""
    # not by sys.stdin.read, which takes all that was typed, and gives the first of it
    descriptor = sys.stdin.fileno()
    ready, _, _ = select.select([descriptor], [], [], timeout)
    return (os.read(descriptor, 1).decode("latin-1") or QUIT) if ready else None


def drawn(view: View, sort: str, height: int, trouble: str = "") -> Group:
    """Three tables that fit into ``height`` lines; ``trouble``: why they are not of now."""
    from rich.console import Group
    from rich.text import Text

    keys = "  ".join(f"{key} {name}" for key, name in KEYS.items())
    title = Text(f"sparklog top: the last {view.seconds:.1f} s   q quit   sort by {sort}: {keys}", style="dim")
    if trouble:
        title = Text(printable(f"not of now: {trouble}"), style="bold red", no_wrap=True, overflow="ellipsis")
    room = max(height - _FRAME_LINES - len(view.brokers), 2)
    groups = sorted_rows(view.groups, sort)[: max(room // 3, 1)]
    topics = sorted_rows(view.topics, sort)[: max(room - len(groups), 1)]
    return Group(
        title,
        _table(BrokerRow._fields, view.brokers),
        _table(TopicRow._fields, topics),
        _table(GroupRow._fields, groups),
    )


def cells(row: Sequence[object]) -> list[str]:
    """Numbers for a person: rates without fractions from 10 on, sizes with thousands divided."""
    return [_cell(each) for each in row]


def headings(fields: Sequence[str]) -> list[str]:
    """The names of columns: ``records/s`` for ``records_per_s``."""
    return [each.replace("_per_s", "/s").replace("_", " ") for each in fields]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10 or not value else f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


def _table(fields: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
    for field in headings(fields):
        table.add_column(field, justify="left" if field in ("topic", "group", "state") else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, cells(row)))
    return table
