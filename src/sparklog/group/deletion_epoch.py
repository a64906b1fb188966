"""Which partitions have been deleted since a request looked up what exists, or are being forgotten still."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set

from sparklog.structs import TopicPartition


class DeletionEpoch:
    """The time between two deletions of topics.

    Code that remembers the epoch in which partitions existed can ask later which of them have been deleted since,
    though there may be others of the same names by then. What was kept for the deleted ones goes in steps; until the
    last one nothing can be kept for others, whose names are the same. An epoch knows the next one only, so those before
    the first that is remembered are let go.
    """

    __slots__ = ("_deleted", "_going", "_next")

    def __init__(self, going: Counter[TopicPartition] | None = None) -> None:
        """``going``: how many deletions of a partition are not forgotten yet; of all epochs."""
        self._deleted: frozenset[TopicPartition] = frozenset()
        self._going: Counter[TopicPartition] = Counter() if going is None else going
        self._next: DeletionEpoch | None = None

    def end(self, deleted: frozenset[TopicPartition]) -> DeletionEpoch:
        """These are deleted now, and ``forgotten`` later. Returns the epoch that begins."""
        self._going.update(deleted)
        self._deleted, self._next = deleted, DeletionEpoch(self._going)
        return self._next

    def forgotten(self, deleted: frozenset[TopicPartition]) -> None:
        """Nothing is kept any more for these, which were deleted in this epoch or before."""
        self._going -= Counter(deleted)

    def deleted_since(self, partitions: Set[TopicPartition]) -> set[TopicPartition]:
        """Those of ``partitions``, which existed in this epoch or since, that have been deleted since then, or in whose
        place others were that are being forgotten.
        """
        gone = {each for each in partitions if each in self._going} if self._going else set()
        epoch = self
        while epoch._next is not None:
            gone |= partitions & epoch._deleted
            epoch = epoch._next
        return gone
