"""The little that the coordinator reads of what members tell each other: the topics that a consumer subscribes to.

Members of the protocol type ``consumer`` send as their metadata, in whatever version::

    version int16, topics array (int32 count) of string (int16 length), ...

Version 0 is the beginning of every later one, so no more is read (Kafka 3.9, ``GroupMetadata``).
"""

from __future__ import annotations

from sparklog.errors import ProtocolError
from sparklog.group.state import Group
from sparklog.protocol.wire import WireReader

PROTOCOL_TYPE = "consumer"


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
    if reader.int16() < 0:
        raise ProtocolError("a negative version")
    return [reader.string() for _ in range(reader.array_length())]
