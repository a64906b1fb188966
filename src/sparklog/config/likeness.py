"""Names that are like one that is not there, which may have been meant."""

from __future__ import annotations

import difflib
from collections.abc import Collection


def alike(name: str, there: Collection[str]) -> str:
    """A question behind a name that is not ``there``: was this one meant? Nothing where none is like it."""
    near = difflib.get_close_matches(name, there, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
