"""What a program names to the clients: topics, groups, partitions. What is none is refused before anybody is asked.

A text is a collection of letters, and a ``TopicPartition`` one of a text and a number: what is given in place of a
list of them would be taken apart, and its letters would name other topics.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sparklog.errors import LocalProtocolError
from sparklog.structs import TopicPartition


def names(given: Iterable[str], what: str) -> list[str]:
    """The names in a collection of ``what`` (topics, groups, …). Raises LocalProtocolError for anything else."""
    found = _listed(given, what, str | bytes)
    for each in found:
        if not isinstance(each, str):
            raise LocalProtocolError(f"{what} go by their names: {each!r} is no str")
    return found


def partitions(given: Iterable[TopicPartition]) -> list[TopicPartition]:
    """The partitions in a collection. Raises LocalProtocolError for anything else."""
    found = _listed(given, "partitions", TopicPartition | str | bytes)
    for each in found:
        if not isinstance(each, TopicPartition):
            raise LocalProtocolError(f"a partition is a TopicPartition(topic, number), not {each!r}")
    return found


def _listed(given: Any, what: str, single: Any) -> list[Any]:
    if isinstance(given, single):
        raise LocalProtocolError(f"{what} are given as a list, not as the single {given!r}: write [{given!r}]")
    if not isinstance(given, Iterable):
        raise LocalProtocolError(f"{what} are given as a list, not as {given!r}")
    return list(given)
