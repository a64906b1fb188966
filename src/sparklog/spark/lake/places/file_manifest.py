"""What an offload to files has put in a place: manifests, each with the files of one commit and how far all have come.

A file that no manifest names is nothing. Invariants: ``docs/adr/0034-backup-and-files.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple
from uuid import UUID

from sparklog.errors import StorageError
from sparklog.spark.lake.progress import APPLICATION, Progress
from sparklog.storage.manifests import Document, Manifests
from sparklog.storage.place import Place, open_place
from sparklog.structs import TopicPartition

DIRECTORY = "_manifests"
_KIND = "sparklog.offload.1"


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file, with records of the offsets ``start`` ≤ o < ``end`` of one partition."""

    path: str
    """From the place on."""
    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    rows: int
    nbytes: int
    sha256: str

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @classmethod
    def from_json(cls, found: Any) -> DataFile:
        """Raises StorageError for anything else than what ``asdict`` gives."""
        try:
            file = cls(**{each.name: found[each.name] for each in fields(cls)})
            UUID(file.topic_id)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StorageError(f"{str(found)[:200]} describes no file") from error
        return file


class Position(NamedTuple):
    """How far a partition has come: the next offset, and the leader epoch in which it was found, -1 if not known."""

    offset: int
    epoch: int


class FileManifest(NamedTuple):
    """One commit."""

    commit: str
    """Drawn."""
    format: str
    files: tuple[DataFile, ...]
    """That this commit adds."""
    positions: Mapping[Progress, Position]
    """Of all partitions that were ever offloaded to the place."""

    def to_json(self) -> Document:
        return {
            "kind": _KIND,
            "commit": self.commit,
            "format": self.format,
            "positions": {each.to_application(): [*at] for each, at in self.positions.items()},
            "files": [asdict(each) for each in self.files],
        }

    @classmethod
    def from_json(cls, found: Document) -> FileManifest:
        """Raises StorageError for anything else than a manifest of an offload."""
        if found.get("kind") != _KIND:
            raise StorageError(f"a manifest is {found.get('kind')!r}, not of an offload ({_KIND!r})")
        try:
            positions = {_progress(name): Position(*at) for name, at in found["positions"].items()}
            return cls(found["commit"], found["format"], tuple(map(DataFile.from_json, found["files"])), positions)
        except (KeyError, TypeError, AttributeError) as error:
            raise StorageError(f"a manifest of an offload lacks something: {error!r}") from error


def _progress(name: str) -> Progress:
    found = Progress.from_application(name)
    if found is None:
        raise StorageError(f"{name!r} is no partition of an offload, {APPLICATION}:CLUSTER:TOPIC:TOPIC-ID:PARTITION")
    return found


class FileManifests:
    """The manifests in a place, by their numbers, from 0 on."""

    def __init__(self, place: Place) -> None:
        self._manifests = Manifests(place, DIRECTORY)

    def latest(self) -> tuple[int, FileManifest | None]:
        """The number of the next commit, and the last one. Raises StorageError, OSError."""
        numbers = self._manifests.numbers()
        return len(numbers), self.read(numbers[-1]) if numbers else None

    def first(self) -> FileManifest | None:
        """Raises StorageError, OSError."""
        return self.read(0) if self._manifests.numbers() else None

    def all(self) -> list[FileManifest]:
        """Raises StorageError, OSError."""
        return [self.read(number) for number in self._manifests.numbers()]

    def read(self, number: int) -> FileManifest:
        return FileManifest.from_json(self._manifests.read(number))

    def make_durable(self, number: int) -> None:
        """Make sure that those up to this one stay. Raises OSError."""
        self._manifests.make_durable(number)

    def put(self, number: int, manifest: FileManifest) -> bool:
        """Whether it was put; not so where that number was taken. Raises OSError, after which either may be so."""
        return self._manifests.put(number, manifest.to_json())


class OffloadedFiles(NamedTuple):
    """All that an offload has put in a place."""

    uri: str
    format: str
    """``parquet`` or ``segments``; empty where there is nothing."""
    files: tuple[DataFile, ...]
    offsets: Mapping[TopicPartition, int]
    """The next offset of each partition."""

    @property
    def paths(self) -> list[str]:
        """Each file's path or URI, as Spark and others open it."""
        return [f"{self.uri.rstrip('/')}/{each.path}" for each in self.files]


def read_manifest(uri: str) -> OffloadedFiles:
    """What an offload has committed to the place: for ``spark.read.parquet(*read_manifest(uri).paths)``.

    Raises StorageError for a place whose manifests are damaged, ConfigError for what is none, OSError.
    """
    found = FileManifests(open_place(uri)).all()
    offsets = {each.tp: at.offset for each, at in found[-1].positions.items()} if found else {}
    return OffloadedFiles(uri, found[-1].format if found else "", tuple(_files(found)), offsets)


def _files(manifests: Iterable[FileManifest]) -> Iterable[DataFile]:
    return (file for each in manifests for file in each.files)
