"""Arguments that every client takes, checked before any broker is asked: names, partitions, times, functions.

A text is a collection of letters, and a ``TopicPartition`` one of a text and a number: what is given in place of a
list of them would be taken apart, and its letters would name other topics.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from sparklog.errors import LocalProtocolError
from sparklog.record import layout
from sparklog.structs import TopicPartition


def checked_names(given: Iterable[str], what: str) -> list[str]:
    """The names in a collection of ``what`` (topics, groups, …). Raises LocalProtocolError for anything else."""
    found = _listed(given, what, str | bytes)
    for each in found:
        if not isinstance(each, str):
            raise LocalProtocolError(f"{what} go by their names: {each!r} is no str")
    return found


def checked_partitions(given: Iterable[TopicPartition]) -> list[TopicPartition]:
    """The partitions in a collection. Raises LocalProtocolError for anything else."""
    found = _listed(given, "partitions", TopicPartition | str | bytes)
    for each in found:
        if not isinstance(each, TopicPartition):
            raise LocalProtocolError(f"a partition is a TopicPartition(topic, number), not {each!r}")
    return found


def as_timestamp(given: Any) -> int:
    """Milliseconds since 1970.

    Raises TypeError for what is no whole number, ValueError for one that no record can have.
    """
    try:
        timestamp = operator.index(given)
    except TypeError:
        raise TypeError(
            f"a timestamp is an int, ms since 1970, not {type(given).__name__}: write int(1000 * seconds)"
        ) from None
    if not 0 <= timestamp <= layout.MAX_INT64:
        raise ValueError(f"a timestamp is ms since 1970, from 0 to {layout.MAX_INT64}, not {timestamp}")
    return timestamp


def check_callable(name: str, given: Any) -> None:
    """Raises TypeError unless ``given`` is a function or None."""
    if given is not None and not callable(given):
        raise TypeError(f"{name} is a function, not {given!r}")


def _listed(given: Any, what: str, single: Any) -> list[Any]:
    if isinstance(given, single):
        raise LocalProtocolError(f"{what} are given as a list, not as the single {given!r}: write [{given!r}]")
    if not isinstance(given, Iterable):
        raise LocalProtocolError(f"{what} are given as a list, not as {given!r}")
    return list(given)
