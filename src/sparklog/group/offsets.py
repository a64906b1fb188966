"""What ``__consumer_offsets`` holds: committed offsets and group metadata, as records keyed by what they describe.

Every key and value opens with a version (int16). Kafka 3.9's formats (``OffsetCommitKey``, ``OffsetCommitValue``,
``GroupMetadataKey``, ``GroupMetadataValue``); strings have an int16 length, bytes and arrays an int32 one, up to value
version 3; value version 4 is the flexible encoding, read but not written, as in Kafka 3.9::

    key 0, 1    group string, topic string, partition int32                                   a committed offset
      value     offset int64, [3+: leader epoch int32], metadata string, commit time int64, [1: expiry time int64]
    key 2       group string                                                                  a group
      value     protocol type string, generation int32, protocol string?, leader string?, [2+: state time int64],
                members: id string, [3+: instance id string?], client id string, client host string,
                         [1+: rebalance timeout int32], session timeout int32, subscription bytes, assignment bytes

A null value (tombstone) takes back what its key held. Keys of other versions are other parts' business (the newer
group protocols); they read as None.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from sparklog.errors import CorruptRecord, ProtocolError
from sparklog.group.classic.group import NO_TIMESTAMP, CommittedOffset, Group, GroupState, Member, Protocol
from sparklog.group.classic.subscriptions import subscribed_topics
from sparklog.protocol.slices import Steps
from sparklog.protocol.wire import WireReader, WireWriter
from sparklog.record.builder import RecordBatchBuilder
from sparklog.record.control import ProducerIdAndEpoch
from sparklog.record.partitioning import coordinator_partition
from sparklog.structs import TopicPartition

_OFFSET_KEY_VERSION = 1
_GROUP_KEY_VERSION = 2
_OFFSET_VALUE_VERSION = 3
_EXPIRING_OFFSET_VALUE_VERSION = 1
_GROUP_VALUE_VERSION = 3
_FIRST_FLEXIBLE_VERSION = 4
_NO_LEADER_EPOCH = -1
_TOMBSTONES_SIZE = 1 << 18
"""Bytes of keys in one batch of tombstones: a group with very many offsets must not need a batch that no log takes."""

Record = tuple[bytes, bytes | None]
"""Key and value."""


class OffsetKey(NamedTuple):
    """The key of a committed offset."""

    group_id: str
    tp: TopicPartition


class GroupKey(NamedTuple):
    """The key of a group's metadata."""

    group_id: str


def partition_for(group_id: str, count: int) -> int:
    """The partition of ``__consumer_offsets`` that holds the group."""
    return coordinator_partition(group_id, count)


def build_batch(records: Iterable[Record], now_ms: int, producer: ProducerIdAndEpoch | None = None) -> bytes:
    """A few records as one batch, part of ``producer``'s transaction if one is given."""
    builder = _builder(producer)
    for key, value in records:
        builder.append(now_ms, key, value)
    return builder.build()


def building(records: Iterable[Record], now_ms: int, producer: ProducerIdAndEpoch | None = None) -> Steps[bytes]:
    """``build_batch`` of any number of records, a record a step."""
    builder = _builder(producer)
    for key, value in records:
        builder.append(now_ms, key, value)
        yield
    return builder.build()


def _builder(producer: ProducerIdAndEpoch | None) -> RecordBatchBuilder:
    if producer is None:
        return RecordBatchBuilder()
    return RecordBatchBuilder(producer_id=producer.producer_id, producer_epoch=producer.epoch, is_transactional=True)


def build_tombstones(keys: Iterable[bytes], now_ms: int) -> list[bytes]:
    """Batches that take back what a few keys hold, each small enough for any log."""
    return [build_batch(records, now_ms) for records in _tombstones(keys)]


def building_tombstones(keys: Iterable[bytes], now_ms: int) -> Steps[list[bytes]]:
    """Likewise for any number of keys, a key a step."""
    batches: list[bytes] = []
    for records in _tombstones(keys):
        batches.append((yield from building(records, now_ms)))
    return batches


def _tombstones(keys: Iterable[bytes]) -> Iterator[list[Record]]:
    """Of a batch each."""
    some: list[Record] = []
    size = 0
    for key in keys:
        if some and size + len(key) > _TOMBSTONES_SIZE:
            yield some
            some, size = [], 0
        some.append((key, None))
        size += len(key)
    if some:
        yield some


def offset_key(group_id: str, tp: TopicPartition) -> bytes:
    key = WireWriter()
    key.int16(_OFFSET_KEY_VERSION)
    key.string(group_id)
    key.string(tp.topic)
    key.int32(tp.partition)
    return key.joined()


def group_key(group_id: str) -> bytes:
    key = WireWriter()
    key.int16(_GROUP_KEY_VERSION)
    key.string(group_id)
    return key.joined()


def offset_record(group_id: str, tp: TopicPartition, committed: CommittedOffset) -> tuple[bytes, bytes]:
    """Key and value of a committed offset; one that says when it expires has no room for its leader epoch."""
    expires = committed.expire_timestamp_ms != NO_TIMESTAMP
    value = WireWriter()
    value.int16(_EXPIRING_OFFSET_VALUE_VERSION if expires else _OFFSET_VALUE_VERSION)
    value.int64(committed.offset)
    if not expires:
        value.int32(committed.leader_epoch)
    value.string(committed.metadata)
    value.int64(committed.commit_timestamp_ms)
    if expires:
        value.int64(committed.expire_timestamp_ms)
    return offset_key(group_id, tp), value.joined()


def group_record(group: Group, assignments: Mapping[str, bytes], generation: int | None = None) -> tuple[bytes, bytes]:
    """Key and value of the group's metadata: its members as they are, with ``assignments`` in place of theirs, and
    ``generation``, if one is given, in place of its own.
    """
    value = WireWriter()
    value.int16(_GROUP_VALUE_VERSION)
    value.string(group.protocol_type or "")
    value.int32(group.generation if generation is None else generation)
    value.string(group.protocol)
    value.string(group.leader)
    value.int64(group.state_timestamp_ms)
    value.array_length(len(group.members))
    for member in group.members.values():
        _write_member(value, member, group.protocol, assignments.get(member.member_id, b""))
    return group_key(group.group_id), value.joined()


def _write_member(value: WireWriter, member: Member, protocol: str | None, assignment: bytes) -> None:
    value.string(member.member_id)
    value.string(member.instance_id)
    value.string(member.client_id)
    value.string(member.client_host)
    value.int32(member.rebalance_timeout_ms)
    value.int32(member.session_timeout_ms)
    for data in (member.metadata(protocol), assignment):
        value.int32(len(data))
        value.raw(data)


def read_key(key: bytes) -> OffsetKey | GroupKey | None:
    """What a record describes; None for what the classic protocol does not know. Raises CorruptRecord."""
    reader = WireReader(memoryview(key))
    try:
        version = reader.int16()
        if 0 <= version <= _OFFSET_KEY_VERSION:
            return OffsetKey(reader.string(), TopicPartition(reader.string(), reader.int32()))
        return GroupKey(reader.string()) if version == _GROUP_KEY_VERSION else None
    except ProtocolError as error:
        raise CorruptRecord(f"key of a group record: {error}") from error


def read_offset(value: bytes) -> CommittedOffset:
    """A committed offset, of any version that Kafka has written. Raises CorruptRecord."""
    try:
        reader, version = _open_value(value)
        return CommittedOffset(
            offset=reader.int64(),
            leader_epoch=reader.int32() if version >= _OFFSET_VALUE_VERSION else _NO_LEADER_EPOCH,
            metadata=reader.string(),
            commit_timestamp_ms=reader.int64(),
            expire_timestamp_ms=reader.int64() if version == _EXPIRING_OFFSET_VALUE_VERSION else NO_TIMESTAMP,
        )
    except ProtocolError as error:
        raise CorruptRecord(f"committed offset: {error}") from error


def read_group(group_id: str, value: bytes) -> Group:
    """A group as it was when its last generation was stored: STABLE, or EMPTY without members. One that has members and
    no leader has yet to share out what nobody has (``migration.downgraded``). Raises CorruptRecord.
    """
    group = Group(group_id)
    try:
        reader, version = _open_value(value)
        group.protocol_type = reader.string() or None
        group.generation = reader.int32()
        group.protocol = reader.string_or_none()
        leader = reader.string_or_none()
        group.state_timestamp_ms = reader.int64() if version >= 2 else NO_TIMESTAMP
        for _ in range(reader.array_length()):
            group.add(_read_member(reader, version, group.protocol or ""))
    except ProtocolError as error:
        raise CorruptRecord(f"metadata of group {group_id}: {error}") from error
    if group.members:
        group.leader = leader if leader is None or leader in group.members else next(iter(group.members))
        group.state = GroupState.STABLE
    group.subscribed = subscribed_topics(group)
    return group


def _read_member(reader: WireReader, version: int, protocol: str) -> Member:
    member_id = reader.string()
    instance_id = reader.string_or_none() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else None
    session_timeout_ms = reader.int32()
    subscription, assignment = reader.bytes_or_none(), reader.bytes_or_none()
    reader.skip_tags()
    return Member(
        member_id,
        instance_id,
        client_id,
        client_host,
        session_timeout_ms,
        session_timeout_ms if rebalance_timeout_ms is None else rebalance_timeout_ms,
        (Protocol(protocol, bytes(subscription or b"")),),
        bytes(assignment or b""),
    )


def _open_value(value: bytes) -> tuple[WireReader, int]:
    reader = WireReader(memoryview(value))
    version = reader.int16()
    if not 0 <= version <= _FIRST_FLEXIBLE_VERSION:
        raise CorruptRecord(f"value of version {version}, known are 0 to {_FIRST_FLEXIBLE_VERSION}")
    reader.flexible = version >= _FIRST_FLEXIBLE_VERSION
    return reader, version
