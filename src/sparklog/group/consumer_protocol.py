"""What members of the protocol type ``consumer`` tell each other, as far as the coordinator reads or writes it.

They send as their metadata, and get as their assignment, in whatever version (Kafka 3.9, ``ConsumerProtocol``)::

    subscription  version int16, topics: string, user data bytes?, [1+: owned: topic string, partitions: int32],
                  [2+: generation int32], [3+: rack string?]
    assignment    version int16, topics: topic string, partitions: int32, user data bytes?

Arrays have an int32 count, strings an int16 length, bytes an int32 one. Version 0 is the beginning of every later one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sparklog.errors import ProtocolError
from sparklog.group.state import Group
from sparklog.protocol.wire import WireReader, WireWriter
from sparklog.structs import FileSlice, TopicPartition

PROTOCOL_TYPE = "consumer"
_LATEST_VERSION = 3


class Subscription(NamedTuple):
    """``owned`` is what the member says that it holds on to; empty where its version cannot say."""

    version: int
    topics: frozenset[str]
    owned: frozenset[TopicPartition]
    rack_id: str | None


def is_subscribed(group: Group, topic: str) -> bool:
    """Whether the group's members read the topic; they may, where that is not known."""
    return group.subscribed is None or topic in group.subscribed


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """What all members of the generation read; None for other protocol types, and for what cannot be parsed."""
    if group.protocol_type != PROTOCOL_TYPE:
        return None
    try:
        return frozenset(topic for each in group.members.values() for topic in _topics(each.metadata(group.protocol)))
    except ProtocolError:
        return None


def _topics(metadata: bytes) -> list[str]:
    reader = WireReader(memoryview(metadata))
    _version(reader)
    return [reader.string() for _ in range(reader.array_length())]


def _version(reader: WireReader) -> int:
    version = reader.int16()
    if version < 0:
        raise ProtocolError("a negative version")
    return version


def read_subscription(metadata: bytes) -> Subscription:
    """Raises ProtocolError."""
    reader = WireReader(memoryview(metadata))
    version = _version(reader)
    topics = frozenset([reader.string() for _ in range(reader.array_length())])
    reader.bytes_or_none()
    owned = _read_partitions(reader) if version >= 1 else frozenset()
    if version >= 2:
        reader.int32()
    return Subscription(version, topics, owned, reader.string_or_none() if version >= 3 else None)


def read_assignment(data: bytes) -> frozenset[TopicPartition]:
    """What a leader gave a member; nothing before it has given anything. Raises ProtocolError."""
    if not data:
        return frozenset()
    reader = WireReader(memoryview(data))
    _version(reader)
    return _read_partitions(reader)


def _read_partitions(reader: WireReader) -> frozenset[TopicPartition]:
    found: list[TopicPartition] = []
    for _ in range(reader.array_length()):
        topic = reader.string()
        found += [TopicPartition(topic, reader.int32()) for _ in range(reader.array_length())]
    return frozenset(found)


def write_assignment(version: int, partitions: Iterable[TopicPartition]) -> bytes:
    """As a leader that knows ``version`` would give it to a member."""
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    data = WireWriter()
    data.int16(min(version, _LATEST_VERSION))
    data.array_length(len(topics))
    for topic, numbers in topics.items():
        data.string(topic)
        data.array_length(len(numbers))
        for number in numbers:
            data.int32(number)
    data.int32(-1)
    return b"".join(chunk for chunk in data.chunks() if not isinstance(chunk, FileSlice))
