"""All partitions that this broker holds, and the way in and out of them."""

from __future__ import annotations

import asyncio
import logging
from uuid import UUID

from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, CorruptRecord, ErrorCode, LogClosed, LogDirFailed, LogError
from sparklog.log.log import Appended, LogPosition
from sparklog.log.manager import LogManager
from sparklog.protocol.hot.fetch import FetchedPartition, FetchPartition
from sparklog.replica.partition import Partition
from sparklog.replica.purgatory import Purgatory
from sparklog.structs import IsolationLevel, TopicPartition
from sparklog.zk.znodes import PartitionState

_logger = logging.getLogger(__name__)


class ReplicaManager:
    """Single-threaded; every method returns without waiting for disk or network beyond the page cache."""

    def __init__(self, broker_id: int, logs: LogManager, loop: asyncio.AbstractEventLoop) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._partitions: dict[TopicPartition, Partition] = {}
        self.fetch_purgatory = Purgatory(loop)
        self.produce_purgatory = Purgatory(loop)

    def partition(self, tp: TopicPartition) -> Partition:
        """Raises ApiError(UNKNOWN_TOPIC_OR_PARTITION) if this broker does not hold it."""
        found = self._partitions.get(tp)
        if found is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"broker {self._broker_id} does not hold {tp}")
        return found

    def leads(self, tp: TopicPartition) -> bool:
        found = self._partitions.get(tp)
        return found is not None and found.is_leader

    def apply(self, tp: TopicPartition, state: PartitionState, config: TopicConfig, topic_id: UUID | None) -> ErrorCode:
        """Lead or follow the partition as the controller decided."""
        try:
            partition = self._partitions.get(tp)
            if partition is None:
                log = self._logs.get_or_create(tp, config, topic_id)
                log.config = config
                partition = self._partitions[tp] = Partition(tp, self._broker_id, log)
            return ErrorCode.NONE if partition.apply(state) else ErrorCode.STALE_CONTROLLER_EPOCH
        except (LogError, OSError) as error:
            _logger.error("cannot open %s: %s", tp, error)
            return ErrorCode.KAFKA_STORAGE_ERROR

    def stop(self, tp: TopicPartition, *, delete: bool) -> None:
        """Serve the partition no longer; with ``delete`` its log goes too. Whoever waits for it is woken."""
        partition = self._partitions.pop(tp, None)
        if partition is not None:
            partition.leader = -1
        if delete:
            self._logs.delete(tp)
        self.fetch_purgatory.check(tp)
        self.produce_purgatory.check(tp)

    def append(self, tp: TopicPartition, records: memoryview, required_acks: int) -> Appended:
        """Append as leader and wake the readers who wait for it. Raises ApiError with the code to answer."""
        partition = self.partition(tp)
        try:
            appended = partition.append_as_leader(records, required_acks)
        except (LogDirFailed, LogClosed) as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self.fetch_purgatory.check(tp)
        return appended

    def read(
        self, asked: FetchPartition, topic: str, isolation: IsolationLevel, max_bytes: int, *, min_one_batch: bool
    ) -> tuple[FetchedPartition, LogPosition | None]:
        """What a consumer gets of one partition, errors included; without one, how far it could see."""
        tp = TopicPartition(topic, asked.partition)
        fetched = FetchedPartition(topic, asked.topic_id, asked.partition)
        try:
            partition = self.partition(tp)
            partition.check_leader(asked.current_leader_epoch)
            bound = partition.bound(isolation)
            fetched.high_watermark = partition.high_watermark.offset
            fetched.last_stable_offset = partition.last_stable_offset.offset
            fetched.log_start_offset = partition.log.log_start_offset
            limit = min(asked.max_bytes, max_bytes)
            records = partition.log.read(asked.offset, limit, bound, min_one_batch=min_one_batch)
        except ApiError as error:
            fetched.error = error.code
        except (CorruptRecord, OSError) as error:
            _logger.error("cannot read %s at offset %d: %s", tp, asked.offset, error)
            fetched.error = ErrorCode.KAFKA_STORAGE_ERROR
        else:
            if records is not None and records.size:
                fetched.records.append(records)
            return fetched, bound
        return fetched, None

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
        for tp, partition in self._partitions.items():
            try:
                self._logs.delete_old_segments(tp, partition.high_watermark.offset)
            except (LogError, OSError) as error:
                _logger.error("cannot apply the retention of %s: %s", tp, error)
        self._logs.unlink_due()

    @property
    def leader_count(self) -> int:
        return sum(partition.is_leader for partition in self._partitions.values())
