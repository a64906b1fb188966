"""Options that name a table that has what a log had, and which version of it."""

from __future__ import annotations

from datetime import UTC, datetime

from sparklog.spark.options.definition import Kind, invalid
from sparklog.spark.options.kinds import parsed

AsOf = int | datetime
"""A version of a table, or the last one that was committed at a time or before it."""


def _table(name: str, text: str) -> str:
    table = text.strip()
    if "/" not in table:
        raise invalid(
            name, text, "it is a path or URI with a slash in it; sparklog.spark.table finds a table of the catalog"
        )
    return table


def _as_of(name: str, text: str) -> AsOf:
    if text.strip().isdecimal():
        return int(text)
    time = parsed(name, text, datetime.fromisoformat, "a version, or a time like 2026-01-31T12:00:00")
    return time if time.tzinfo else time.replace(tzinfo=UTC)


TABLE_LOCATION: Kind[str | None] = Kind(_table, "path or URI of a Delta table")
AS_OF: Kind[AsOf | None] = Kind(_as_of, "version, or time: `2026-01-31T12:00:00+01:00`, UTC's without a zone")
