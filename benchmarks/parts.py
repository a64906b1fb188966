"""A benchmark of several parts: some can be run again, and the others keep their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

Rows = list[dict[str, Any]]


def check_names(names: Iterable[str], known: Iterable[str]) -> None:
    """Raises SystemExit for a part that there is not."""
    known = list(known)
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"no part is called {', '.join(unknown)}; there are {', '.join(known)}")


def run_parts(
    parts: Mapping[str, Callable[[], Iterable[dict[str, Any]]]],
    names: Iterable[str],
    before: Rows,
    keep: Callable[[Rows], None],
) -> Rows:
    """The rows ``before``, those of the parts ``names`` replaced; kept whenever a part has ended.

    Each row gets the name of its part.
    """
    rows = {name: [row for row in before if row["part"] == name] for name in parts}
    for name in names:
        rows[name] = [{"part": name, **row} for row in parts[name]()]
        keep([*chain.from_iterable(rows.values())])
    return [*chain.from_iterable(rows.values())]
