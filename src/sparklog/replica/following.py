"""The partitions of which this broker copies the leader's log: what goes in, and what a copy drops again.

A cut waits for the disk, so it runs on the disk thread. Invariants: while it runs, nobody reads the copy, appends to it
or deletes segments of it, and no LeaderAndIsr or StopReplica changes the partition (``changing`` is held). A cut that
was begun is finished, also if its fetcher is closed; what the fetcher was told of the partition is asked again when its
turn has come.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from sparklog.clock import Clock
from sparklog.errors import ApiError, CorruptRecord, ErrorCode, LogClosed, LogDirFailed, LogError
from sparklog.log.directories.manager import LogManager
from sparklog.net.tasks import to_its_end
from sparklog.rate_limit import RateLimitedLogger
from sparklog.record.batch import RecordBatch
from sparklog.replica.partition import Partition
from sparklog.structs import OffsetAndEpoch, TopicPartition

if TYPE_CHECKING:
    from sparklog.replica.manager import ReplicaManager

_logger = logging.getLogger(__name__)


class Standing(NamedTuple):
    """Where a follower's copy ends."""

    topic_id: UUID | None
    offset: int
    latest_epoch: int
    """The leader epoch of the last batch; -1 without any."""
    log_start_offset: int


class Following:
    """Belongs to the loop's thread."""

    def __init__(self, replicas: ReplicaManager, logs: LogManager, clock: Clock) -> None:
        self._replicas = replicas
        self._logs = logs
        self._lines = RateLimitedLogger(_logger, clock.monotonic)

    def standing(self, tp: TopicPartition, leader_epoch: int) -> Standing:
        """Where to go on copying. Raises ApiError unless the partition follows the leader of this epoch."""
        partition = self._followed(tp, leader_epoch)
        end, start = partition.log_end_offset, partition.log_start_offset
        return Standing(partition.topic_id, end, partition.latest_epoch, start)

    def _followed(self, tp: TopicPartition, leader_epoch: int) -> Partition:
        partition = self._replicas.partition(tp)
        partition.check_follows(leader_epoch)
        return partition

    def awaited_flush(self, tp: TopicPartition) -> Coroutine[Any, Any, None] | None:
        """What is to be awaited before the leader may be told that the copy goes so far, for ``flush.messages`` wants
        that; None if nothing is. It raises ApiError if that will not be.
        """
        end = self._replicas.partition(tp).unflushed_end
        return None if end is None else self._replicas.flushed(tp, end)

    def begins_within(self, tp: TopicPartition, leader_epoch: int, records: memoryview) -> int | None:
        """The first offset of the first batch, if that begins before the end of a copy without records, and ends behind
        it: the leader's log begins within that batch, and so must the copy. Else None. Raises ApiError.

        Source: Kafka 3.9, ``Partition.appendRecordsToFollowerOrFutureReplica``.
        """
        partition = self._followed(tp, leader_epoch)
        end = partition.log_end_offset
        if partition.log_start_offset != end:
            return None
        try:
            first = RecordBatch(records)
        except CorruptRecord:  # whoever appends it says so
            return None
        return first.base_offset if first.base_offset < end < first.next_offset else None

    def append_from_leader(
        self, tp: TopicPartition, leader_epoch: int, records: memoryview | None, high_watermark: int, log_start: int
    ) -> None:
        """Append what the leader of this epoch sent, and take over how far it may be seen and where the log begins.

        Raises ApiError: FENCED_LEADER_EPOCH if another leads since, CORRUPT_MESSAGE if it does not hold together or
        does not follow what is here, KAFKA_STORAGE_ERROR.
        """
        partition = self._followed(tp, leader_epoch)
        try:
            if records:
                partition.append_as_follower(records)
                partition.traffic.replicated_in += len(records)
                self._logs.written(partition.log.directory)
            if partition.follow(high_watermark, log_start):
                self._replicas.fetch_purgatory.check(tp)
        except (LogDirFailed, LogClosed, OSError) as error:
            raise self._replicas.refused(partition, error) from error
        except (CorruptRecord, LogError) as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{tp}: {error}") from error

    async def drop_diverged(self, tp: TopicPartition, leader_epoch: int, diverging: OffsetAndEpoch) -> None:
        """Drop what the leader's log does not have: ``diverging`` is the last epoch that it may share, with its end.

        Where this log does not know that epoch, another fetch finds the next one. Raises ApiError.
        """
        await self._to_its_end(tp, leader_epoch, lambda held: self._truncation(held, held.shared_end(diverging)))

    async def drop_beyond(self, tp: TopicPartition, leader_epoch: int, offset: int) -> None:
        """End at ``offset``, where the leader's log ends. Raises ApiError."""
        await self._to_its_end(tp, leader_epoch, lambda held: self._truncation(held, offset))

    async def begin_again_at(self, tp: TopicPartition, leader_epoch: int, offset: int) -> None:
        """Drop all and go on at ``offset``, where the leader's log begins now, beyond what is here. Raises ApiError."""
        await self._to_its_end(tp, leader_epoch, lambda _: self._logs.start_restart(tp, offset))

    def _truncation(self, partition: Partition, offset: int) -> Future[None]:
        if offset < partition.high_watermark.offset:
            text = "%s drops committed records: it ends at %d now, and was committed up to %d"
            _logger.warning(text, partition.tp, offset, partition.high_watermark.offset)
        elif offset < (end := partition.log_end_offset):
            text = f"{partition.tp} drops what its leader does not have: it ended at {end}, and ends at {offset} now"
            self._lines.inform("dropped", text)
        return self._logs.start_truncation(partition.tp, offset)

    async def _to_its_end(
        self, tp: TopicPartition, leader_epoch: int, begin: Callable[[Partition], Future[None]]
    ) -> None:
        await to_its_end(self._cut(self._followed(tp, leader_epoch), leader_epoch, begin))

    async def _cut(self, meant: Partition, leader_epoch: int, begin: Callable[[Partition], Future[None]]) -> None:
        tp = meant.tp
        async with self._replicas.changing:
            partition = self._followed(tp, leader_epoch)
            if partition is not meant:  # another topic's may be under the same epoch
                raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, f"{tp} was made anew")
            self._logs.being_cut.add(tp)
            try:
                await asyncio.wrap_future(begin(partition))
            except (LogError, OSError) as error:
                raise self._replicas.refused(partition, error) from error
            finally:
                partition.truncated()
                self._replicas.futures.cut(tp, partition.log_end_offset)
                self._logs.being_cut.discard(tp)
                self._replicas.fetch_purgatory.check(tp)
