"""Partitions that are on a disk here and cannot be served."""

from __future__ import annotations

from pathlib import Path

from sparklog.errors import DiskFull, LogError
from sparklog.structs import TopicPartition


class UnusablePartitions(dict[TopicPartition, str]):
    """Why each cannot be served.

    Of one that lies in a directory in service it is known where. The others are in a directory that is out of service,
    or may be. What a full disk kept from being opened is worth another try.
    """

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[TopicPartition, Path] = {}
        self._short_of_room: set[TopicPartition] = set()

    def refuse(self, tp: TopicPartition, path: Path, error: LogError) -> None:
        """What lies in ``path`` could not be opened."""
        self[tp] = str(error)
        self.places[tp] = path
        if isinstance(error, DiskFull):
            self._short_of_room.add(tp)

    def refuse_again(self, tp: TopicPartition, error: LogError) -> None:
        """Nor could it this time."""
        self[tp] = str(error)
        if not isinstance(error, DiskFull):
            self._short_of_room.discard(tp)

    def waits_for_room(self, tp: TopicPartition) -> bool:
        """Whether opening it failed for want of room, so that it is worth another try."""
        return tp in self._short_of_room and tp in self.places

    def is_out_of_service(self, tp: TopicPartition) -> bool:
        """Whether it cannot be served because its log directory, or one that may be its own, is out of service: then a
        line of the log has said so of the directory.
        """
        return tp in self and tp not in self.places

    def give_up(self, tp: TopicPartition) -> None:
        """It is not tried again."""
        self._short_of_room.discard(tp)

    def forget(self, tp: TopicPartition) -> None:
        """It is served, or gone."""
        self.pop(tp, None)
        self.places.pop(tp, None)
        self._short_of_room.discard(tp)

    def lose(self, directory: Path, why: str) -> None:
        """A log directory with some of them is out of service."""
        for tp in [tp for tp, place in self.places.items() if place.parent == directory]:
            del self.places[tp]
            if tp in self._short_of_room:
                self[tp] = why
                self._short_of_room.discard(tp)
