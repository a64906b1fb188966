"""Which partitions have been deleted since a request looked up what exists."""

from __future__ import annotations

from collections.abc import Set

from sparklog.structs import TopicPartition


class DeletionEpoch:
    """The time between two deletions of topics.

    Code that remembers the epoch in which partitions existed can ask later which of them have been deleted since,
    though there may be others of the same names by then. An epoch knows the next one only, so those before the first
    that is remembered are let go.
    """

    __slots__ = ("_deleted", "_next")

    def __init__(self) -> None:
        self._deleted: frozenset[TopicPartition] = frozenset()
        self._next: DeletionEpoch | None = None

    def end(self, deleted: frozenset[TopicPartition]) -> DeletionEpoch:
        """These are deleted now. Returns the epoch that begins."""
        self._deleted, self._next = deleted, DeletionEpoch()
        return self._next

    def deleted_since(self, partitions: Set[TopicPartition]) -> set[TopicPartition]:
        """Those of ``partitions``, which existed in this epoch or since, that have been deleted since then."""
        gone: set[TopicPartition] = set()
        epoch = self
        while epoch._next is not None:
            gone |= partitions & epoch._deleted
            epoch = epoch._next
        return gone
