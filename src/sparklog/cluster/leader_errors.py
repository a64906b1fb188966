"""The errors that say that what is known of a partition's leader may be wrong: ask for metadata before the next try.

One table for all that ask a leader something. It has no code that comes from the right leader (CORRUPT_MESSAGE,
NOT_ENOUGH_REPLICAS, throttling): new metadata would not help there, retriable or not. Some of its codes are met by one
side alone, which does no harm to the other:

- NETWORK_EXCEPTION: no broker sends it; producers take it for an answer that did not come.
- OFFSET_NOT_AVAILABLE: a Fetch or a ListOffsets came to a leader that is too new to know where its log ends. It will
  know, or another one will lead.
- UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID: a Fetch named a topic that was deleted, or that this broker has not heard of.
"""

from __future__ import annotations

from typing import Final

from sparklog.errors import ApiError, ConnectionFailed, ErrorCode, SparklogError

LEADER_ERRORS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


def is_leader_error(error: SparklogError) -> bool:
    """Whether a leader that is known should be forgotten: one of the codes, or a broker that cannot be reached."""
    return isinstance(error, ConnectionFailed) or (isinstance(error, ApiError) and error.code in LEADER_ERRORS)
