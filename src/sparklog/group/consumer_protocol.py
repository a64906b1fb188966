"""What members of the protocol type ``consumer`` tell each other, as far as the coordinator reads or writes it."""

from __future__ import annotations

from collections.abc import Iterable

from sparklog.errors import ProtocolError
from sparklog.group.state import Group
from sparklog.protocol.consumer_protocol import (
    HIGHEST_VERSION,
    PROTOCOL_TYPE,
    Assignment,
    encode_assignment,
    read_partitions,
    read_version,
)
from sparklog.protocol.wire import WireReader
from sparklog.structs import TopicPartition


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
    """What stands behind the topics is not looked at."""
    reader = WireReader(memoryview(metadata))
    read_version(reader)
    return [reader.string() for _ in range(reader.array_length())]


def read_assignment(data: bytes) -> frozenset[TopicPartition]:
    """What a leader gave a member, its user data not looked at; nothing before it has given any.

    Raises ProtocolError.
    """
    if not data:
        return frozenset()
    reader = WireReader(memoryview(data))
    read_version(reader)
    return frozenset(read_partitions(reader))


def write_assignment(version: int, partitions: Iterable[TopicPartition]) -> bytes:
    """As a leader that knows ``version`` would give it to a member."""
    return encode_assignment(Assignment(tuple(sorted(partitions))), min(version, HIGHEST_VERSION))
