"""Numbers on the command line. What is none, or none of those that are allowed, is told in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.types import _NumberRangeBase


_MOST_COPIES = (1 << 15) - 1
"""What the wire can say."""


class WholeNumber(click.IntRange):
    """As ``click.IntRange``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Raises BadParameter."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            raise _refused(value, f"a whole number{_bounds(self)}", error) from None


class Copies(WholeNumber):
    """How many copies a partition has: from 1 on. How many brokers there are is not known here."""

    def __init__(self) -> None:
        super().__init__(1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Raises BadParameter."""
        copies = super().convert(value, param, ctx)
        if copies > _MOST_COPIES:
            raise click.BadParameter("no cluster has so many brokers", ctx=ctx, param=param)
        return copies


class Number(click.FloatRange):
    """As ``click.FloatRange``, without what is no number or has no end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Raises BadParameter."""
        try:
            found = super().convert(value, param, ctx)
            if not math.isfinite(found):
                raise click.BadParameter("", ctx=ctx, param=param)
        except click.BadParameter as error:
            raise _refused(value, f"a number{_bounds(self)}", error) from None
        return found


def _refused(value: object, wanted: str, error: click.BadParameter) -> click.BadParameter:
    return click.BadParameter(f"{str(value)!r} is not {wanted}", ctx=error.ctx, param=error.param)


def _bounds(kind: _NumberRangeBase[Any, Any]) -> str:
    least = "" if kind.min is None else f"{' above' if kind.min_open else ' from'} {kind.min}"
    return least if kind.max is None else f"{least} to {kind.max}"
