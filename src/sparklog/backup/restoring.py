"""Making topics of a backup: with their settings, their records under the same offsets, and their groups' offsets.

The records of a partition are written as segment files into its leader's log directory, which must be visible here, and
the leader adopts them, all or none. What was read is checked before anything is made, and once more as it is written.

A topic that is being made is noted in the place of the backup, by cluster, name and topic id, until it is done: so a
restore that was killed, or that sees only some of the brokers' directories, is gone on with by the same command.

The producers of restored batches get ids that no cluster gives away (``FOREIGN``): otherwise a new producer that
happens to have such an id would be taken for the old one, and its records for duplicates.
"""

from __future__ import annotations

import json
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import IO, NamedTuple, Protocol
from uuid import UUID, uuid4

from sparklog.backup.manifest import Backup, Backups, PartitionBackup, TopicBackup
from sparklog.backup.verifying import verify
from sparklog.client.admin.admin import Admin
from sparklog.client.admin.adoption import OfferedSegments
from sparklog.client.admin.log_dirs import Replica
from sparklog.client.admin.topics import NewTopic
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.offsets import EARLIEST, LATEST, plain_offsets
from sparklog.client.consumer.group.committed import OffsetAndMetadata
from sparklog.clock import SystemClock
from sparklog.cluster.info import TopicInfo
from sparklog.errors import ApiError, ConfigError, CorruptRecord, ErrorCode, StorageError
from sparklog.log.adoption import offer_path
from sparklog.log.checkpoints import read_meta_properties, read_topic_id
from sparklog.log.files import check_topic_name, partition_path, remove_files
from sparklog.record import layout
from sparklog.record.batch import RecordBatch, patch_producer
from sparklog.record.builder import RecordBatchBuilder
from sparklog.storage.place import Place
from sparklog.storage.segment_file import batches_of
from sparklog.structs import BrokerId, IsolationLevel, TopicPartition

_log = logging.getLogger(__name__)
FOREIGN = 1 << 62
"""What is added to the producer ids of restored batches."""
_DIRECTORY = "restores"
_MOST_OFFSETS = layout.MAX_INT32 - (1 << 20)
"""Between the first batches of a segment, so that its indexes can hold the last offset of each."""
Listener = Callable[[TopicPartition, int], None]
"""Told of bytes that were written."""
Warn = Callable[[str], None]
"""Told at once what a person should know while the restore goes on."""


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """What is restored."""

    number: int | None = None
    """Of the backup; the last if it is not said."""
    topics: tuple[str, ...] = ()
    """All if none is named."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Topics that get other names."""
    replication_factor: int | None = None
    """Of the topics; if it is not said as many replicas as they had, or as there are brokers."""
    with_groups: bool = True


class Restored(NamedTuple):
    """What was made."""

    number: int | None
    """Of the backup; None of a table."""
    topics: dict[str, str]
    """The new name of each topic."""
    groups: int


def restore(
    config: ClientConfig,
    place: Place,
    options: RestoreOptions,
    *,
    listener: Listener | None = None,
    warn: Warn = _log.warning,
) -> Restored:
    """Make topics of a backup. Raises StorageError for a damaged backup, for a topic that is there, and where not all
    leaders' directories are visible here; ApiError, ConnectionFailed, OSError.
    """
    origin = _BackupOrigin.open(place, options)
    with Admin(config) as admin:
        return Restoring(admin, origin, options, listener or (lambda *_: None), warn).restore()


class Origin(ABC):
    """Where the records of a restore come from. What is there was checked as far as that can be done before a topic is
    made.
    """

    backup: Backup
    names: Mapping[str, str]
    """The new name of each topic that is to be restored."""
    number: int | None

    @abstractmethod
    def batches(
        self, source: str, partition: int, configs: Mapping[str, str]
    ) -> Iterator[tuple[int, bytes | bytearray]]:
        """The batches of a partition with their base offsets, in order; at last one that stands for its end.

        ``source`` is the topic's old name, ``configs`` are the settings of the new one. Raises StorageError,
        DataSourceError, OSError for what cannot be read.
        """

    @abstractmethod
    def older(self, source: str, before_ms: int) -> tuple[int, int]:
        """How many records of a topic have an earlier timestamp, at least; and how many there are."""

    @abstractmethod
    def note(self, cluster_id: str, name: str) -> Note:
        """What is known of an earlier run that made the topic of this name."""


class Note(Protocol):
    """What is known of a topic that is being made, after the run that made it was killed."""

    def is_ours(self, info: TopicInfo, ends: Sequence[int], topic: TopicBackup) -> bool:
        """Whether a topic that is there, whose partitions end at these offsets, is one that this restore makes."""

    def intend(self) -> None:
        """Before the topic is created."""

    def begin(self, topic_id: UUID) -> None:
        """The topic is there."""

    def end(self) -> None:
        """The topic is whole."""


class _BackupOrigin(Origin):
    """A backup."""

    def __init__(self, place: Place, number: int, backup: Backup, names: dict[str, str]) -> None:
        self.number = number
        self.backup = backup
        self.names = names
        self._place = place

    @classmethod
    def open(cls, place: Place, options: RestoreOptions) -> _BackupOrigin:
        """Raises StorageError if there is no backup or it is damaged; ConfigError for topics that are not in it."""
        return _checked(place, options)

    def batches(
        self,
        source: str,
        partition: int,
        configs: Mapping[str, str],  # noqa: ARG002
    ) -> Iterator[tuple[int, bytes | bytearray]]:
        return _batches(self._place, self.backup.topics[source].partitions[partition])

    def older(self, source: str, before_ms: int) -> tuple[int, int]:
        files = [file for partition in self.backup.topics[source].partitions for file in partition.files]
        old = sum(file.records for file in files if 0 <= file.max_timestamp_ms < before_ms)
        return old, sum(file.records for file in files)

    def note(self, cluster_id: str, name: str) -> Note:
        return _Note(self._place, cluster_id, name, self.number or 0)


def _checked(place: Place, options: RestoreOptions) -> _BackupOrigin:
    backups = Backups(place)
    numbers = backups.numbers()
    number = options.number if options.number is not None else len(numbers) - 1
    if number not in numbers:
        raise StorageError(f"there is no backup {number} in {place.uri}" if numbers else f"no backup in {place.uri}")
    backup = backups.read(number)
    chosen = chosen_names(backup, options)
    problems = verify(place, backup, chosen)
    if problems:
        raise StorageError(f"backup {number} is damaged, and nothing of it is restored: {problems[0]}")
    return _BackupOrigin(place, number, backup, chosen)


def chosen_names(backup: Backup, options: RestoreOptions, what: str = "backup") -> dict[str, str]:
    """The new name of each topic that is to be restored. Paths are made of them: each can be a topic's name.

    Raises ConfigError for a topic that the backup does not have.
    """
    topics = options.topics or tuple(backup.topics)
    for name in (*topics, *options.names):
        if name not in backup.topics:
            raise ConfigError(f"topic {name} is not in the {what}, which has {', '.join(sorted(backup.topics))}")
    names = {name: options.names.get(name, name) for name in topics}
    if len(set(names.values())) < len(names):
        raise ConfigError("two topics cannot be restored under one name")
    for name in names.values():
        check_topic_name(name)
    return names


class Restoring:
    """One restore."""

    def __init__(self, admin: Admin, origin: Origin, options: RestoreOptions, listener: Listener, warn: Warn) -> None:
        self._admin = admin
        self._origin = origin
        self._backup = origin.backup
        self._names = origin.names
        self._options = options
        self._listener = listener
        self._warn = warn
        cluster = admin.describe_cluster()
        self._cluster_id = cluster.cluster_id or "-"
        self._brokers = len(cluster.brokers)

    def restore(self) -> Restored:
        """Raises as the function ``restore`` does."""
        notes = {name: self._origin.note(self._cluster_id, name) for name in self._names.values()}
        there = self._there()
        for source, name in self._names.items():
            if name in there:
                self._check_ours(there[name], notes[name], self._backup.topics[source])
        obstacles = []
        for source, name in self._names.items():
            topic = self._backup.topics[source]
            info = there.get(name) or self._create(name, topic, notes[name])
            notes[name].begin(info.topic_id)
            self._warn_of_retention(name, source)
            obstacles += self._fill(info, source)
        if obstacles:
            raise StorageError(
                f"{obstacles[0]}; the same command goes on where the directory is ({len(obstacles)} left)"
            )
        groups = self._restore_groups() if self._options.with_groups else 0
        for note in notes.values():
            note.end()
        return Restored(self._origin.number, dict(self._names), groups)

    # Topics

    def _there(self) -> dict[str, TopicInfo]:
        wanted = set(self._names.values())
        return {each.name: each for each in self._admin.list_topics(internal=True) if each.name in wanted}

    def _check_ours(self, info: TopicInfo, note: Note, topic: TopicBackup) -> None:
        """Raises StorageError for a topic that this restore has not made."""
        tps = [TopicPartition(info.name, each.partition) for each in info.partitions]
        ends = self._offsets(tps, LATEST)
        if not note.is_ours(info, [ends[tp] for tp in tps], topic):
            raise StorageError(
                f"topic {info.name} is there already: delete it first, or restore under another name (--to)"
            )

    def _create(self, name: str, topic: TopicBackup, note: Note) -> TopicInfo:
        note.intend()
        replicas = self._options.replication_factor or min(topic.replication_factor, self._brokers)
        self._admin.create_topics([NewTopic(name, len(topic.partitions), replicas, topic.settings)])
        return self._admin.describe_topics([name])[name]

    def _warn_of_retention(self, name: str, source: str) -> None:
        """Say so where the brokers will delete soon what is restored, for retention goes by the records' own time."""
        configs = self._configs(name)
        retention_ms = int(configs["retention.ms"])
        if retention_ms < 0 or "delete" not in configs["cleanup.policy"].split(","):
            return
        kept_ms = SystemClock().now_ms() - retention_ms
        old, count = self._origin.older(source, kept_ms)
        if old:
            self._warn(
                f"topic {name} keeps records for {retention_ms / 3_600_000:g} hours (retention.ms), by their timestamps"
                f", and at least {old} of {count} that are restored are older: brokers"
                f" delete these soon. To keep them, type now: sparklog topic alter {name} --config retention.ms=-1"
            )

    # Records

    def _configs(self, name: str) -> dict[str, str]:
        return {each.name: each.value or "" for each in self._admin.topic_configs(name)}

    def _fill(self, info: TopicInfo, source: str) -> list[str]:
        """Fill the partitions that are not yet; why those are left whose leaders' directories are not here."""
        tps = [TopicPartition(info.name, each.partition) for each in info.partitions]
        ends = self._offsets(tps, LATEST)
        obstacles, whole = [], dict[TopicPartition, int]()
        for each, partition in zip(info.partitions, self._backup.topics[source].partitions, strict=False):
            tp = TopicPartition(info.name, each.partition)
            if ends[tp] not in (0, partition.end):
                raise StorageError(f"partition {tp} ends at offset {ends[tp]}: somebody has written to it meanwhile")
            try:
                if ends[tp] != partition.end:
                    self._fill_partition(tp, info, source, partition)
                whole[tp] = partition.start
            except _Unseen as unseen:
                obstacles.append(str(unseen))
        self._delete_before(whole)
        return obstacles

    def _delete_before(self, starts: Mapping[TopicPartition, int]) -> None:
        """Batches are restored whole: a broker that died may not have written down that the log begins within one."""
        for tp, first in self._offsets([*starts], EARLIEST).items():
            if first < starts[tp]:
                self._delete_records(tp, first, starts[tp])

    def _delete_records(self, tp: TopicPartition, first: int, start: int) -> None:
        try:
            self._admin.delete_records({tp: start})
        except ApiError as error:
            said = (
                f"{tp} begins at offset {first}, not at {start}: {error}; the same command tries again,"
                f" or type: sparklog topic delete {tp.topic}, and the same command restores it anew"
            )
            raise ApiError(error.code, said) from error

    def _offsets(self, tps: list[TopicPartition], at: int) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(tps, at)
        return plain_offsets(self._admin.list_offsets(wanted, isolation=IsolationLevel.READ_UNCOMMITTED))

    def _fill_partition(self, tp: TopicPartition, info: TopicInfo, source: str, partition: PartitionBackup) -> None:
        leader, configs = info.partitions[tp.partition].leader, self._configs(tp.topic)
        directory, tag = self._directory(tp, info.topic_id, leader), uuid4().hex
        segments = _Segments(directory, tag, int(configs["segment.bytes"]), partition.start)
        try:
            with closing(segments):
                for base_offset, data in self._origin.batches(source, tp.partition, configs):
                    segments.write(base_offset, data)
                    self._listener(tp, len(data))
        except BaseException:
            remove_files(segments.paths.values())
            raise
        # from here on they are the broker's: it removes what it refuses, and may be renaming them when no answer comes
        offered = OfferedSegments(tp, leader, tag, tuple(segments.paths), partition.end)
        self._admin.restore(offered, partition.start)

    def _directory(self, tp: TopicPartition, topic_id: UUID, leader: BrokerId) -> Path:
        """The partition's directory at its leader. Raises _Unseen unless it is here."""
        replica = Replica(tp, leader)
        home = self._admin.describe_replica_log_dirs([replica])[replica].path
        if home is None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"broker {leader} has no directory of {tp} yet")
        directory = partition_path(Path(home), tp)
        try:
            is_here = read_meta_properties(Path(home)).get("cluster.id") == self._cluster_id
            if is_here and read_topic_id(directory) == topic_id and os.access(directory, os.W_OK):
                return directory
        except (OSError, CorruptRecord):
            pass
        raise _Unseen(f"partition {tp} is led by broker {leader}, whose directory {directory} cannot be written here")

    # Groups

    def _restore_groups(self) -> int:
        restored = 0
        for group, offsets in self._backup.groups.items():
            mine = {
                TopicPartition(self._names[tp.topic], tp.partition): OffsetAndMetadata(at.offset, metadata=at.metadata)
                for tp, at in offsets.items()
                if tp.topic in self._names
            }
            if mine:
                self._restore_group(group, mine)
                restored += 1
        return restored

    def _restore_group(self, group: str, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        try:
            self._admin.alter_group_offsets(group, offsets)
        except ApiError as error:
            said = f"the topics are restored, but not the offsets of all groups: {error}; the same command goes on"
            raise ApiError(error.code, said) from error


class _Unseen(Exception):
    """A leader's directory is not visible here."""


class _Note(Note):
    """What the place of a backup says of a topic that is being made of it in a cluster."""

    def __init__(self, place: Place, cluster_id: str, name: str, number: int) -> None:
        self._place = place
        self._directory = f"{_DIRECTORY}/{cluster_id}/{name}"
        self._content = json.dumps({"backup": number}).encode()

    def is_ours(self, info: TopicInfo, ends: Sequence[int], topic: TopicBackup) -> bool:
        is_made = self.is_of(info.topic_id) or (self.is_intended and not any(ends))
        return is_made and len(info.partitions) == len(topic.partitions)

    @property
    def is_intended(self) -> bool:
        return self._is_there("intent")

    def is_of(self, topic_id: UUID) -> bool:
        """Whether the topic of this id is being made of this backup."""
        return self._is_there(str(topic_id))

    def _is_there(self, name: str) -> bool:
        try:
            return self._place.read(f"{self._directory}/{name}") == self._content
        except FileNotFoundError:
            return False

    def intend(self) -> None:
        """Before the topic is created."""
        self._place.remove(f"{self._directory}/intent")
        self._place.write(f"{self._directory}/intent", self._content)

    def begin(self, topic_id: UUID) -> None:
        """The topic is there."""
        self._place.publish(f"{self._directory}/{topic_id}", self._content)

    def end(self) -> None:
        """The topic is whole; whoever restores to its name finds it there already."""
        for name in self._place.list(self._directory).files:
            self._place.remove(f"{self._directory}/{name}")


class _Segments:
    """The files of segments that are to be offered, in a partition's directory."""

    def __init__(self, directory: Path, tag: str, most: int, start: int) -> None:
        """``most`` bytes are in each, or one batch. The log begins at ``start``, where there may be no record."""
        self.paths: dict[int, Path] = {}
        """By the offsets in their names."""
        self._directory = directory
        self._tag = tag
        self._most = most
        self._start = start
        self._file: IO[bytes] | None = None
        self._size = 0
        self._next_offset = 0
        self._leader_epoch = 0

    def write(self, base_offset: int, data: bytes | bytearray) -> None:
        """Add a batch; before the first one, if the log begins before it, one without records."""
        if not self.paths and self._start < base_offset:
            self._write(self._start, empty_batch(self._start, RecordBatch(data).partition_leader_epoch))
        self._write(base_offset, data)

    def _write(self, base_offset: int, data: bytes | bytearray) -> None:
        """A file ends where the next begins: if there are no records between, with a batch without any, for only a
        compacted log may have a hole between segments.
        """
        is_far = bool(self.paths) and base_offset - next(reversed(self.paths)) > _MOST_OFFSETS
        if self._file is None or self._size + len(data) + layout.HEADER_SIZE > self._most or is_far:
            if self._file is not None and self._next_offset < base_offset and not is_far:
                self._file.write(empty_batch(base_offset - 1, self._leader_epoch))
            self.close()
            path = self.paths[base_offset] = offer_path(self._directory, base_offset, self._tag)
            self._file, self._size = path.open("xb"), 0
        self._file.write(data)
        self._size += len(data)
        batch = RecordBatch(data)
        self._next_offset, self._leader_epoch = batch.next_offset, batch.partition_leader_epoch

    def close(self) -> None:
        """What was written is in the files."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _batches(place: Place, partition: PartitionBackup) -> Iterator[tuple[int, bytes | bytearray]]:
    """The batches of a partition with their base offsets, of foreign producers; at last one that stands for its end.

    Raises StorageError where a file is not what it was.
    """
    for file in partition.files:
        found = sha256()
        with place.open(file.path) as stream:
            for batch in batches_of(stream):
                found.update(batch.buffer)
                yield batch.base_offset, _of_a_foreign_producer(batch)
        if found.hexdigest() != file.sha256:
            raise StorageError(f"{place.uri}/{file.path} was changed while it was restored")
    last = partition.files[-1] if partition.files else None
    if (last.end if last else 0) < partition.end:
        yield partition.end - 1, empty_batch(partition.end - 1, last.leader_epoch if last else 0)


def _of_a_foreign_producer(batch: RecordBatch) -> bytearray:
    data = bytearray(batch.buffer)
    if 0 <= batch.producer_id < FOREIGN:
        patch_producer(data, 0, batch.producer_id + FOREIGN, batch.producer_epoch, batch.base_sequence)
    return data


def empty_batch(offset: int, leader_epoch: int) -> bytes:
    """A batch without records that stands for an offset, as a compaction leaves one: the log ends behind it."""
    return RecordBatchBuilder(base_offset=offset, partition_leader_epoch=leader_epoch).build()
