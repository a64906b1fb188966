"""How commands show things: tables on standard output, progress on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import click


class Advance(Protocol):
    """Told of progress: so many units more."""

    def __call__(self, amount: int, /) -> None: ...


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[str] = ()) -> None:
    """A table for a person at a terminal, tab-separated lines for a program; ``right`` columns are numbers."""
    texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for line in (columns, *texts):
            click.echo("\t".join(line))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for line in texts:
        table.add_row(*line)
    Console().print(table)


@contextmanager
def progress(what: str, total: int | None, unit: str) -> Iterator[Advance]:
    """A progress bar on standard error if that is a terminal, otherwise nothing. ``unit`` is bytes or records."""
    if not sys.stderr.isatty():
        yield lambda _amount: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    counter = DownloadColumn() if unit == "bytes" else TextColumn("{task.completed:,.0f} " + unit)
    columns = (TextColumn("{task.description}"), BarColumn(), counter, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda amount: bar.advance(task, amount)


def rate(records: int, size: int, seconds: float) -> str:
    """``records`` and ``size`` bytes in ``seconds``, for a person."""
    seconds = max(seconds, 1e-6)
    return (
        f"{records:,} records, {size / 1e6:,.1f} MB in {seconds:.2f} s"
        f" ({records / seconds:,.0f} records/s, {size / 1e6 / seconds:,.1f} MB/s)"
    )
