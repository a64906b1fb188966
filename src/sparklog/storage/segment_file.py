"""Segment files in a place: the batches of one partition as brokers hand them out, in Kafka's format.

A file ``DIRECTORY/TOPIC-PARTITION/BASE-OFFSET.log`` holds whole batches, their offsets rising. Its *range* is the
offsets that it stands for: from where the file before it ended, up to behind its last batch. ``partition.metadata``
beside it has the topic's id. So the directory is laid out as a log directory, and can be read as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import IO, Any
from uuid import UUID

from sparklog.errors import CorruptRecord, StorageError
from sparklog.log.checkpoints import PARTITION_METADATA
from sparklog.log.files import LOG_SUFFIX, segment_path
from sparklog.record import layout
from sparklog.record.batch import RecordBatch
from sparklog.record.records import iter_batches
from sparklog.storage.place import NewFile, Place
from sparklog.structs import NO_EPOCH, TopicPartition, uuid_from_text, uuid_to_text

FILE_BYTES = 128 << 20
"""A file is complete when it has so much."""
_PIECE = 1 << 20
_MOST_OFFSETS = layout.MAX_INT32
"""In one file, so that an index of it can hold them."""


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """One whole file, and what is in it. ``start`` ≤ o < ``end`` is its range."""

    path: str
    start: int
    end: int
    records: int
    """Of data batches, those of aborted transactions too."""
    nbytes: int
    sha256: str
    leader_epoch: int
    """Of the last batch."""
    max_timestamp_ms: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: Any) -> SegmentFile:
        """Raises StorageError for anything else than what ``to_json`` gives."""
        try:
            values = {each.name: found[each.name] for each in fields(cls)}
            texts = ("path", "sha256")
            if not all(type(value) is (str if name in texts else int) for name, value in values.items()):
                raise TypeError
            return cls(**values)
        except (KeyError, TypeError) as error:
            raise StorageError(f"{str(found)[:200]} describes no segment file") from error


class _Facts:
    """What is known of a file from its batches so far. Raises CorruptRecord for batches out of order."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._end = start
        self._base: int | None = None
        self._records = 0
        self._nbytes = 0
        self._sha256 = sha256()
        self._leader_epoch: int = NO_EPOCH
        self._max_timestamp_ms = -1

    def has_room(self, batch: RecordBatch, most: int) -> bool:
        is_far = self._base is not None and batch.last_offset - self._base > _MOST_OFFSETS
        return not self._nbytes or (self._nbytes + batch.size_in_bytes <= most and not is_far)

    def add(self, batch: RecordBatch) -> None:
        """The next batch, whose CRC was checked."""
        is_next = batch.next_offset > self._end if self._base is None else batch.base_offset >= self._end
        if not is_next:
            raise CorruptRecord(f"offset {batch.base_offset} stands where {self._end} or more should")
        if self._base is None:
            self._base = batch.base_offset
        self._end = batch.next_offset
        self._records += 0 if batch.is_control else batch.record_count
        self._nbytes += batch.size_in_bytes
        self._sha256.update(batch.buffer)
        self._leader_epoch = batch.partition_leader_epoch
        self._max_timestamp_ms = max(self._max_timestamp_ms, batch.max_timestamp)

    def finish(self, path: str) -> SegmentFile:
        return SegmentFile(
            path,
            self._start,
            self._end,
            self._records,
            self._nbytes,
            self._sha256.hexdigest(),
            self._leader_epoch,
            self._max_timestamp_ms,
        )


def path_of(directory: str, tp: TopicPartition, base_offset: int) -> str:
    """Where a segment file lies."""
    return str(segment_path(Path(directory, str(tp)), base_offset, LOG_SUFFIX))


class _OpenFile:
    """A file that is being written."""

    def __init__(self, place: Place, directory: str, tp: TopicPartition, start: int, base_offset: int) -> None:
        self._path = path_of(directory, tp, base_offset)
        self._facts = _Facts(start)
        self._file: NewFile = place.create(self._path)

    def has_room(self, batch: RecordBatch, most: int) -> bool:
        return self._facts.has_room(batch, most)

    def add(self, batch: RecordBatch) -> None:
        self._facts.add(batch)
        self._file.write(batch.buffer)

    def finish(self) -> SegmentFile:
        self._file.finish()
        return self._facts.finish(self._path)

    def discard(self) -> None:
        self._file.discard()


def write_segments(
    place: Place,
    directory: str,
    tp: TopicPartition,
    start: int,
    batches: Iterable[RecordBatch],
    file_bytes: int = FILE_BYTES,
) -> Iterator[SegmentFile]:
    """Write the batches of the offsets from ``start`` on, whose CRCs were checked: each file, when it is whole.

    Raises OSError, CorruptRecord for batches out of order.
    """
    file: _OpenFile | None = None
    try:
        for batch in batches:
            if file is not None and not file.has_room(batch, file_bytes):
                written, file = file.finish(), None
                start = written.end
                yield written
            if file is None:
                file = _OpenFile(place, directory, tp, start, batch.base_offset)
            file.add(batch)
        if file is not None:
            written, file = file.finish(), None
            yield written
    finally:
        if file is not None:
            file.discard()


def read_segment(place: Place, path: str, start: int) -> SegmentFile:
    """What is in a file whose range begins at ``start``: every byte is read, every CRC checked.

    Raises OSError, CorruptRecord for what is damaged or out of order.
    """
    facts = _Facts(start)
    with place.open(path) as stream:
        for batch in batches_of(stream):
            batch.validate()
            facts.add(batch)
    return facts.finish(path)


def batches_of(stream: IO[bytes]) -> Iterator[RecordBatch]:
    """The batches of a whole file. Raises OSError, CorruptRecord where it ends within one; CRCs are the caller's."""
    rest = b""
    while piece := stream.read(max(_PIECE, len(rest))):
        data = rest + piece
        taken = 0
        for batch in iter_batches(data):
            yield batch
            taken += batch.size_in_bytes
        rest = data[taken:]
    if rest:
        raise CorruptRecord(f"the last {len(rest)} bytes are no whole batch")


def write_topic_id(place: Place, directory: str, tp: TopicPartition, topic_id: UUID) -> None:
    """The ``partition.metadata`` of a directory of segment files, as a log directory has it, unless it is there."""
    text = f"version: 0\ntopic_id: {uuid_to_text(topic_id)}"
    place.publish(f"{directory}/{tp}/{PARTITION_METADATA}", text.encode())


def read_topic_id(place: Place, directory: str, tp: TopicPartition) -> UUID | None:
    """None where there is none, or none that can be read."""
    try:
        lines = place.read(f"{directory}/{tp}/{PARTITION_METADATA}").decode().splitlines()
        return uuid_from_text(dict(line.split(": ", 1) for line in lines)["topic_id"])
    except (FileNotFoundError, ValueError, KeyError):
        return None
