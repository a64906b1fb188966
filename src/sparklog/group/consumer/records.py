"""What ``__consumer_offsets`` holds of a group of the consumer protocol: Kafka 3.9's records, keys 3 to 8.

Every key opens with its version, which says what it is about (strings with an int16 length); every value with version
0, in the flexible encoding (compact lengths, tagged fields)::

    key 3  group           the group's epoch           epoch int32
    key 4  group           the topics subscribed to    topics: id uuid, name string, partitions int32,
                                                               racks: partition int32, racks: string (read, not written)
    key 5  group, member   what a member told          instance id?, rack?, client id, client host, topics: string,
                                                       regex?, rebalance timeout int32, assignor?, tag 0: of the classic
                                                       protocol (session timeout int32, protocols: name, metadata bytes)
    key 6  group           the target's epoch          epoch int32
    key 7  group, member   a member's target           topics: id uuid, partitions: int32
    key 8  group, member   how far a member is         epoch int32, previous epoch int32, state int8,
                                                       assigned and revoking, each as in key 7

``changes`` gives what lies between two states of a group, in the order in which Kafka's own replay can take it: what is
taken back, members before what belongs to them, the group's own tombstone last. A step of it is a member that changed,
or ``RUN`` elements of a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import IntEnum
from typing import NamedTuple, TypeVar

from sparklog.errors import CorruptRecord, ProtocolError
from sparklog.group.classic.group import Protocol
from sparklog.group.consumer.assignment import NONE, RUN, Partitions, TopicIdPartition, by_topic
from sparklog.group.consumer.group import ConsumerGroup
from sparklog.group.consumer.member import ClassicSide, ConsumerMember, MemberState
from sparklog.group.consumer.topics import TopicDescription
from sparklog.protocol.slices import Steps
from sparklog.protocol.wire import WireReader, WireWriter

T = TypeVar("T")
_CLASSIC_TAG = 0
_PRESENT = 1

Record = tuple[bytes, bytes | None]
"""Key and value."""


class Subject(IntEnum):
    """What a key is about: its version."""

    EPOCH = 3
    TOPICS = 4
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    PROGRESS = 8


_OF_MEMBERS = (Subject.MEMBER, Subject.TARGET, Subject.PROGRESS)


class ConsumerKey(NamedTuple):
    """A record's key; ``member_id`` is None for what concerns the whole group."""

    subject: Subject
    group_id: str
    member_id: str | None = None


def read_consumer_key(key: bytes) -> ConsumerKey | None:
    """None for a key of other kinds. Raises CorruptRecord."""
    reader = WireReader(memoryview(key))
    try:
        version = reader.int16()
        if not Subject.EPOCH <= version <= Subject.PROGRESS:
            return None
        subject = Subject(version)
        return ConsumerKey(subject, reader.string(), reader.string() if subject in _OF_MEMBERS else None)
    except ProtocolError as error:
        raise CorruptRecord(f"key of a consumer group record: {error}") from error


def consumer_key(subject: Subject, group_id: str, member_id: str | None = None) -> bytes:
    key = WireWriter()
    key.int16(subject)
    key.string(group_id)
    if member_id is not None:
        key.string(member_id)
    return key.joined()


def changes(before: ConsumerGroup | None, after: ConsumerGroup | None) -> Steps[list[Record]]:
    """What the log must take in when ``after`` takes the place of ``before``; None is a group that is not there."""
    records: list[Record] = []
    if after is None:
        for each in tombstones(before) if before else ():
            records.append(each)
            yield
        return records
    for each in _removals(before, after):
        records.append(each)
        yield
    for change in _additions(before or ConsumerGroup(after.group_id), after, is_new=not before):
        records.append((change.key, (yield from change.value)))
        yield
    return records


def _removals(before: ConsumerGroup | None, after: ConsumerGroup) -> Iterator[Record]:
    gone = [each for each in before.members if each not in after.members] if before else []
    for subject in (Subject.PROGRESS, Subject.TARGET, Subject.MEMBER):
        yield from ((consumer_key(subject, after.group_id, each), None) for each in gone)


class _Change(NamedTuple):
    key: bytes
    value: Steps[bytes]


def _additions(before: ConsumerGroup, after: ConsumerGroup, *, is_new: bool) -> Iterator[_Change]:
    group_id = after.group_id
    changed = [(before.members.get(each.member_id), each) for each in after.members.values()]
    changed = [(old, member) for old, member in changed if old is not member]
    for old, member in changed:
        if old is None or old.details != member.details:
            yield _Change(consumer_key(Subject.MEMBER, group_id, member.member_id), _member_value(member))
    if before.topics is not after.topics and before.topics != after.topics:
        yield _Change(consumer_key(Subject.TOPICS, group_id), _value(_write_topics, after.topics))
    if is_new or before.epoch != after.epoch:
        yield _Change(consumer_key(Subject.EPOCH, group_id), _value(_write_epoch, after.epoch))
    for member_id in after.members:
        old_target, target = before.target.get(member_id), after.target.get(member_id)
        if old_target is not target and old_target != target:
            yield _Change(consumer_key(Subject.TARGET, group_id, member_id), _value(_write_partitions, target or NONE))
    if is_new or before.assignment_epoch != after.assignment_epoch:
        yield _Change(consumer_key(Subject.TARGET_EPOCH, group_id), _value(_write_epoch, after.assignment_epoch))
    for old, member in changed:
        if old is None or old.progress != member.progress:
            yield _Change(consumer_key(Subject.PROGRESS, group_id, member.member_id), _value(_write_progress, member))


def tombstones(group: ConsumerGroup) -> Iterator[Record]:
    """What takes back all that the log has of the group."""
    group_id = group.group_id
    for subject in (Subject.PROGRESS, Subject.TARGET):
        yield from ((consumer_key(subject, group_id, each), None) for each in group.members)
    yield consumer_key(Subject.TARGET_EPOCH, group_id), None
    yield from ((consumer_key(Subject.MEMBER, group_id, each), None) for each in group.members)
    yield consumer_key(Subject.TOPICS, group_id), None
    yield consumer_key(Subject.EPOCH, group_id), None


# Values.


def _value(write: Callable[[WireWriter, T], Steps[None]], content: T) -> Steps[bytes]:
    value = WireWriter(flexible=True)
    value.int16(0)
    yield from write(value, content)
    value.tags()
    return value.joined()


def _write_epoch(value: WireWriter, epoch: int) -> Steps[None]:
    value.int32(epoch)
    yield from ()


def _write_member(value: WireWriter, member: ConsumerMember) -> Steps[None]:
    value.string(member.instance_id)
    value.string(member.rack_id)
    value.string(member.client_id)
    value.string(member.client_host)
    value.array_length(len(member.topics))
    for count, name in enumerate(sorted(member.topics)):
        value.string(name)
        if count % RUN == RUN - 1:
            yield
    value.string(member.regex)
    value.int32(member.rebalance_timeout_ms)
    value.string(member.assignor)


def _member_value(member: ConsumerMember) -> Steps[bytes]:
    """As ``_value``; what is known of a member's classic side stands in a tagged field."""
    plain = yield from _value(_write_member, member)
    if member.classic is None:
        return plain
    classic = WireWriter(flexible=True)
    classic.int8(_PRESENT)
    classic.int32(member.classic.session_timeout_ms)
    classic.array_length(len(member.classic.protocols))
    for name, metadata in member.classic.protocols:
        classic.string(name)
        classic.uvarint(len(metadata) + 1)
        classic.raw(metadata)
        classic.tags()
    classic.tags()
    content = classic.joined()
    tags = WireWriter(flexible=True)
    for number in (1, _CLASSIC_TAG, len(content)):
        tags.uvarint(number)
    tags.raw(content)
    return plain[:-1] + tags.joined()  # in place of the byte that says that there are none


def _write_topics(value: WireWriter, topics: Mapping[str, TopicDescription]) -> Steps[None]:
    value.array_length(len(topics))
    for count, name in enumerate(sorted(topics)):
        each = topics[name]
        value.uuid(each.topic_id)
        value.string(each.name)
        value.int32(each.partition_count)
        value.array_length(0)
        value.tags()
        if count % RUN == RUN - 1:
            yield


def _write_partitions(value: WireWriter, partitions: Partitions) -> Steps[None]:
    topics = yield from by_topic(partitions)
    value.array_length(len(topics))
    written = 0
    for topic_id, numbers in topics.items():
        value.uuid(topic_id)
        value.array_length(len(numbers))
        for number in numbers:
            value.int32(number)
            written += 1
            if written % RUN == 0:
                yield
        value.tags()


def _write_progress(value: WireWriter, member: ConsumerMember) -> Steps[None]:
    value.int32(member.epoch)
    value.int32(member.previous_epoch)
    value.int8(member.state)
    yield from _write_partitions(value, member.assigned)
    yield from _write_partitions(value, member.revoking)


def _open(value: bytes) -> WireReader:
    reader = WireReader(memoryview(value))
    version = reader.int16()
    if version != 0:
        raise CorruptRecord(f"consumer group value of version {version}, known is 0")
    reader.flexible = True
    return reader


def read_consumer_group(group_id: str, values: Mapping[ConsumerKey, bytes]) -> ConsumerGroup:
    """The group that the last values of its keys describe. Raises CorruptRecord.

    What belongs to no member is left out; so is a member with a partition that an earlier one holds (no log of ours
    says so): it will have to join anew.
    """
    group = ConsumerGroup(group_id)
    members: dict[str, ConsumerMember] = {}
    try:
        for key, value in sorted(values.items(), key=lambda each: each[0].subject):
            if key.member_id is None:
                _read_of_group(group, key.subject, _open(value))
            else:
                _read_of_member(group, members, key.subject, key.member_id, _open(value))
    except (ProtocolError, ValueError) as error:
        raise CorruptRecord(f"consumer group {group_id}: {error}") from error
    for member_id, member in members.items():
        if member.held.isdisjoint(group.owners):
            group.put(member)
        else:
            group.target.pop(member_id, None)
    return group


def _read_of_group(group: ConsumerGroup, subject: Subject, reader: WireReader) -> None:
    if subject is Subject.EPOCH:
        group.epoch = reader.int32()
    elif subject is Subject.TOPICS:
        group.topics = _read_topics(reader)
    else:
        group.assignment_epoch = reader.int32()


def _read_of_member(
    group: ConsumerGroup, members: dict[str, ConsumerMember], subject: Subject, member_id: str, reader: WireReader
) -> None:
    if subject is Subject.MEMBER:
        members[member_id] = _read_member(reader, member_id)
    elif member_id not in members:
        return
    elif subject is Subject.TARGET:
        group.target[member_id] = _read_partitions(reader)
    else:
        members[member_id] = _read_progress(reader, members[member_id])


def _read_member(reader: WireReader, member_id: str) -> ConsumerMember:
    member = ConsumerMember(
        member_id,
        instance_id=reader.string_or_none(),
        rack_id=reader.string_or_none(),
        client_id=reader.string(),
        client_host=reader.string(),
        topics=frozenset([reader.string() for _ in range(reader.array_length())]),
        regex=reader.string_or_none() or None,
        rebalance_timeout_ms=reader.int32(),
        assignor=reader.string_or_none(),
    )
    for _ in range(reader.uvarint()):
        tag, size = reader.uvarint(), reader.uvarint()
        content = reader.take(size)
        if tag == _CLASSIC_TAG:
            member = replace(member, classic=_read_classic(WireReader(content, flexible=True)))
    return member


def _read_classic(reader: WireReader) -> ClassicSide | None:
    if reader.int8() != _PRESENT:
        return None
    session_timeout_ms = reader.int32()
    protocols = []
    for _ in range(reader.array_length()):
        protocols.append(Protocol(reader.string(), bytes(reader.bytes_or_none() or b"")))
        reader.skip_tags()
    return ClassicSide(session_timeout_ms, tuple(protocols))


def _read_topics(reader: WireReader) -> dict[str, TopicDescription]:
    found = {}
    for _ in range(reader.array_length()):
        topic = TopicDescription(reader.uuid(), reader.string(), reader.int32())
        for _ in range(reader.array_length()):
            reader.int32()
            for _ in range(reader.array_length()):
                reader.string()
            reader.skip_tags()
        reader.skip_tags()
        found[topic.name] = topic
    return found


def _read_partitions(reader: WireReader) -> Partitions:
    found: list[TopicIdPartition] = []
    for _ in range(reader.array_length()):
        topic_id = reader.uuid()
        found += [TopicIdPartition(topic_id, reader.int32()) for _ in range(reader.array_length())]
        reader.skip_tags()
    return frozenset(found)


def _read_progress(reader: WireReader, member: ConsumerMember) -> ConsumerMember:
    return replace(
        member,
        epoch=reader.int32(),
        previous_epoch=reader.int32(),
        state=MemberState(reader.int8()),
        assigned=_read_partitions(reader),
        revoking=_read_partitions(reader),
    )
