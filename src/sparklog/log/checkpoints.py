"""The small text files of a log directory: checkpoints, topic id, who owns the directory.

A checkpoint is a version line (``0``), a line with the number of entries, then an entry a line, its fields parted by
spaces; replaced atomically. Source: Kafka 3.9, ``CheckpointFile``, ``PartitionMetadataFile``, ``PropertiesUtils``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

from sparklog.errors import CorruptRecord
from sparklog.log.files import write_atomically
from sparklog.record.layout import MAX_INT32, MAX_INT64
from sparklog.structs import TopicPartition, uuid_from_text, uuid_to_text

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"


def write_checkpoint(path: Path, entries: Iterable[tuple[object, ...]]) -> None:
    """Replace the checkpoint; durable on return."""
    lines = [" ".join(map(str, entry)) for entry in entries]
    write_atomically(path, "".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)).encode())


def read_checkpoint(path: Path, fields: int, *, may_be_empty: bool = False) -> list[list[str]]:
    """The entries; none if there is no file. Raises CorruptRecord if it does not hold together.

    Kafka makes each checkpoint as an empty file. One that can be done without ``may_be_empty``: it has no entries then.
    """
    try:
        lines = _lines(path)
    except FileNotFoundError:
        return []
    if may_be_empty and not lines:
        return []
    entries = [line.split(" ") for line in lines[2:]]
    if lines[:1] != ["0"] or lines[1:2] != [str(len(entries))] or any(len(entry) != fields for entry in entries):
        raise CorruptRecord(f"{path} is not a checkpoint of version 0 with {fields} fields a line")
    return entries


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise CorruptRecord(f"{path} is not text: {error}") from error


def whole_number(text: str, most: int = MAX_INT64) -> int:
    """The number in a field, written as Kafka writes it. Raises ValueError for anything but 0 to ``most``."""
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(most)) and int(text) <= most):
        raise ValueError(f"{text[:40]!r} is not a number from 0 to {most}")
    return int(text)


def write_offsets(path: Path, offsets: dict[TopicPartition, int]) -> None:
    """A checkpoint of an offset a partition."""
    write_checkpoint(path, ((tp.topic, tp.partition, offset) for tp, offset in sorted(offsets.items())))


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """Raises CorruptRecord if the file does not hold together."""
    entries = read_checkpoint(path, 3, may_be_empty=path.name == CLEANER_OFFSETS)
    try:
        return {
            TopicPartition(topic, whole_number(number, MAX_INT32)): whole_number(offset)
            for topic, number, offset in entries
        }
    except ValueError as error:
        raise CorruptRecord(f"{path}: {error}") from error


def write_topic_id(directory: Path, topic_id: UUID) -> None:
    """The ``partition.metadata`` of a partition directory."""
    write_atomically(directory / PARTITION_METADATA, f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode())


def read_topic_id(directory: Path) -> UUID | None:
    """None if the directory has no ``partition.metadata``. Raises CorruptRecord if it does not hold together."""
    try:
        lines = _lines(directory / PARTITION_METADATA)
    except FileNotFoundError:
        return None
    values = dict(line.split(": ", 1) for line in lines if ": " in line)
    if "topic_id" not in values:
        raise CorruptRecord(f"{directory / PARTITION_METADATA} names no topic_id")
    try:
        return uuid_from_text(values["topic_id"])
    except ValueError as error:
        raise CorruptRecord(f"{directory / PARTITION_METADATA}: {error}") from error


def write_meta_properties(directory: Path, cluster_id: str, broker_id: int) -> None:
    """Whose directory this is."""
    text = f"#\nbroker.id={broker_id}\nversion=0\ncluster.id={cluster_id}\n"
    write_atomically(directory / META_PROPERTIES, text.encode())


def read_meta_properties(directory: Path) -> dict[str, str]:
    """Empty for a directory that no broker has owned yet. Raises CorruptRecord if it is not text."""
    try:
        lines = _lines(directory / META_PROPERTIES)
    except FileNotFoundError:
        return {}
    return {k.strip(): v.strip() for k, _, v in (line.partition("=") for line in lines if not line.startswith("#"))}
