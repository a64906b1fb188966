"""What a worker is told of one log, and what it answers: values that travel as JSON."""

from __future__ import annotations

import errno
import json
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from sparklog.config.topic import HEADER_STRATEGY, OFFSET_STRATEGY, TopicConfig
from sparklog.errors import CorruptRecord, DiskFull
from sparklog.log.files import is_full
from sparklog.log.segment import SegmentFacts
from sparklog.record.compacting import Versions

_OF_PRODUCERS = ("last_offsets", "marker_epochs")
_SCARCE = {errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EINTR}


class Failure(StrEnum):
    """Why a cleaning ended before its end."""

    CORRUPT = "corrupt"
    """A segment cannot be read."""
    GONE = "gone"
    """A segment went while it was to be read."""
    NO_ROOM = "no room"
    """The disk is full, or the memory, or there are too many open files: it may go another time."""
    DISK = "disk"
    """The disk refused."""


def kind_of(error: BaseException) -> Failure:
    """What an error of reading or writing is."""
    if isinstance(error, CorruptRecord):
        return Failure.CORRUPT
    if isinstance(error, FileNotFoundError) or (isinstance(error, OSError) and error.errno == errno.ESTALE):
        return Failure.GONE
    if isinstance(error, DiskFull | MemoryError) or (isinstance(error, OSError) and _passes(error)):
        return Failure.NO_ROOM
    return Failure.DISK


def _passes(error: OSError) -> bool:
    return is_full(error) or error.errno in _SCARCE


def text_of(error: BaseException) -> str:
    """The error in words."""
    if isinstance(error, OSError):
        return f"{error.strerror or error} ({error.filename})" if error.filename else str(error)
    return str(error) or type(error).__name__


@dataclass(frozen=True, slots=True)
class Buffers:
    """The memory and the rate of one worker. What a broker is allowed is divided among its workers."""

    map_bytes: int
    """For the keys' hashes: ``log.cleaner.dedupe.buffer.size``, 2 GiB at most."""
    load_factor: float
    """How full the map may become, 0 to 1."""
    read_bytes: int
    """How much of a segment is read at once; a larger batch is read whole."""
    bytes_per_second: float
    """Reads and writes together."""
    host_bytes_per_second: float = float("inf")
    """What the tasks of a job that are on one machine have together: ``log.cleaner.io.max.bytes.per.second``."""


@dataclass(frozen=True, slots=True)
class CleaningTask:
    """One cleaning of one log.

    The worker reads the segments before ``first_uncleanable``, which do not change, and writes others that are to take
    their place; it changes nothing that is there.
    """

    directory: str
    name: str
    """TOPIC-PARTITION."""
    segments: tuple[SegmentFacts, ...]
    """All of the log, the active one last."""
    log_start_offset: int
    first_dirty: int
    first_uncleanable: int
    now_ms: int
    """The wall clock's time that counts for the whole cleaning."""
    config: TopicConfig
    buffers: Buffers
    last_offsets: dict[int, int] = field(default_factory=dict)
    """Producer id → the last offset of its last batch: that batch stays, with its sequence numbers."""
    marker_epochs: dict[int, int] = field(default_factory=dict)
    """Producer id → its epoch, of those of which only markers are known: a marker of that epoch stays."""

    @property
    def versions(self) -> Versions | None:
        """Where the version is found by which records of a key are compared; None where the last one wins."""
        strategy, header = self.config.compaction_rule
        if strategy == OFFSET_STRATEGY:
            return None
        return Versions(header if strategy == HEADER_STRATEGY else None)

    @property
    def index_start(self) -> int:
        """Where the keys are put into the map from: by version a record of the clean section may win."""
        return self.first_dirty if self.versions is None else self.log_start_offset

    @property
    def last_of_log(self) -> int:
        """The last offset of the log if it may go by version, -1 else.

        A batch has to end there, or a new replica could not come to the log's end. It may go only where the active
        segment is empty; the last record of a key does not go by offset.
        """
        active = self.segments[-1]
        return active.base_offset - 1 if self.versions is not None and not active.size else -1

    def to_json(self) -> str:
        """On any thread, for it may take long: the threads take turns meanwhile, as they do not while one call of
        ``json.dumps`` has all producers.
        """
        told = asdict(replace(self, last_offsets={}, marker_epochs={}))
        for name in _OF_PRODUCERS:
            del told[name]
        known = [f', "{name}": {_object(getattr(self, name))}' for name in _OF_PRODUCERS]
        return json.dumps(told)[:-1] + "".join(known) + "}"

    @classmethod
    def from_json(cls, text: str) -> CleaningTask:
        fields: dict[str, Any] = json.loads(text)
        fields["segments"] = tuple(SegmentFacts(*each) for each in fields["segments"])
        fields["config"] = TopicConfig(**{name: _immutable(value) for name, value in fields["config"].items()})
        fields["buffers"] = Buffers(**fields["buffers"])
        for name in _OF_PRODUCERS:
            fields[name] = {int(key): value for key, value in fields[name].items()}
        return cls(**fields)


def _object(numbers: dict[int, int]) -> str:
    return "{" + ", ".join([f'"{key}": {value}' for key, value in numbers.items()]) + "}"


def _immutable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
