"""Paths on the command line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click


class PathTo(click.Path):
    """As ``click.Path``, for a ``Path``. Without a character it is refused: it would be the working directory, where it
    is mostly a variable of the shell that is not set."""

    def __init__(self, *, file_okay: bool = True) -> None:
        super().__init__(file_okay=file_okay, path_type=Path)

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Raises BadParameter."""
        if value == "":
            raise click.BadParameter("an empty path is none: . is the working directory", ctx=ctx, param=param)
        return super().convert(value, param, ctx)
