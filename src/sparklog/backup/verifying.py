"""Reading a backup again: every byte, against the manifest, the batches' own CRCs and the order of offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sparklog.backup.manifest import Backup
from sparklog.errors import CorruptRecord, StorageError
from sparklog.storage.place import Place
from sparklog.storage.segment_file import SegmentFile, read_segment
from sparklog.structs import TopicPartition

Listener = Callable[[TopicPartition, int], None]
"""Told of bytes that were read and found whole."""


def verify(
    place: Place, backup: Backup, topics: Iterable[str] | None = None, listener: Listener | None = None
) -> list[str]:
    """What is wrong with the files of these topics, or of all: a line each, none for a backup that is whole.

    Raises OSError where the place cannot be read; that a file is not there is one of the lines.
    """
    wanted = set(backup.topics if topics is None else topics)
    problems = []
    for tp, partition in backup.partitions():
        for file in partition.files if tp.topic in wanted else ():
            try:
                verify_file(place, tp, file)
            except StorageError as error:
                problems.append(str(error))
            if listener is not None:
                listener(tp, file.nbytes)
    return problems


def verify_file(place: Place, tp: TopicPartition, file: SegmentFile) -> None:
    """Raises StorageError for a file that is not as the manifest has it; OSError."""
    where = f"partition {tp}: {place.uri}/{file.path}"
    try:
        found = read_segment(place, file.path, file.start)
    except FileNotFoundError as error:
        raise StorageError(f"{where} is missing") from error
    except CorruptRecord as error:
        raise StorageError(f"{where} is damaged: {error}") from error
    if found != file:
        raise StorageError(f"{where} is damaged: it is not what was written, by its SHA-256")
