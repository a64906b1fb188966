"""Options in JSON that name topics and their partitions, each at most once."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

from sparklog.record.layout import MAX_INT64
from sparklog.spark.options.definition import invalid

K = TypeVar("K", bound=Hashable)


class _JsonObject(list[tuple[str, Any]]):
    """The members of an object in the order of the text, in which a name may occur twice."""

    def items(self) -> list[tuple[str, Any]]:
        return self


def json_object(name: str, text: str, example: str) -> dict[str, Any]:
    """The members of the object ``text``, by topic; objects inside it have ``items`` alone.

    Raises DataSourceError where ``text`` is no object, or names a topic twice.
    """
    try:
        found = json.loads(text, object_pairs_hook=_JsonObject)
    except (json.JSONDecodeError, RecursionError):
        found = None
    if not isinstance(found, _JsonObject):
        raise invalid(name, text, f"write it like {example}")
    return once(name, text, "topic", found)


def once(name: str, text: str, what: str, members: Iterable[tuple[K, Any]]) -> dict[K, Any]:
    """The members as a dict. Raises DataSourceError where a key, which is a ``what``, occurs twice."""
    found: dict[K, Any] = {}
    for key, value in members:
        if key in found:
            raise invalid(name, text, f"it names {what} {key} twice")
        found[key] = value
    return found


def whole(value: object) -> int:
    """``value`` if it is a whole number of JSON, of 64 bits at most. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int) or value > MAX_INT64:
        raise ValueError(value)
    return value
