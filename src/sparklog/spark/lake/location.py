"""Where a table lies that a user names by a path or a URI."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from sparklog.errors import DataSourceError


def location_of(name: str) -> str:
    """A local path in full, whether it comes as one or as a ``file:`` URI; another URI as it is."""
    scheme, colon, rest = name.partition(":")
    if colon and scheme == "file":
        if not rest.startswith("/"):
            raise DataSourceError("SPARKLOG_INVALID_OPTION", f"table {name}: write file:///PATH, or the path alone")
        return os.path.abspath(unquote(urlsplit(name).path))
    return name.rstrip("/") if "://" in name else os.path.abspath(name)


def identity_of(name: str) -> str:
    """The same text for all names of a table, and another one for another table: of a path, where it lies.

    ``name`` is a path or a URI if it has a slash, else a table of the catalog. Raises as ``location_of`` does.
    """
    return f"table {location_of(name) if '/' in name else name}"


def is_within(name: str, other: str) -> bool:
    """Whether two tables are one, or one lies in the directory of the other, as far as their names tell.

    Raises as ``location_of`` does.
    """
    if "/" not in name or "/" not in other:
        return name == other
    first, second = (f"{location_of(each)}/" for each in (name, other))
    return first.startswith(second) or second.startswith(first)
