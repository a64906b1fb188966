"""The deletion of several things by their names: each is deleted or refused by itself, and both are said."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click

from sparklog.cli.display import say_done
from sparklog.errors import ApiError


def delete_each(names: Iterable[str], delete: Callable[[str], None]) -> None:
    """Delete them in their order, and say of each that is gone; those that are refused stop none.

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
            say_done(f"deleted {name}", deleted=name)
    if failure is not None:
        raise failure
