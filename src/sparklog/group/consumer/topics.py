"""What a group must know of the topics: asked of the broker, kept in the group while it counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol
from uuid import UUID

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
    """The names that ``regex`` matches from end to end.

    The syntax is RE2's, as in Kafka, and so is the promise that a stranger's expression needs: the time is linear in
    the text. To understand an expression may take up to a second, whatever it is used for: not on the broker's loop.
    Raises ApiError (INVALID_REGULAR_EXPRESSION).
    """
    import pyarrow  # a second of the broker's start that only a group with an expression needs
    import pyarrow.compute

    texts = [*names]
    try:
        # On its own first: "a)|(b" is no expression, but would be one between parentheses.
        pyarrow.compute.match_substring_regex(pyarrow.array([""]), regex)
        hits = pyarrow.compute.match_substring_regex(pyarrow.array(texts, pyarrow.string()), rf"\A(?:{regex})\z")
    except pyarrow.ArrowInvalid as error:
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{regex!r}: {error}") from error
    return frozenset(text for text, hit in zip(texts, hits.to_pylist(), strict=True) if hit)
