"""The parameters of a request, and pages of rows. Each function raises ValueError, which says what is allowed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from aiohttp import web

T = TypeVar("T")
MOST_ROWS: Final = 500
BODY_S: Final = 10.0
"""In which the body of a request must have come."""
_ROWS: Final = 50
_EXACT: Final = 2**53
_LONGEST: Final = 1000
"""Characters of a parameter."""


class Page(NamedTuple):
    """Which rows are wanted, of those that have ``search`` in their name."""

    search: str
    sort: str
    descending: bool
    offset: int
    limit: int

    @classmethod
    def of(cls, request: web.Request) -> Page:
        return cls(
            text(request.query, "search", ""),
            text(request.query, "sort", ""),
            flag(request.query, "descending"),
            number(request.query, "offset", 0, most=2**31),
            number(request.query, "limit", _ROWS, least=1, most=MOST_ROWS),
        )

    def cut(self, rows: Iterable[T], name: Callable[[T], str], orders: Mapping[str, Callable[[T], Any]]) -> Cut:
        """The rows of this page; ``orders`` are the columns by which they may be sorted.

        Raises ValueError for another column.
        """
        wanted = self.search.lower()
        found = [each for each in rows if wanted in name(each).lower()] if wanted else list(rows)
        if self.sort:
            if self.sort not in orders:
                raise ValueError(f"sort is one of {', '.join(orders)}")
            found.sort(key=orders[self.sort], reverse=self.descending)
        return Cut(len(found), self.offset, found[self.offset : self.offset + self.limit])


class Cut(NamedTuple):
    """Some rows of ``total``, from ``offset`` on."""

    total: int
    offset: int
    rows: Sequence[Any]

    def told(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """As the page takes it, with ``rows`` for its rows."""
        return {"total": self.total, "offset": self.offset, "rows": rows}


def text(given: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """A parameter; without a default it must be there. Raises ValueError where it is not, or is too long."""
    found = given.get(name, default)
    if not isinstance(found, str) or len(found) > _LONGEST:
        raise ValueError(f"{name} must be given, as a text of {_LONGEST} characters at most")
    return found


def flag(given: Mapping[str, Any], name: str) -> bool:
    """A parameter that is ``true``, or anything else for no."""
    return bool(given.get(name) in ("true", True))


def number(
    given: Mapping[str, Any], name: str, default: int | None = None, *, least: int = 0, most: int = 2**63 - 1
) -> int:
    """A whole number; without a default it must be there.

    Raises ValueError where it is not, or is none from ``least`` to ``most``.
    """
    found = given.get(name, default)
    try:
        value = int(found) if isinstance(found, int | str) and len(str(found)) <= 20 else None
    except ValueError:
        value = None
    if value is None or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}")
    return value


def exact(value: int) -> int | str:
    """As it is told in JSON: a page's script has no whole numbers beyond 2^53, so those are text."""
    return value if abs(value) < _EXACT else str(value)


async def body(request: web.Request) -> dict[str, Any]:
    """The JSON object that a request comes with, in UTF-8.

    Another charset is not looked for: to read some of Python's takes minutes, and anybody may name them. Raises
    HTTPRequestTimeout for a body that does not come: whoever sends a byte of it would keep the connection.
    """
    try:
        async with asyncio.timeout(BODY_S):
            told = await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout(text="the body of the request has not come in time") from None
    try:
        found = json.loads(told.decode())
    except RecursionError:
        raise ValueError("a JSON object is expected, not one of so many levels") from None
    if not isinstance(found, dict):
        raise ValueError("a JSON object is expected")
    return found
