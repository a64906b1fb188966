"""Small immutable values that every layer shares."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple, NewType, Protocol
from uuid import UUID

BrokerId = NewType("BrokerId", int)
LeaderEpoch = NewType("LeaderEpoch", int)
ControllerEpoch = NewType("ControllerEpoch", int)

NO_LEADER = BrokerId(-1)
NO_EPOCH = LeaderEpoch(-1)

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
"""What the brokers write for themselves."""
DECISIONS_TOPIC = "__spark_decisions"
"""Where Spark's sinks keep which transactions count; no internal topic to a client, since clients write it."""
DECIDER_PREFIX = "spark-decisions."
"""How the transactional id, and the group, under which a sink decides begins."""
STATE_TOPICS = INTERNAL_TOPICS | {DECISIONS_TOPIC}
"""Whose readers go by the last record of each key."""
LONGEST_TOPIC = 249
"""Characters of a topic's name at most (Kafka's ``Topic.java``)."""


class TopicPartition(NamedTuple):
    """One partition of one topic; its directory on disk is named ``str(tp)``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partitions' numbers under their topics."""
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics


class OffsetAndEpoch(NamedTuple):
    """An offset and the leader epoch under which it was written."""

    offset: int
    epoch: int


class Endpoint(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{bracketed(self.host)}:{self.port}"


def bracketed(host: str) -> str:
    """The host as it stands before a port: an IPv6 address in brackets (RFC 3986, 3.2.2)."""
    return f"[{host}]" if ":" in host else host


class IsolationLevel(IntEnum):
    """What a reader may see (Kafka's ``isolation.level``)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class FileSlice(NamedTuple):
    """Bytes of an open file, to be sent without being read: ``size`` bytes from ``position``.

    ``file`` keeps its descriptor open for as long as the slice lives, even when the name is gone from the disk.
    """

    file: HasFileno
    position: int
    size: int

    def read(self) -> bytes:
        """The bytes; fewer where the file ends before."""
        return os.pread(self.file.fileno(), self.size, self.position)


class HasFileno(Protocol):
    """Anything that owns a file descriptor."""

    def fileno(self) -> int: ...


Chunk = bytes | bytearray | memoryview | FileSlice
"""A piece of a response: bytes, or a slice of a file."""


def chunk_size(chunk: Chunk) -> int:
    """How many bytes the chunk stands for."""
    return chunk.size if isinstance(chunk, FileSlice) else len(chunk)


def uuid_to_text(value: UUID) -> str:
    """Kafka's text form of a UUID: URL-safe base64 of its 16 bytes without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def uuid_from_text(text: str) -> UUID:
    """Raises ValueError if it is not one."""
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
