"""Files in a local directory or in HDFS as a place to offload to: a commit is one manifest, put only if it is the next.

A segment file ends with a whole batch, which may go beyond where the commit was planned to end. Then the place has come
that far, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from sparklog.errors import DataSourceError, StorageError
from sparklog.spark.lake.destination import Destination, Overtaken, Target, Task, TaskIntake, WrittenFiles, refuse
from sparklog.spark.lake.files import check_compression
from sparklog.spark.lake.places.file_manifest import DIRECTORY, DataFile, FileManifest, FileManifests, Position
from sparklog.spark.lake.places.file_tasks import (
    FileRanges,
    WriteParquet,
    WriteSegments,
    remove_files,
)
from sparklog.spark.lake.progress import Progress
from sparklog.spark.read.offsets import OffsetRange
from sparklog.spark.read.options import ReadOptions
from sparklog.storage.place import Place, open_place
from sparklog.structs import NO_EPOCH, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARQUET, SEGMENTS = "parquet", "segments"
_FORMATS = (PARQUET, SEGMENTS)
_OURS = {DIRECTORY, "data", "segments"}


@dataclass(frozen=True)
class FilesTarget(Target):
    """Where files go, and how they are written. Raises DataSourceError for a value that there is not."""

    uri: str
    """A path, ``file:///PATH`` or ``webhdfs://NAMENODE:9870/PATH``. It is made if it is not there."""
    format: str = PARQUET
    """``parquet``: the columns of the source. ``segments``: the brokers' bytes."""
    compression: str = "snappy"
    """Of Parquet; segments stay as they are."""
    file_bytes: int = 256 << 20
    """A file is complete when it has so much."""

    def __post_init__(self) -> None:
        if self.format not in _FORMATS:
            text = f"format is one of {', '.join(_FORMATS)}, not {self.format!r}"
            raise DataSourceError("SPARKLOG_INVALID_OPTION", text)
        check_compression(self.compression)

    @property
    def identity(self) -> str:
        return f"place {open_place(self.uri).uri.rstrip('/')}"

    def open(self, spark: SparkSession) -> FilesDestination:  # noqa: ARG002
        return FilesDestination(open_place(self.uri), self)


class FilesDestination(Destination[WrittenFiles[DataFile]]):
    """The place."""

    def __init__(self, storage: Place, target: FilesTarget) -> None:
        self._storage = storage
        self._target = target
        self._manifests = FileManifests(storage)

    @property
    def place(self) -> str:
        return f"place {self._target.uri}"

    @property
    def identity(self) -> str | None:
        """With the first commit, which was drawn."""
        with _in_words(self.place):
            first = self._manifests.first()
        return None if first is None else f"{self._target.identity}, id {first.commit}"

    def prepare(self) -> None:
        """Nothing is made yet: a place is there when something is in it."""
        with _in_words(self.place):
            found = self._storage.list("")
        others = {*found.files, *found.directories} - _OURS
        if others and DIRECTORY not in found.directories:
            refuse(self.place, f"it has other files, such as {min(others)}: name a place of its own")

    def begin(self) -> FilesIntake:
        with _in_words(self.place):
            number, last = self._manifests.latest()
        if last is not None and last.format != self._target.format:
            refuse(self.place, f"its files are {last.format}, not {self._target.format}")
        return FilesIntake(self, number, last)

    def task(
        self, reading: ReadOptions, ranges: Sequence[OffsetRange], first: frozenset[TopicPartition]
    ) -> Task[WrittenFiles[DataFile]]:
        """``first``: the partitions of which no range came before in the commit."""
        work = FileRanges(reading, tuple(ranges), self._storage.uri, self._target.file_bytes)
        if self._target.format == SEGMENTS:
            return WriteSegments(work, first)
        return WriteParquet(work, self._target.compression)

    def put(
        self, number: int, outcomes: Sequence[WrittenFiles[DataFile]], positions: Mapping[Progress, Position]
    ) -> None:
        """Put the manifest of a commit. Raises Overtaken, DataSourceError."""
        files = tuple(file for each in outcomes for file in each.files)
        manifest = FileManifest(uuid4().hex, self._target.format, files, positions)
        with _in_words(self.place):
            is_put = self._manifests.put(number, manifest)
        if not is_put:
            raise Overtaken(
                "SPARKLOG_OVERTAKEN",
                f"another job has offloaded to {self.place} meanwhile; nothing of this one counts there",
            )

    def settle(self, number: int) -> None:
        """Make the names of the manifests up to this one durable. Raises DataSourceError."""
        with _in_words(self.place):
            self._manifests.make_durable(number)

    def remove(self, outcomes: Iterable[WrittenFiles[DataFile]]) -> None:
        remove_files(self._storage, (file for each in outcomes for file in each.files))


class FilesIntake(TaskIntake[WrittenFiles[DataFile]]):
    """A commit that has begun after the manifest ``last``, and is to be number ``number``."""

    def __init__(self, destination: FilesDestination, number: int, last: FileManifest | None) -> None:
        self._destination = destination
        self._number = number
        self._positions = {} if last is None else last.positions
        self._progress = {each: at.offset for each, at in self._positions.items()}
        self._known_epochs = {each: at.epoch for each, at in self._positions.items()}
        self._epochs: Mapping[Progress, int] = {}
        self._begun: set[TopicPartition] = set()

    @property
    def progress(self) -> Mapping[Progress, int]:
        return self._progress

    def settle(self) -> None:
        if self._number:
            self._destination.settle(self._number - 1)

    @property
    def epochs(self) -> Mapping[Progress, int]:
        return self._known_epochs

    def note_epochs(self, epochs: Mapping[Progress, int]) -> None:
        self._epochs = epochs

    @property
    def is_empty(self) -> bool:
        return not self._positions

    def expect(self, partitions: Iterable[Progress]) -> None:
        """Any other commit takes this one's number."""

    def task(self, reading: ReadOptions, ranges: Sequence[OffsetRange]) -> Task[WrittenFiles[DataFile]]:
        first = frozenset(each.tp for each in ranges) - self._begun
        self._begun |= first
        return self._destination.task(reading, ranges, first)

    def finish(self, outcomes: Sequence[WrittenFiles[DataFile]], offsets: Mapping[Progress, int]) -> int:
        ends: dict[TopicPartition, int] = {}
        for file in (file for each in outcomes for file in each.files):
            ends[file.tp] = max(ends.get(file.tp, 0), file.end)
        news = {
            each: Position(max(offset, ends.get(each.tp, 0)), self._epochs.get(each, NO_EPOCH))
            for each, offset in offsets.items()
        }
        self._destination.put(self._number, outcomes, {**self._positions, **news})
        return self._number

    def discard(self, outcomes: Iterable[WrittenFiles[DataFile]]) -> None:
        self._destination.remove(outcomes)


@contextmanager
def _in_words(place: str) -> Iterator[None]:
    """Errors of a place as those of an offload."""
    try:
        yield
    except StorageError as error:
        refuse(place, str(error))
    except OSError as error:
        raise DataSourceError("SPARKLOG_TABLE_NOT_WRITTEN", f"{place} cannot be read or written: {error}") from error
