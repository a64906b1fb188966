"""What members of the protocol type ``consumer`` tell each other, as far as the coordinator reads or writes it.

A member tells as much as a request holds, and a group is looked into in one turn of the loop: no more than
``MOST_ELEMENTS`` topics and partitions are read of one group at a time.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparklog.errors import ProtocolError
from sparklog.group.classic.group import Group
from sparklog.protocol.subscription import (
    HIGHEST_VERSION,
    PROTOCOL_TYPE,
    Assignment,
    encode_assignment,
    read_partitions,
    read_version,
    reader_of,
)
from sparklog.protocol.wire import Budget
from sparklog.structs import TopicPartition

MOST_ELEMENTS = 50_000
"""To read so many takes some tens of milliseconds."""


def is_subscribed(group: Group, topic: str) -> bool:
    """Whether the group's members read the topic; they may, where that is not known."""
    return group.subscribed is None or topic in group.subscribed


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """What all members of the generation read; None for other protocol types, and for what cannot be parsed or is too
    much to read.
    """
    if group.protocol_type != PROTOCOL_TYPE:
        return None
    budget = Budget(MOST_ELEMENTS)
    try:
        told = (each.metadata(group.protocol) for each in group.members.values())
        return frozenset(topic for metadata in told for topic in _topics(metadata, budget))
    except ProtocolError:
        return None


def _topics(metadata: bytes, budget: Budget) -> list[str]:
    """What stands behind the topics is not looked at."""
    reader = reader_of(metadata, budget)
    read_version(reader)
    return [reader.string() for _ in range(reader.array_length())]


def read_assignment(data: bytes, budget: Budget | None = None) -> frozenset[TopicPartition]:
    """What a leader gave a member, its user data not looked at; nothing before it has given any.

    Raises ProtocolError.
    """
    if not data:
        return frozenset()
    reader = reader_of(data, budget)
    read_version(reader)
    return frozenset(read_partitions(reader))


def write_assignment(version: int, partitions: Iterable[TopicPartition]) -> bytes:
    """As a leader that knows ``version`` would give it to a member."""
    return encode_assignment(Assignment(tuple(sorted(partitions))), min(version, HIGHEST_VERSION))
