"""Reads log directories without a broker: the option ``path``. It changes nothing in them."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from sparklog.client.cluster.offsets import OffsetAndTimestamp
from sparklog.errors import ApiError, CorruptRecord, DataSourceError, ErrorCode
from sparklog.log.extents import ExtentReader
from sparklog.log.files import LOG_SUFFIX, parse_partition_dir
from sparklog.log.inspection.locks import is_in_use
from sparklog.log.stopped import StoppedPartition, stopped_partitions
from sparklog.protocol.wire import ZERO_UUID
from sparklog.record.batch import RecordBatch
from sparklog.record.visibility import Visibility
from sparklog.spark.options.definition import invalid
from sparklog.spark.options.selection import Assign, Subscribe
from sparklog.spark.read.offsets import OffsetRange, Offsets
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.read.resolver import Resolver, TopicIds
from sparklog.structs import DECISIONS_TOPIC, INTERNAL_TOPICS, IsolationLevel, TopicPartition

_log = logging.getLogger(__name__)
_NEVER_BY_PATTERN = INTERNAL_TOPICS | {DECISIONS_TOPIC}
"""Read only where an option names it."""
_ADVICE = "the option 'path' names log directories that the driver and the executors see under the same name"


def open_directories(paths: Iterable[str]) -> dict[TopicPartition, StoppedPartition]:
    """The partitions in all these directories. Raises DataSourceError if one is unreadable, or two have a partition."""
    found: dict[TopicPartition, StoppedPartition] = {}
    for path in map(Path, paths):
        try:
            _check_log_directory(path)
            partitions = stopped_partitions(path)
        except OSError as error:
            raise DataSourceError("SPARKLOG_INVALID_OPTION", f"{path}: {error.strerror}; {_ADVICE}") from error
        for tp, partition in partitions.items():
            twin = found.setdefault(tp, partition)
            if twin is not partition:
                raise DataSourceError(
                    "SPARKLOG_INVALID_OPTION",
                    f"partition {tp} is both in {twin.directory} and in {partition.directory}",
                )
    return found


def _check_log_directory(path: Path) -> None:
    """Raises DataSourceError for a parent of log directories, or a partition's directory, and names the right one.

    The name alone does not tell: ``broker-0`` could be a partition too.
    """
    if _holds_partitions(path):
        return
    below = [str(each) for each in sorted(path.iterdir()) if each.is_dir() and _holds_partitions(each)]
    if below:
        raise invalid("path", str(path), f"it holds no log, but directories below it do: pass {','.join(below)}")
    if _is_partition(path):
        raise invalid("path", str(path), f"it is the directory of one partition: pass {path.absolute().parent}")


def _holds_partitions(path: Path) -> bool:
    return os.access(path, os.R_OK | os.X_OK) and any(map(_is_partition, path.iterdir()))


def _is_partition(path: Path) -> bool:
    return parse_partition_dir(path.name) is not None and path.is_dir() and any(path.glob(f"*{LOG_SUFFIX}"))


class DirectoryResolver(Resolver):
    """Resolves offsets by the files. Ends are after the last whole batch; with read_committed, last stable offsets."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._found = open_directories(options.directories)
        for path in map(Path, options.directories):
            if is_in_use(path):
                _log.warning("a broker is at work in %s: what it has not written yet, or deletes, is not read", path)

    def partitions(
        self,
        read_before: Collection[TopicPartition] | None = (),  # noqa: ARG002 (no partition disappears here)
    ) -> TopicIds:
        chosen = sorted(self._chosen())
        return {tp: self._found[tp].topic_id or ZERO_UUID for tp in chosen}

    def _chosen(self) -> Iterator[TopicPartition]:
        selection = self._options.selection
        if isinstance(selection, Assign):
            for tp in selection.partitions:
                if tp not in self._found:
                    raise self._unknown(str(tp))
                yield tp
        elif isinstance(selection, Subscribe):
            for topic in selection.topics:
                partitions = [tp for tp in self._found if tp.topic == topic]
                if not partitions:
                    raise self._unknown(topic)
                yield from partitions
        else:
            matching = (tp for tp in self._found if selection.pattern.search(tp.topic))
            yield from (tp for tp in matching if tp.topic not in _NEVER_BY_PATTERN)

    def _unknown(self, what: str) -> ApiError:
        where = ", ".join(self._options.directories)
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{what!r} is not in {where}")

    def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        return {tp: self._found[tp].start_offset for tp in partitions}

    def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        if self._options.client.isolation_level is IsolationLevel.READ_COMMITTED:
            return {tp: self._found[tp].decisions.last_stable_offset for tp in partitions}
        return {tp: self._found[tp].end_offset for tp in partitions}

    def by_time(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        found = {tp: self._found[tp].offset_for_timestamp(timestamp) for tp, timestamp in wanted.items()}
        return {tp: None if at is None else OffsetAndTimestamp(at.offset, at.timestamp) for tp, at in found.items()}

    def bytes_per_offset(
        self,
        partitions: Collection[TopicPartition],
        starts: Mapping[TopicPartition, int] | None = None,  # noqa: ARG002 (it has one figure for the whole log)
    ) -> dict[TopicPartition, float]:
        """The average bytes of an offset on the disk, for each partition."""
        return {tp: self._found[tp].bytes_per_offset for tp in partitions}


class DirectoryReader:
    """Reads the ranges of one task."""

    def __init__(self, options: ReadOptions) -> None:
        self._found = open_directories(options.directories)
        self._isolation = options.client.isolation_level
        self._check_crcs = options.client.check_crcs
        self._reader = ExtentReader()

    def batches(self, wanted: OffsetRange) -> Iterator[RecordBatch]:
        """The visible batches of the range. A batch is valid until the next one is requested. Raises CorruptRecord."""
        partition = self._found.get(wanted.tp)
        if partition is None:
            raise DataSourceError("SPARKLOG_UNKNOWN_TOPIC", f"partition {wanted.tp} is not here; {_ADVICE}")
        aborted = []
        if self._isolation is IsolationLevel.READ_COMMITTED:
            aborted = partition.decisions.overlapping(wanted.start, wanted.end)
        shown = Visibility(aborted, self._isolation)
        for piece in partition.pieces(wanted.start, wanted.end):
            try:
                for batch in self._reader.batches(piece.records.fileno(), piece.start, piece.end):
                    if self._check_crcs:
                        batch.validate()
                    if shown.shows(batch):
                        yield batch
            except CorruptRecord as error:
                raise CorruptRecord(f"{piece.records.path}: {error}") from error
