"""The partitions of ``__consumer_offsets`` that this broker leads, as the group coordinator's storage."""

from __future__ import annotations

from collections.abc import Iterator

from sparklog.broker.metadata_cache import MetadataCache
from sparklog.broker.topics import OFFSETS_TOPIC
from sparklog.config.broker import BrokerConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.replica.manager import ReplicaManager
from sparklog.structs import TopicPartition

_READ_BLOCK = 1 << 20
_COMMIT_TIMEOUT_MS = 5000


class LogOffsetsStore:
    """Appends with acks=all; reads the log whole when a partition's leadership arrives."""

    def __init__(self, config: BrokerConfig, replicas: ReplicaManager, metadata: MetadataCache) -> None:
        self._config = config
        self._replicas = replicas
        self._metadata = metadata

    @property
    def partition_count(self) -> int:
        """Of the topic as it is, or as it will be made."""
        topic = self._metadata.topic(OFFSETS_TOPIC)
        return len(topic.partitions) if topic else self._config.offsets_topic_num_partitions

    def is_leader(self, partition: int) -> bool:
        return self._replicas.leads(TopicPartition(OFFSETS_TOPIC, partition))

    async def append(self, partition: int, batch: bytes) -> None:
        """Returns once every in-sync replica has the batch. Raises ApiError."""
        tp = TopicPartition(OFFSETS_TOPIC, partition)
        appended = self._replicas.append(tp, memoryview(bytearray(batch)), -1)
        held = self._replicas.partition(tp)
        if held.high_watermark.offset <= appended.last_offset:
            committed = await self._replicas.produce_purgatory.wait(
                [tp], lambda: held.high_watermark.offset > appended.last_offset, _COMMIT_TIMEOUT_MS
            )
            if not committed:
                raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{tp} was not replicated in time")

    def read(self, partition: int) -> Iterator[memoryview]:
        """Whole batches, from the start of the log to its end."""
        held = self._replicas.partition(TopicPartition(OFFSETS_TOPIC, partition))
        yield from held.log.read_all(_READ_BLOCK)
