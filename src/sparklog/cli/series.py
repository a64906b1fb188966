"""A command on several things by their names: each is done or refused by itself, and both are said."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click

from sparklog.cli.display import printable_lines, say_done
from sparklog.errors import ApiError


def in_series(names: Iterable[str], act: Callable[[str], None]) -> None:
    """Call ``act``, which says what it did, for each name, once; those that are refused stop none.

    Raises the last ApiError of those that ``act`` raised; the others are on standard error by then. Any other error
    ends the series.
    """
    failure: ApiError | None = None
    for name in dict.fromkeys(names):
        try:
            act(name)
        except ApiError as error:
            _say(failure)
            failure = error
        except BaseException:
            _say(failure)
            raise
    if failure is not None:
        raise failure


def _say(failure: ApiError | None) -> None:
    if failure is not None:
        click.echo(printable_lines(str(failure)), err=True)


def delete_each(names: Iterable[str], delete: Callable[[str], None]) -> None:
    """Delete them in their order, and say of each that is gone; as ``in_series``."""

    def deleted(name: str) -> None:
        delete(name)
        say_done(f"deleted {name}", deleted=name)

    in_series(names, deleted)
