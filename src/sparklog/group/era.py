"""Which partitions have been deleted since a request looked up what exists."""

from __future__ import annotations

from collections.abc import Set

from sparklog.structs import TopicPartition


class Era:
    """The time between two deletions of topics.

    Code that remembers the era in which partitions existed can ask later which of them have been deleted since, though
    there may be others of the same names by then. An era knows the next one only, so those before the first that is
    remembered are let go.
    """

    __slots__ = ("_deleted", "_next")

    def __init__(self) -> None:
        self._deleted: frozenset[TopicPartition] = frozenset()
        self._next: Era | None = None

    def end(self, deleted: frozenset[TopicPartition]) -> Era:
        """These are deleted now. Returns the era that begins."""
        self._deleted, self._next = deleted, Era()
        return self._next

    def deleted_since(self, partitions: Set[TopicPartition]) -> set[TopicPartition]:
        """Those of ``partitions``, which existed in this era or since, that have been deleted since then."""
        gone: set[TopicPartition] = set()
        era = self
        while era._next is not None:
            gone |= partitions & era._deleted
            era = era._next
        return gone
