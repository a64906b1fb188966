"""What a group must know of the topics: asked of the broker, kept in the group while it counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol
from uuid import UUID

from sparklog import regular_expression
from sparklog.errors import ApiError, ErrorCode


class TopicDescription(NamedTuple):
    """A topic as it was when the group's target was made."""

    topic_id: UUID
    name: str
    partition_count: int


class Topics(Protocol):
    """The cluster's topics as this broker sees them.

    ``version`` is 0 until it has heard of any, and changes whenever something may have.
    """

    @property
    def version(self) -> int: ...

    def topic(self, name: str) -> TopicDescription | None: ...

    def name_of(self, topic_id: UUID) -> str | None: ...

    def matching(self, regex: str) -> frozenset[str]:
        """The names that ``regex`` matches whole. Raises ApiError (INVALID_REGULAR_EXPRESSION)."""

    async def look_up(self, regexes: Collection[str]) -> None:
        """Find out what these match, or that they are no expressions, so that ``matching`` need not in this turn."""


def matching(regex: str, names: Iterable[str]) -> frozenset[str]:
    """The names that ``regex`` matches from end to end, in RE2's syntax, as in Kafka.

    To understand an expression may take up to a second: not on the broker's loop. Raises ApiError
    (INVALID_REGULAR_EXPRESSION).
    """
    try:
        return regular_expression.matching(regex, names)
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error
