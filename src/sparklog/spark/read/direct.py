"""Reads ranges from the segment files themselves, under a lease from a replica; ``docs/adr/0012`` says why it is safe.

The leader is asked first, then those that are in sync with it: a task may see the files of another replica than the
leader's, and a leader that has died keeps no task from reading. A follower shows less than its leader, for a moment; it
grants what it shows, and the rest is asked of the next replica, at last by Fetch (``docs/adr/0024``).

A task opens a file only where a broker of the cluster may keep it (``segment_files``), and reads it only if it is the
one that the broker means: by device and inode, and by offset and CRC of the first batch. If ``directReadMapping`` says
that the broker's directory is mounted under another path, inodes may differ: then the topic id in
``partition.metadata`` must be that of the lease. Every doubt raises NotDirect, and the task fetches the remainder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sparklog.client.cluster.leases import LeasedFile, RangeAsked, RangeLease, end_lease, lease_ranges
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.retry import is_retriable
from sparklog.client.consumer.fetch.leased_files import NO_LEASE, check_identity, leased_batches
from sparklog.client.consumer.fetch.segment_files import NOT_VISIBLE, SegmentFiles, topic_id_of
from sparklog.cluster.leader_errors import is_leader_error
from sparklog.errors import ApiError, ConnectionFailed, ErrorCode, NotDirect, SparklogError
from sparklog.log.extents import ExtentReader
from sparklog.record.batch import RecordBatch
from sparklog.record.visibility import Visibility
from sparklog.spark.options.directories import DirectMode
from sparklog.spark.read.direct_options import DirectOptions
from sparklog.spark.read.offsets import OffsetRange
from sparklog.structs import BrokerId, Endpoint, TopicPartition

if TYPE_CHECKING:
    from sparklog.spark.read.fetch_paths import ReadPathCounters

_FILES_AT_ONCE = 32
"""The most files that are open at a time, and the most ranges in one lease request."""

NOT_SERVED = "the broker grants no leases"


class _OpenRange(NamedTuple):
    """The open files of a range."""

    lease: RangeLease
    files: list[tuple[LeasedFile, int]]

    def close(self) -> None:
        for _, fd in self.files:
            os.close(fd)


class DirectReader:
    """Reads ``ranges``, all those of one task, in order. Close it.

    One request leases the next ranges that have the same leader, as many as may be open; their files are opened at
    once.
    """

    def __init__(
        self,
        cluster: ClusterMetadata,
        options: DirectOptions,
        counters: ReadPathCounters,
        ranges: Sequence[OffsetRange],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._counters = counters
        self._ranges = list(ranges)
        self._reader = ExtentReader()
        self._opened: dict[OffsetRange, _OpenRange] = {}
        self._refused: dict[Endpoint, str] = {}  # broker → why this task does not ask it again
        self._has_asked_for_topics = False
        self._segment_files: SegmentFiles | None = None

    def close(self) -> None:
        for each in self._opened.values():
            each.close()
        self._opened.clear()

    @property
    def is_wanted(self) -> bool:
        return self._options.mode is not DirectMode.NEVER

    @property
    def is_required(self) -> bool:
        return self._options.mode is DirectMode.ALWAYS

    def batches(self, wanted: OffsetRange, position: int) -> Iterator[RecordBatch]:
        """The visible batches of the range from ``position`` on. A batch is valid until the next one is requested.

        Raises NotDirect, and with ``directRead=always`` also ApiError like a Fetch.
        """
        while position < wanted.end:
            left = wanted._replace(start=position)
            if left not in self._opened:
                self._open_next(left, wanted)
            opened = self._opened.pop(left)
            try:
                yield from self._read(opened)
            finally:
                opened.close()
            position = opened.lease.end_offset

    def _open_next(self, left: OffsetRange, wanted: OffsetRange) -> None:
        """Open the files of the remainder ``left`` of a range, and of ranges after it."""
        try:
            if self.is_required:
                self._cluster.retrying(lambda: self._open_at_any(left, wanted))
            else:
                self._open_at_any(left, wanted)
        except (ApiError, ConnectionFailed) as error:
            if self.is_required:
                raise
            raise NotDirect(NO_LEASE, str(error)) from error  # a Fetch may succeed, or raises the better error

    def _open_at_any(self, left: OffsetRange, wanted: OffsetRange) -> None:
        """Open them at the first replica that grants them and whose files are here, the leader before the others.

        Raises why the leader does not; what may pass, of any of them, before what will not. The leader's word counts
        where it refuses the offsets or the topic.
        """
        failure: SparklogError | None = None
        for broker in self._replicas(left.tp):
            try:
                self._open_at(broker, left, wanted)
                return
            except (ApiError, ConnectionFailed, NotDirect) as error:
                if failure is None and isinstance(error, ApiError) and not is_retriable(error):
                    raise
                if failure is None or (is_retriable(error) and not is_retriable(failure)):
                    failure = error
        assert failure is not None
        raise failure

    def _replicas(self, tp: TopicPartition) -> list[Endpoint]:
        """The leader, and those that were in sync with it when its metadata came. Raises ApiError, ConnectionFailed."""
        leader, topic = self._cluster.leader(tp)
        info, brokers = topic.partition(tp.partition), self._cluster.brokers
        in_sync = () if info is None else info.isr
        return [leader, *(brokers[BrokerId(each)] for each in in_sync if brokers.get(BrokerId(each), leader) != leader)]

    def _open_at(self, broker: Endpoint, left: OffsetRange, wanted: OffsetRange) -> None:
        """Open them at one replica. Raises NotDirect, ApiError, ConnectionFailed."""
        if broker in self._refused:
            raise NotDirect(self._refused[broker], f"as was seen of broker {broker} before")
        leases = self._request_leases(broker, left, wanted)
        try:
            for each, lease in leases.items():
                if lease.end_offset > each.start:
                    self._opened[each] = self._open_files(each.tp, lease)
        except NotDirect as error:
            self._refused[broker] = error.reason
            if left not in self._opened:
                raise
        finally:
            with suppress(ConnectionFailed):
                end_lease(self._cluster, leases[left])
        if left not in self._opened:
            text = (
                f"partition {left.tp} is not committed up to offset {left.end} at broker {broker}, or the segment of"
                f" offset {left.start} is being replaced there"
            )
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, text)

    def _request_leases(
        self, broker: Endpoint, left: OffsetRange, wanted: OffsetRange
    ) -> dict[OffsetRange, RangeLease]:
        """The leases of the remainder ``left``, and of ranges after it."""
        ranges = [left, *self._next_at(broker, wanted)]
        most = max(_FILES_AT_ONCE // len(ranges), 1)
        try:
            leases = lease_ranges(self._cluster, [RangeAsked(*each) for each in ranges], broker=broker, max_files=most)
            if isinstance(leases[0], ApiError):
                raise leases[0]
        except SparklogError as error:
            self._learn(broker, left.tp, error)
            raise
        granted = zip(ranges, leases, strict=True)
        return {each: lease for each, lease in granted if isinstance(lease, RangeLease)}

    def _learn(self, broker: Endpoint, tp: TopicPartition, error: SparklogError) -> None:
        """What an error means for the next attempts. Raises NotDirect where the broker grants no leases at all."""
        if isinstance(error, ApiError) and error.code is ErrorCode.UNSUPPORTED_VERSION:
            self._refused[broker] = NOT_SERVED
            raise NotDirect(NOT_SERVED, str(error)) from error
        if isinstance(error, ConnectionFailed) and not self.is_required:
            self._refused[broker] = NO_LEASE
        if is_leader_error(error):
            self._cluster.invalidate(tp.topic)

    def _next_at(self, broker: Endpoint, wanted: OffsetRange) -> list[OffsetRange]:
        """The ranges after one that have the same leader, and a replica at ``broker``, by the metadata in hand.

        There is none after a range that was not told of before.
        """
        if wanted not in self._ranges:
            return []
        index = self._ranges.index(wanted) + 1
        coming = [each for each in self._ranges[index : index + _FILES_AT_ONCE - 1] if each not in self._opened]
        found = []
        with suppress(ApiError, ConnectionFailed):  # the read of that range will raise it
            leader = self._cluster.leader(wanted.tp)[0]
            self._fetch_topics_once()
            found = [
                each
                for each in coming
                if self._cluster.known_leader(each.tp) == leader and broker in self._replicas(each.tp)
            ]
        return found

    def _fetch_topics_once(self) -> None:
        """Fetch the metadata of all topics of the task in one request, once."""
        topics = {each.tp.topic for each in self._ranges}
        if len(topics) > 1 and not self._has_asked_for_topics:
            self._has_asked_for_topics = True
            self._cluster.fetch(topics)

    def _open_files(self, tp: TopicPartition, lease: RangeLease) -> _OpenRange:
        with ExitStack() as on_error:
            files = []
            for file in lease.files:
                fd = self._open(file, tp, lease)
                on_error.callback(os.close, fd)
                files.append((file, fd))
            on_error.pop_all()
        return _OpenRange(lease, files)

    def _read(self, opened: _OpenRange) -> Iterator[RecordBatch]:
        shown = Visibility(opened.lease.aborted, self._cluster.config.isolation_level)
        for file, fd in opened.files:
            for batch in self._batches_of(file, fd):
                if shown.shows(batch):
                    yield batch

    def _open(self, file: LeasedFile, tp: TopicPartition, lease: RangeLease) -> int:
        if self._segment_files is None:
            self._segment_files = SegmentFiles(self._cluster.cluster_id, self._options.mapped)
        fd, mounted = self._segment_files.open(file.path, tp)
        try:
            if mounted is None:
                check_identity(file, fd)
            else:
                _check_topic(mounted, lease)
            with suppress(OSError):
                os.posix_fadvise(fd, file.start, file.end - file.start, os.POSIX_FADV_SEQUENTIAL)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _batches_of(self, file: LeasedFile, fd: int) -> Iterator[RecordBatch]:
        for batch in leased_batches(self._reader, file, fd, check_crcs=self._cluster.config.check_crcs):
            yield batch
            self._counters.direct_bytes += batch.size_in_bytes


def _check_topic(home: Path, lease: RangeLease) -> None:
    found = topic_id_of(home)
    if found is None or found != lease.topic_id:
        raise NotDirect(NOT_VISIBLE, f"{home} belongs to topic id {found}, not to {lease.topic_id}")
