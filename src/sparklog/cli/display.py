"""How commands show things: tables on standard output, progress on standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_JSON = f"{__name__}.json"
"""Where click's context keeps that ``--json`` was said."""


def output_option(command: F) -> F:
    """Add ``--output``; the command gets ``as_json``."""
    return click.option(
        "-o", "--output", "as_json", type=click.Choice(["table", "json"]), default="table", show_default=True,
        callback=lambda _ctx, _param, choice: choice == "json", help="As a table, or as one JSON document.",
    )(command)  # fmt: skip


def json_lines_option(command: F) -> F:
    """As ``output_option``, for what prints lines as it finds them: ``--json`` says the same as ``--output json``."""
    command = click.option(
        "-o", "--output", "as_json", type=click.Choice(["text", "json"]), default="text", show_default=True,
        callback=lambda ctx, _param, choice: choice == "json" or _JSON in ctx.meta,
        help="As text, or as a JSON object a line.",
    )(command)  # fmt: skip
    return click.option(
        "--json", is_flag=True, is_eager=True, expose_value=False, callback=_note_json, help="As --output json."
    )(command)


def done_option(command: F) -> F:
    """Add ``--output`` to a command that changes something; ``say_done`` heeds it."""
    return click.option(
        "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, expose_value=False,
        callback=lambda ctx, _param, choice: _note_json(ctx, _param, choice == "json"),
        help="Say what was done in words, or as JSON on a line.",
    )(command)  # fmt: skip


def is_json() -> bool:
    """Whether the command that runs is to say what it did as JSON."""
    context = click.get_current_context(silent=True)
    return context is not None and _JSON in context.meta


def say_done(words: str, **done: object) -> None:
    """Say what was done; ``done`` is it as a line of JSON. Where nothing was done it is empty, and there is no line."""
    if not is_json():
        click.echo(printable(words))
    elif done:
        click.echo(json.dumps(done, ensure_ascii=False))


def say_done_aside(words: str, **done: object) -> None:
    """As ``say_done``, for a command whose words go to standard error."""
    if is_json():
        say_done(words, **done)
    else:
        click.echo(printable(words), err=True)


def _note_json(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        ctx.meta[_JSON] = True


class Advance(Protocol):
    """Told of progress: so many units more."""

    def __call__(self, amount: int, /) -> None: ...


def show_json(document: object) -> None:
    """One JSON document, for a program; it names what a table has as columns with underscores for blanks."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def printable(text: str) -> str:
    """With escapes for what a terminal would obey: names of groups and of clients may be any text."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """As ``printable``, for what may have several lines."""
    return "\n".join(map(printable, text.split("\n")))


def path_text(path: str | Path) -> str:
    """For a person: names of files are bytes, and need not be UTF-8."""
    return printable(os.fsencode(path).decode(errors="backslashreplace"))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[str] = ()) -> None:
    """A table for a person at a terminal, tab-separated lines for a program; ``right`` columns are numbers."""
    texts = [["-" if cell is None else printable(str(cell)) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for line in (columns, *texts):
            click.echo("\t".join(line))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for line in texts:
        table.add_row(*map(Text, line))  # a string would be read for markup: a group may be called workers[eu]
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
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), counter, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda amount: bar.advance(task, amount)


def advance_bytes(advance: Advance, _what: object, size: int) -> None:
    """What a backup or a restore tells its listener, for a progress bar."""
    advance(size)


def in_words(error: Exception) -> str:
    """An error as one line for a person: of the operating system's, the file and what is the matter with it."""
    if isinstance(error, OSError) and error.strerror:
        reason = error.strerror[0].lower() + error.strerror[1:]
        return reason if error.filename is None else f"{path_text(error.filename)}: {reason}"
    return str(error)


def counted(number: int, noun: str, plural: str = "") -> str:
    """So many of them, in words; ``plural`` where it is not made with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def moment(time_ms: int) -> str:
    """A time in ms since 1970, for a person here. One that no calendar has, as a client may choose it, is its ms."""
    try:
        return datetime.fromtimestamp(time_ms // 1000).astimezone().isoformat()
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def rate(records: int, size: int, seconds: float) -> str:
    """``records`` and ``size`` bytes in ``seconds``, for a person."""
    seconds = max(seconds, 1e-6)
    return (
        f"{counted(records, 'record')}, {size / 1e6:,.1f} MB in {seconds:.2f} s"
        f" ({records / seconds:,.0f} records/s, {size / 1e6 / seconds:,.1f} MB/s)"
    )


def confirm(question: str, *, yes: bool) -> None:
    """Ask before going on, unless ``yes``. Raises click.UsageError where there is no terminal to ask at."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("this is no terminal, so the question cannot be asked: add --yes")
    click.confirm(printable(question), abort=True)
