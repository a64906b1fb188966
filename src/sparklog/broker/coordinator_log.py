"""The partitions of a coordinator's topic that this broker leads: groups' offsets, transactions' states."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from sparklog.broker.metadata_cache import MetadataCache
from sparklog.replica.manager import ReplicaManager
from sparklog.structs import TopicPartition

_READ_BLOCK = 1 << 18
"""What a coordinator takes in without letting others have the loop."""
_COMMIT_TIMEOUT_MS = 5000


class CoordinatorLog:
    """Appends with acks=all; reads the log whole when a partition's leadership arrives.

    ``planned_count``: how many partitions the topic gets when it is made.
    """

    def __init__(self, topic: str, planned_count: int, replicas: ReplicaManager, metadata: MetadataCache) -> None:
        self._topic = topic
        self._planned_count = planned_count
        self._replicas = replicas
        self._metadata = metadata

    @property
    def partition_count(self) -> int:
        """Of the topic as it is, or as it will be made."""
        topic = self._metadata.topic(self._topic)
        return len(topic.partitions) if topic else self._planned_count

    def is_leader(self, partition: int) -> bool:
        """Not before the cluster is known: how many partitions there are decides what lies in which."""
        return self._metadata.has_been_told and self._replicas.leads(TopicPartition(self._topic, partition))

    def is_led_elsewhere(self, partition: int) -> bool:
        """Whether another broker is known to lead it."""
        leader = self._metadata.leader(TopicPartition(self._topic, partition))
        return leader is not None and leader.id != self._replicas.broker_id and not self.is_leader(partition)

    def leader_epoch(self, partition: int) -> int:
        return self._replicas.partition(TopicPartition(self._topic, partition)).leader_epoch

    def largest(self, partition: int) -> int:
        """Bytes of a batch that the log takes, at most. Raises ApiError where it is not here."""
        return self._replicas.partition(TopicPartition(self._topic, partition)).config.max_message_bytes

    def append(self, partition: int, batch: bytes) -> Coroutine[Any, Any, None]:
        """Writes the log now; to be awaited until every in-sync replica has the batch. Both raise ApiError."""
        return self._replicas.append_replicated(TopicPartition(self._topic, partition), batch, _COMMIT_TIMEOUT_MS)

    async def committed(self, partition: int) -> None:
        """Return when every in-sync replica has what the log holds now. Raises ApiError, REQUEST_TIMED_OUT if the
        replicas do not follow.
        """
        tp = TopicPartition(self._topic, partition)
        held = self._replicas.partition(tp)
        await self._replicas.replicated(tp, held.leader_epoch, held.log_end_offset - 1, _COMMIT_TIMEOUT_MS)

    async def read(self, partition: int) -> AsyncIterator[memoryview]:
        """Whole batches, from the start of the log to its end; the disk is read on another thread."""
        loop = asyncio.get_running_loop()
        pieces = self._replicas.partition(TopicPartition(self._topic, partition)).read_all(_READ_BLOCK)
        while (piece := await loop.run_in_executor(None, next, pieces, None)) is not None:
            yield piece
