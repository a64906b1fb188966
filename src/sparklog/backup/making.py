"""Making a backup: fix a point, copy what the place does not have yet, put the manifest.

A run that dies leaves files that no manifest names. The next one looks through them, and goes on behind those that are
whole and still true. Nothing is ever removed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import UUID, uuid4

from sparklog.backup.cut import Cut, Groups, bounded, take_cut
from sparklog.backup.manifest import Backup, Backups, GroupOffset, PartitionBackup, TopicBackup
from sparklog.client.admin.admin import Admin
from sparklog.client.admin.configs import ConfigEntry
from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.epochs import ends_of_epochs
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import earliest_offsets
from sparklog.client.consumer.fetch.leased_files import read_everything
from sparklog.clock import Clock, SystemClock
from sparklog.cluster.info import TopicInfo
from sparklog.errors import ApiError, ConfigError, CorruptRecord, ErrorCode
from sparklog.record.batch import RecordBatch
from sparklog.storage.place import Place
from sparklog.storage.segment_file import (
    FILE_BYTES,
    SegmentFile,
    path_of,
    read_segment,
    read_topic_id,
    write_segments,
    write_topic_id,
)
from sparklog.structs import NO_EPOCH, TopicPartition

_log = logging.getLogger(__name__)
SEGMENTS = "segments"
_TOPIC_SETTING = 1
"""The source of a setting that is a topic's own."""
_OF_THE_CLUSTER = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
"""Settings that name brokers: they mean nothing elsewhere."""
_FETCH_BYTES = 16 << 20
Listener = Callable[[TopicPartition, int], None]
"""Told of bytes that were copied."""


@dataclass(frozen=True, slots=True)
class BackupOptions:
    """What is backed up, and where to."""

    topics: tuple[str, ...]
    patience_s: float = 5.0
    """How long to look for a moment in which no transaction ends."""
    file_bytes: int = FILE_BYTES
    anew: bool = False
    """Use no file of an earlier backup: after an erasure these have the erased records still."""

    def __post_init__(self) -> None:
        if not self.topics:
            raise ConfigError("name the topics to back up")


class Made(NamedTuple):
    """A backup that was made."""

    number: int
    backup: Backup
    copied_bytes: int
    """From the log; the others were there."""


def make_backup(
    config: ClientConfig,
    place: Place,
    options: BackupOptions,
    *,
    listener: Listener | None = None,
    clock: Clock | None = None,
) -> Made:
    """Back the topics up as they are now. Raises ApiError, ConnectionFailed, OSError; StorageError where another one
    was quicker, or the place is damaged; CorruptRecord for a log that is.
    """
    config = replace(config, max_partition_fetch_bytes=_FETCH_BYTES)
    with Admin(config) as admin, ClusterMetadata(config) as cluster:
        return _Run(admin, cluster, Backups(place), options, listener or (lambda *_: None), clock).make()


class _Wanted(NamedTuple):
    """What is wanted of a partition: its offsets ``start`` ≤ o < ``end``, in files that are not larger."""

    tp: TopicPartition
    topic_id: UUID
    start: int
    end: int
    file_bytes: int


class _Run:
    """One backup that is being made."""

    def __init__(
        self,
        admin: Admin,
        cluster: ClusterMetadata,
        backups: Backups,
        options: BackupOptions,
        listener: Listener,
        clock: Clock | None,
    ) -> None:
        self._admin = admin
        self._cluster = cluster
        self._backups = backups
        self._place = backups.place
        self._options = options
        self._listener = listener
        self._clock = clock or SystemClock()
        self._name = uuid4().hex
        self._copied = 0

    def make(self) -> Made:
        number = len(self._backups.numbers())
        topics = self._admin.describe_topics(list(dict.fromkeys(self._options.topics)))
        for each in topics.values():
            if each.internal:
                raise ConfigError(f"topic {each.name} is the brokers' own; groups' offsets are in every backup")
        partitions = [TopicPartition(each.name, info.partition) for each in topics.values() for info in each.partitions]
        cut = take_cut(self._admin, partitions, self._options.patience_s, self._clock)
        runs = self._place.list(SEGMENTS).directories
        saved = {name: self._topic(info, cut, runs) for name, info in topics.items()}
        made_ms, cluster_id = self._clock.now_ms(), self._admin.describe_cluster().cluster_id or ""
        groups = _within(cut.groups, saved)
        backup = Backup(self._name, made_ms, cluster_id, cut.is_consistent, saved, groups, cut.unseen)
        self._backups.put(number, backup)
        return Made(number, backup, self._copied)

    def _topic(self, info: TopicInfo, cut: Cut, runs: Sequence[str]) -> TopicBackup:
        entries = {each.name: each for each in self._admin.topic_configs(info.name)}
        file_bytes = min(self._options.file_bytes, int(entries["segment.bytes"].value or FILE_BYTES))
        before = self._backups.latest_of(info.name)
        if before is not None and before.topic_id != info.topic_id:
            before = None
        policies = (entries["cleanup.policy"].value or "", before.settings.get("cleanup.policy", "") if before else "")
        if self._options.anew or any("compact" in each for each in policies):
            # a tombstone that compaction has removed is in no new file, and what it deleted is in the old ones
            before, runs = None, ()
        known = before.partitions if before is not None else ()
        partitions = []
        for each in info.partitions:
            tp = TopicPartition(info.name, each.partition)
            wanted = _Wanted(tp, info.topic_id, cut.starts[tp], cut.ends[tp], file_bytes)
            files = known[each.partition].files if each.partition < len(known) else ()
            partitions.append(self._partition(wanted, files, runs))
        replicas = max(len(each.replicas) for each in info.partitions)
        return TopicBackup(info.topic_id, replicas, _own_settings(entries.values()), tuple(partitions))

    def _partition(self, wanted: _Wanted, known: Iterable[SegmentFile], runs: Sequence[str]) -> PartitionBackup:
        files = self._still_true(wanted, [file for file in known if file.end > wanted.start])
        files += self._left_behind(wanted, _next(wanted, files), runs)
        while (position := _next(wanted, files)) < wanted.end:
            try:
                with closing(self._copy(wanted, position)) as copied:
                    for file in copied:
                        files.append(file)
                break
            except ApiError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                wanted = self._after_retention(wanted, position, error)
                files = [file for file in files if file.end > wanted.start]
        return PartitionBackup(wanted.start, max(wanted.end, _next(wanted, files)), tuple(files))

    def _after_retention(self, wanted: _Wanted, position: int, error: ApiError) -> _Wanted:
        """What is left to want: the log's front was deleted meanwhile, and with it what the backup has of it."""
        first = min(earliest_offsets(self._cluster, [wanted.tp])[wanted.tp], wanted.end)
        if first <= position:
            raise error
        _log.warning("partition %s begins at offset %d now: what is before was deleted meanwhile", wanted.tp, first)
        return wanted._replace(start=first)

    # What is there already

    def _still_true(self, wanted: _Wanted, files: list[SegmentFile]) -> list[SegmentFile]:
        """The files of an earlier backup, if the log still has what they have; else none."""
        if not files or self._is_still_true(wanted, files[-1]):
            return files
        _log.warning("partition %s was cut off since it was backed up: it is copied anew", wanted.tp)
        return []

    def _is_still_true(self, wanted: _Wanted, file: SegmentFile) -> bool:
        if file.end > wanted.end:
            return False
        if file.leader_epoch == NO_EPOCH:
            return True
        return ends_of_epochs(self._cluster, {wanted.tp: file.leader_epoch})[wanted.tp] >= file.end

    def _left_behind(self, wanted: _Wanted, position: int, runs: Sequence[str]) -> Iterator[SegmentFile]:
        """Files from ``position`` on that runs which died have left whole, and that are still true."""
        for run in runs:
            directory = f"{SEGMENTS}/{run}"
            names = self._place.list(f"{directory}/{wanted.tp}").files
            while path_of("", wanted.tp, position).rpartition("/")[2] in names:
                file = self._read_again(directory, wanted, position)
                if file is None or not self._is_still_true(wanted, file):
                    break
                yield file
                position = file.end

    def _read_again(self, directory: str, wanted: _Wanted, position: int) -> SegmentFile | None:
        if read_topic_id(self._place, directory, wanted.tp) != wanted.topic_id:
            return None
        try:
            return read_segment(self._place, path_of(directory, wanted.tp, position), position)
        except CorruptRecord:
            return None

    # What is copied

    def _copy(self, wanted: _Wanted, position: int) -> Generator[SegmentFile, None, None]:
        directory = f"{SEGMENTS}/{self._name}"
        write_topic_id(self._place, directory, wanted.tp, wanted.topic_id)
        with closing(self._batches(wanted, position)) as batches:
            yield from write_segments(self._place, directory, wanted.tp, position, batches, wanted.file_bytes)

    def _batches(self, wanted: _Wanted, position: int) -> Generator[RecordBatch, None, None]:
        for batch in read_everything(self._cluster, wanted.tp, position, wanted.end, wanted.topic_id):
            yield batch
            self._copied += batch.size_in_bytes
            self._listener(wanted.tp, batch.size_in_bytes)


def _within(groups: Groups, saved: Mapping[str, TopicBackup]) -> Groups:
    """The offsets, none below what was copied: records may have been deleted since the cut."""

    def moved(tp: TopicPartition, at: GroupOffset) -> GroupOffset:
        copied = saved[tp.topic].partitions[tp.partition]
        return at._replace(offset=bounded(at.offset, copied.start, copied.end))

    return {group: {tp: moved(tp, at) for tp, at in offsets.items()} for group, offsets in groups.items()}


def _next(wanted: _Wanted, files: Sequence[SegmentFile]) -> int:
    """Where to go on behind these files."""
    return files[-1].end if files else wanted.start


def _own_settings(entries: Iterable[ConfigEntry]) -> dict[str, str]:
    """The settings that are the topic's own, and mean something in another cluster."""
    return {
        each.name: each.value
        for each in entries
        if each.source == _TOPIC_SETTING and each.value is not None and each.name not in _OF_THE_CLUSTER
    }
