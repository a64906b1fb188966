"""What the coordinator asks of ``__consumer_offsets``, and what its failures mean to clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from typing import Any, Protocol

from sparklog.errors import ErrorCode

GROUP_STORE_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What a failed append of group metadata means to a member, as in Kafka."""

CONSUMER_STORE_ERRORS = {
    **GROUP_STORE_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""What a failed append of a group of the consumer protocol means to a member, as in Kafka."""

COMMIT_ERRORS = {
    **GROUP_STORE_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""What a failed append of offsets means to the committer, as in Kafka."""


class OffsetsStore(Protocol):
    """``__consumer_offsets`` as this broker sees it."""

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has, or will have when it is made."""

    def is_leader(self, partition: int) -> bool: ...

    def largest(self, partition: int) -> int:
        """Bytes of a batch that the log takes, at most (``max.message.bytes``). Raises ApiError if it is not held."""

    def append(self, partition: int, batch: bytes) -> Coroutine[Any, Any, None]:
        """The batch is in the log when this returns, and in the in-sync replicas when what it returns was awaited.

        Either raises ApiError, the second within bounded time.
        """

    def read(self, partition: int) -> AsyncIterator[memoryview]:
        """The whole log of the partition, from start to end, in pieces of whole batches that take about 1 ms each."""
