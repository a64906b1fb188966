"""What the members of a classic consumer group tell each other through the coordinator: subscriptions and assignments.

Kafka 3.9, ``ConsumerProtocolSubscription.json`` and ``ConsumerProtocolAssignment.json``, versions 0 to 3; fixed-width
lengths throughout. A later version only appends fields, so a newer one than 3 is read as 3::

    subscription   version int16, topics [string], user data bytes?,
                   from 1: owned [topic string, partitions [int32]], from 2: generation int32, from 3: rack string?
    assignment     version int16, assigned [topic string, partitions [int32]], user data bytes?
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparklog.errors import RemoteProtocolError
from sparklog.protocol.wire import BoundedReader, Budget, WireReader, WireWriter
from sparklog.structs import TopicPartition, by_topic

PROTOCOL_TYPE = "consumer"
HIGHEST_VERSION = 3
NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants, and what it has at the moment: ``owned`` counts for the generation named."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    rack: str | None = None
    version: int = HIGHEST_VERSION
    """The version it came in, which says what the member could tell."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the leader gives a member."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription, version: int = HIGHEST_VERSION) -> bytes:
    """The member's metadata in a JoinGroup request."""
    writer = WireWriter()
    writer.int16(version)
    writer.array_length(len(subscription.topics))
    for topic in subscription.topics:
        writer.string(topic)
    _write_bytes(writer, subscription.user_data)
    if version >= 1:
        write_partitions(writer, subscription.owned)
    if version >= 2:
        writer.int32(subscription.generation)
    if version >= 3:
        writer.string(subscription.rack)
    return writer.joined()


def decode_subscription(data: bytes | memoryview, budget: Budget | None = None) -> Subscription:
    """Raises RemoteProtocolError if it is malformed, or longer than the ``budget`` allows."""
    reader = reader_of(data, budget)
    version = read_version(reader)
    topics = tuple(reader.string() for _ in range(reader.array_length()))
    user_data = _bytes_or_none(reader)
    owned = read_partitions(reader) if version >= 1 else ()
    generation = reader.int32() if version >= 2 else NO_GENERATION
    rack = reader.string_or_none() if version >= 3 else None
    return Subscription(topics, user_data, owned, generation, rack, version)


def reader_of(data: bytes | memoryview, budget: Budget | None) -> WireReader:
    """Of what members tell each other; without a budget it may be of any length."""
    return WireReader(memoryview(data)) if budget is None else BoundedReader(memoryview(data), budget)


def encode_assignment(assignment: Assignment, version: int = HIGHEST_VERSION) -> bytes:
    """One member's share in the leader's SyncGroup request."""
    writer = WireWriter()
    writer.int16(version)
    write_partitions(writer, assignment.partitions)
    _write_bytes(writer, assignment.user_data)
    return writer.joined()


def decode_assignment(data: bytes | memoryview) -> Assignment:
    """Raises RemoteProtocolError if it is malformed; no bytes at all are an empty assignment."""
    if not data:
        return Assignment(())
    reader = WireReader(memoryview(data))
    read_version(reader)
    return Assignment(read_partitions(reader), _bytes_or_none(reader))


def write_partitions(writer: WireWriter, partitions: Iterable[TopicPartition]) -> None:
    """Partitions under their topics, in the order given."""
    topics = by_topic(partitions)
    writer.array_length(len(topics))
    for topic, numbers in topics.items():
        writer.string(topic)
        writer.array_length(len(numbers))
        for number in numbers:
            writer.int32(number)


def read_partitions(reader: WireReader) -> tuple[TopicPartition, ...]:
    """What ``write_partitions`` wrote."""
    found: list[TopicPartition] = []
    for _ in range(reader.array_length()):
        topic = reader.string()
        found += [TopicPartition(topic, reader.int32()) for _ in range(reader.array_length())]
    return tuple(found)


def read_version(reader: WireReader) -> int:
    """The version that a subscription or an assignment is to be read as. Raises RemoteProtocolError."""
    version = reader.int16()
    if version < 0:
        raise RemoteProtocolError(f"a consumer's metadata has the version {version}")
    return min(version, HIGHEST_VERSION)


def _write_bytes(writer: WireWriter, data: bytes | None) -> None:
    writer.int32(-1 if data is None else len(data))
    writer.raw(data or b"")


def _bytes_or_none(reader: WireReader) -> bytes | None:
    data = reader.bytes_or_none()
    return None if data is None else bytes(data)
