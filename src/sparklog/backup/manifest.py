"""What a backup holds, as its manifest says it: one point of some topics, and the files that have their records.

A manifest is whole by itself: it lists the files of earlier backups that it uses again. Invariant: the files of a
partition follow one another, from its first offset or before it, to its end or to behind the last record before it,
where compaction left nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from sparklog.errors import StorageError
from sparklog.storage.manifests import Document, Manifests
from sparklog.storage.place import Place
from sparklog.storage.segment_file import SegmentFile
from sparklog.structs import TopicPartition

_FORMAT = 1
_DIRECTORY = "backups"


class Unseen(NamedTuple):
    """What the user that made a backup might not describe, so that it is not in it, or nobody knows."""

    groups: bool = False
    """Groups may be missing, for brokers list only those that the user may describe."""
    transactions: bool = False
    """Transactions may have ended while the cut was taken, for the same reason."""
    refused: tuple[str, ...] = ()
    """Groups that are missing, by name: the user was told of them, and not of their offsets."""


ALL_SEEN = Unseen()


class PartitionBackup(NamedTuple):
    """The offsets ``start`` ≤ o < ``end`` of a partition, and its ``files`` in their order."""

    start: int
    end: int
    files: tuple[SegmentFile, ...]

    def check(self, tp: TopicPartition) -> None:
        """Raises StorageError unless the files follow one another from the start on, and end with it at the latest."""
        position = self.files[0].start if self.files else self.start
        if not position <= self.start <= self.end:
            raise StorageError(f"partition {tp}: its files begin behind offset {self.start}")
        for each in self.files:
            if each.start != position or each.end <= position:
                raise StorageError(f"partition {tp}: {each.path} begins at offset {each.start}, not at {position}")
            position = each.end
        if position > self.end:
            raise StorageError(f"partition {tp}: its files go beyond offset {self.end}")


class TopicBackup(NamedTuple):
    """A topic as it was. ``settings`` are those that were its own; ``partitions`` are in the order of their numbers."""

    topic_id: UUID
    replication_factor: int
    settings: dict[str, str]
    partitions: tuple[PartitionBackup, ...]


class GroupOffset(NamedTuple):
    """What a group had committed, within the offsets of the backup."""

    offset: int
    metadata: str


@dataclass(frozen=True, slots=True)
class Backup:
    """One backup."""

    run: str
    """Drawn; the directory of the files that its run wrote."""
    made_ms: int
    cluster_id: str
    is_consistent: bool
    """No transaction ended while the cut was taken, so none is parted between partitions or from its group's
    offsets.
    """
    topics: dict[str, TopicBackup]
    groups: dict[str, dict[TopicPartition, GroupOffset]]
    unseen: Unseen = ALL_SEEN

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionBackup]]:
        for name, topic in self.topics.items():
            for number, partition in enumerate(topic.partitions):
                yield TopicPartition(name, number), partition

    @property
    def nbytes(self) -> int:
        return sum(file.nbytes for _, partition in self.partitions() for file in partition.files)

    def to_json(self) -> Document:
        return {
            "format": _FORMAT,
            "run": self.run,
            "made_ms": self.made_ms,
            "cluster_id": self.cluster_id,
            "is_consistent": self.is_consistent,
            "topics": {name: _topic_to_json(topic) for name, topic in self.topics.items()},
            "groups": {
                group: [[*tp, at.offset, at.metadata] for tp, at in sorted(offsets.items())]
                for group, offsets in self.groups.items()
            },
            "unseen": self.unseen._asdict(),
        }

    @classmethod
    def from_json(cls, found: Document) -> Backup:
        """Raises StorageError for anything else than a whole backup."""
        if found.get("format") != _FORMAT:
            raise StorageError(f"format {found.get('format')!r} of a backup is not known here, only {_FORMAT}")
        try:
            backup = cls(
                found["run"],
                found["made_ms"],
                found["cluster_id"],
                found["is_consistent"],
                {name: _topic_from_json(topic) for name, topic in found["topics"].items()},
                {
                    group: {TopicPartition(topic, number): GroupOffset(*at) for topic, number, *at in offsets}
                    for group, offsets in found["groups"].items()
                },
                _unseen_from_json(found.get("unseen", {})),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StorageError(f"the manifest of a backup lacks something: {error!r}") from error
        for tp, partition in backup.partitions():
            partition.check(tp)
        return backup


def _unseen_from_json(found: Document) -> Unseen:
    """Of an older backup nothing is told of that."""
    return Unseen(bool(found.get("groups")), bool(found.get("transactions")), tuple(found.get("refused", ())))


def _topic_to_json(topic: TopicBackup) -> dict[str, Any]:
    partitions = [
        {"start": each.start, "end": each.end, "files": [file.to_json() for file in each.files]}
        for each in topic.partitions
    ]
    return topic._asdict() | {"topic_id": str(topic.topic_id), "partitions": partitions}


def _topic_from_json(found: Any) -> TopicBackup:
    partitions = tuple(
        PartitionBackup(int(each["start"]), int(each["end"]), tuple(map(SegmentFile.from_json, each["files"])))
        for each in found["partitions"]
    )
    return TopicBackup(UUID(found["topic_id"]), int(found["replication_factor"]), dict(found["settings"]), partitions)


class Backups:
    """The backups in a place, by their numbers, from 0 on."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._manifests = Manifests(place, _DIRECTORY)

    def numbers(self) -> range:
        """Raises StorageError where one is missing, OSError."""
        return self._manifests.numbers()

    def read(self, number: int) -> Backup:
        """Raises StorageError for one that is damaged, or not there; OSError."""
        try:
            return Backup.from_json(self._manifests.read(number))
        except FileNotFoundError as error:
            raise StorageError(f"{self.place.uri} has no backup {number}") from error

    def put(self, number: int, backup: Backup) -> None:
        """Raises StorageError where that number was taken meanwhile."""
        if not self._manifests.put(number, backup.to_json()):
            raise StorageError(
                f"another backup was made in {self.place.uri} meanwhile; nothing of this one counts: make it again"
            )

    def latest_of(self, topic: str) -> TopicBackup | None:
        """The topic as the last backup that has it has it."""
        for number in reversed(self.numbers()):
            found = self.read(number).topics.get(topic)
            if found is not None:
                return found
        return None
