"""The deletion of several things by their names: each is deleted or refused by itself, and both are said."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click

from sparklog.errors import ApiError


def delete_each(names: Iterable[str], delete: Callable[[str], None]) -> None:
    """Delete them in their order, and print a line for each that is gone; those that are refused stop none.

    Raises the last ApiError of those that ``delete`` raised; the others are on standard error by then.
    """
    failure: ApiError | None = None
    for name in dict.fromkeys(names):
        try:
            delete(name)
        except ApiError as error:
            if failure is not None:
                click.echo(str(failure), err=True)
            failure = error
        else:
            click.echo(f"deleted {name}")
    if failure is not None:
        raise failure
