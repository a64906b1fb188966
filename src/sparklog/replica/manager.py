"""All partitions that this broker holds, and the way in and out of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, CorruptRecord, ErrorCode, LogClosed, LogDirFailed, LogError
from sparklog.log.files import disk_refused
from sparklog.log.log import Appended, Log
from sparklog.log.manager import DirectoryUse, LogManager
from sparklog.log.origin import AppendOrigin, Verification
from sparklog.log.segments import LogPosition
from sparklog.protocol.hot.fetch import FetchedPartition, FetchPartition
from sparklog.protocol.wire import ZERO_UUID
from sparklog.replica.partition import Partition
from sparklog.replica.purgatory import Purgatory
from sparklog.structs import IsolationLevel, TopicPartition
from sparklog.zk.znodes import PartitionState

_logger = logging.getLogger(__name__)


class ReplicaManager:
    """Single-threaded; every method returns without waiting for disk or network beyond the page cache."""

    def __init__(self, broker_id: int, logs: LogManager, loop: asyncio.AbstractEventLoop) -> None:
        self.broker_id = broker_id
        self._logs = logs
        self._partitions: dict[TopicPartition, Partition] = {}
        self.fetch_purgatory = Purgatory(loop)
        self.produce_purgatory = Purgatory(loop)

    def partition(self, tp: TopicPartition) -> Partition:
        """Raises ApiError: UNKNOWN_TOPIC_OR_PARTITION if it is not here, KAFKA_STORAGE_ERROR if its disk failed."""
        found = self._partitions.get(tp)
        if found is None:
            if tp in self._logs.unusable:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} is not served: {self._logs.unusable[tp]}")
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"broker {self.broker_id} does not hold {tp}")
        return found

    def leads(self, tp: TopicPartition) -> bool:
        found = self._partitions.get(tp)
        return found is not None and found.is_leader

    def apply(
        self,
        tp: TopicPartition,
        state: PartitionState,
        config: TopicConfig,
        topic_id: UUID | None,
        *,
        replica_count: int = 1,
        is_new: bool = True,
    ) -> ErrorCode:
        """Lead or follow the partition as the controller decided; one that ``is_new`` may be made here."""
        try:
            partition = self._partitions.get(tp)
            if partition is None:
                log = self._logs.get_or_create(tp, config, topic_id, is_new=is_new)
                log.config = config
                partition = self._partitions[tp] = Partition(tp, self.broker_id, log, topic_id)
            taken = partition.apply(state, replica_count)
            return ErrorCode.NONE if taken else ErrorCode.STALE_CONTROLLER_EPOCH
        except (LogError, OSError) as error:
            _logger.error("cannot open %s: %s", tp, error)
            self._report(error, tp, self._logs.logs.get(tp))
            return ErrorCode.KAFKA_STORAGE_ERROR

    def stop(self, tp: TopicPartition, *, delete: bool) -> None:
        """Serve the partition no longer; with ``delete`` its log goes too. Whoever waits for it is woken."""
        partition = self._partitions.pop(tp, None)
        if partition is not None:
            partition.leader = -1
        if delete:
            try:
                self._logs.delete(tp)
            except LogError as error:
                _logger.error("cannot delete %s: %s", tp, error)
                if isinstance(error, LogDirFailed) and partition is not None:
                    self._logs.report(error, partition.log.directory)
                self._report(error, tp, None if partition is None else partition.log)
        self.fetch_purgatory.check(tp)
        self.produce_purgatory.check(tp)

    def _report(self, error: LogError | OSError, tp: TopicPartition, log: Log | None) -> None:
        """If it is the disk that refused, its log directory has failed."""
        failure = disk_refused(f"cannot open or delete {tp}", error) if isinstance(error, OSError) else error
        if log is not None and isinstance(failure, LogDirFailed):
            self._logs.report(failure, log.directory)

    def append(
        self,
        tp: TopicPartition,
        records: memoryview,
        required_acks: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification: Verification | None = None,
    ) -> Appended:
        """Append as leader and wake the readers who wait for it. Raises ApiError with the code to answer."""
        partition = self.partition(tp)
        try:
            appended = partition.append_as_leader(records, required_acks, origin, verification)
        except (LogDirFailed, LogClosed) as error:
            if isinstance(error, LogDirFailed):
                self._logs.report(error, partition.log.directory)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self.fetch_purgatory.check(tp)
        return appended

    def append_replicated(
        self, tp: TopicPartition, batch: bytes, timeout_ms: int, origin: AppendOrigin = AppendOrigin.COORDINATOR
    ) -> Coroutine[Any, Any, None]:
        """Append a coordinator's batch now; to be awaited until every in-sync replica has it. Both raise ApiError, the
        second REQUEST_TIMED_OUT if the replicas do not follow.
        """
        appended = self.append(tp, memoryview(bytearray(batch)), -1, origin)
        return self._replicated(tp, self.partition(tp), appended.last_offset, timeout_ms)

    async def _replicated(self, tp: TopicPartition, held: Partition, offset: int, timeout_ms: int) -> None:
        if held.high_watermark.offset <= offset:
            committed = await self.produce_purgatory.wait([tp], lambda: held.high_watermark.offset > offset, timeout_ms)
            if not committed:
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{tp} was not replicated in time")

    def topics(self) -> set[str]:
        """The topics of which a partition is held here."""
        return {tp.topic for tp in self._partitions}

    def configure(self, topic: str, config: TopicConfig) -> None:
        """Put other settings in force for the topic's partitions."""
        for tp, partition in self._partitions.items():
            if tp.topic == topic:
                partition.log.config = config

    def remember_producers(self, expiration_ms: int) -> None:
        """Forget a producer, from now on, when it has been silent for so long."""
        self._logs.remember_producers(expiration_ms)

    def delete_records(self, tp: TopicPartition, before: int) -> int:
        """Let the partition begin at offset ``before`` (-1: at its high watermark), also after a crash.

        Returns where it begins now: no earlier, for nothing comes back. Raises ApiError with the code to answer.
        """
        partition = self.partition(tp)
        offset = partition.check_deletion(before)
        try:
            self._logs.advance_start(tp, offset)
        except LogDirFailed as error:
            self._logs.report(error, partition.log.directory)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return partition.log.log_start_offset

    def log_dirs(self) -> list[DirectoryUse]:
        """The broker's log directories and what lies in them."""
        return self._logs.usage()

    def forget_unusable(self) -> list[TopicPartition]:
        """Serve no more the partitions whose disk has failed; whoever waits for them is woken. Returns which."""
        gone = [tp for tp in self._partitions if tp in self._logs.unusable]
        for tp in gone:
            self.stop(tp, delete=False)
        return gone

    def read(
        self, asked: FetchPartition, topic: str, isolation: IsolationLevel, max_bytes: int, *, min_one_batch: bool
    ) -> tuple[FetchedPartition, LogPosition | None]:
        """What a consumer gets of one partition, errors included; without one, how far it could see."""
        tp = TopicPartition(topic, asked.partition)
        fetched = FetchedPartition(topic, asked.topic_id, asked.partition)
        try:
            partition = self.partition(tp)
            if asked.topic_id is not ZERO_UUID:  # comparing ids costs as much as finding the partition
                partition.check_topic(asked.topic_id)
            partition.check_leader(asked.current_leader_epoch)
            bound = partition.bound(isolation)
            fetched.high_watermark = partition.high_watermark.offset
            fetched.last_stable_offset = partition.last_stable_offset
            fetched.log_start_offset = partition.log.log_start_offset
            if isolation is IsolationLevel.READ_COMMITTED:
                fetched.aborted = []
            limit = min(asked.max_bytes, max_bytes)
            records = partition.log.read(asked.offset, limit, bound, min_one_batch=min_one_batch)
            if records is not None and records.size:
                fetched.records.append(records)
                if isolation is IsolationLevel.READ_COMMITTED:
                    aborted = partition.log.aborted_in(records, asked.offset, bound.offset)
                    fetched.aborted = [(each.producer_id, each.first_offset) for each in aborted]
        except ApiError as error:
            fetched.error = error.code
        except LogClosed:
            fetched.error = ErrorCode.KAFKA_STORAGE_ERROR
        except (CorruptRecord, OSError) as error:
            fetched.error = self._cannot_read(partition, asked.offset, error)
        else:
            return fetched, bound
        return FetchedPartition(topic, asked.topic_id, asked.partition, fetched.error), None

    def _cannot_read(self, partition: Partition, offset: int, error: CorruptRecord | OSError) -> ErrorCode:
        """Damage concerns one partition; a disk that cannot be read takes its log directory out of service."""
        _logger.error("cannot read %s at offset %d: %s", partition.tp, offset, error)
        if isinstance(error, OSError):
            self._logs.report(disk_refused("cannot read", error), partition.log.directory)
        return ErrorCode.KAFKA_STORAGE_ERROR

    def available(self, tp: TopicPartition, since: LogPosition, isolation: IsolationLevel) -> int:
        """Bytes that have become visible since a reader could see up to ``since``; many if the partition is gone."""
        partition = self._partitions.get(tp)
        if partition is None or not partition.is_leader:
            return 1 << 30
        bound = partition.bound(isolation)
        if bound.segment_base != since.segment_base:
            return 1 << 30
        return bound.position - since.position

    def apply_retention(self) -> None:
        """Delete the segments that their topics' retention no longer wants, and the files deleted long enough ago."""
        for tp, partition in list(self._partitions.items()):
            try:
                self._logs.delete_old_segments(tp, partition.high_watermark.offset)
            except LogDirFailed as error:
                _logger.error("cannot apply the retention of %s: %s", tp, error)
                self._logs.report(error, partition.log.directory)
            except LogError as error:
                _logger.error("cannot apply the retention of %s: %s", tp, error)
        self._logs.unlink_due()

    @property
    def leader_count(self) -> int:
        return sum(partition.is_leader for partition in self._partitions.values())
