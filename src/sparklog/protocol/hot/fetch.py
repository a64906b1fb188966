"""Fetch (API 1), versions 0 to 17. Schema: ``FetchRequest.json`` and ``FetchResponse.json`` of Apache Kafka 3.9.

Versions 0 to 3 know no isolation level, and their records are message sets.

Records are chunks on the way out (slices of segment files, never read) and views of the response on the way in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple, TypeVar
from uuid import UUID

from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import is_flexible
from sparklog.protocol.slices import SLICE, Steps, checked_count, checked_topic
from sparklog.protocol.wire import ZERO_UUID, WireReader, WireWriter
from sparklog.structs import Chunk, Endpoint, IsolationLevel, OffsetAndEpoch

MIN_VERSION, MAX_VERSION = 0, 17
FIRST_VERSION_OF_BATCHES = 4
FIRST_VERSION_WITH_LIMIT = 3
"""From this version on ``max_bytes`` is said for all partitions together."""
_LIMITS = Struct(">iiib")
_OLD_LIMITS = Struct(">ii")
_UNLIMITED = 0x7FFFFFFF
_FETCHED = Struct(">ihqq")
_OLD_FETCHED = Struct(">ihq")
_REPLICA_STATE = Struct(">iqb")
_EPOCH_END = Struct(">iqb")
_SESSION_ID = Struct(">i")
_ABORTED = Struct(">qq")
_ABORTED_FLEXIBLE = Struct(">qqx")
"""With no tagged fields."""
TOPIC_ID_VERSION = 13
"""From this version on topics are named by id alone."""
DIVERGING_VERSION = 12
"""From this version on an answer may tell a follower where its log has another history."""
_LEADER_HINT_VERSION = 16


class FetchPartition(NamedTuple):
    """What is asked of one partition. The topic goes by name or by id, as the version has it."""

    topic: str
    topic_id: UUID
    partition: int
    offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


class ForgottenPartition(NamedTuple):
    """What a fetch session is to leave out from now on; the topic by name or by id, as the version has it."""

    topic: str
    topic_id: UUID
    partition: int


@dataclass(slots=True)
class FetchRequest:
    """One fetch; ``max_wait_ms`` and ``min_bytes`` make it a long poll, ``session_epoch`` a part of a session."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partitions: list[FetchPartition]
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    replica_id: int = -1
    """A follower's broker id; -1 of a consumer."""
    session_id: int = 0
    session_epoch: int = -1
    rack_id: str = ""
    forgotten: list[ForgottenPartition] = field(default_factory=list)
    replica_epoch: int = -1
    """Of the follower's registration, where it says so (version 15)."""


class LeaderHint(NamedTuple):
    """Where a partition is led that was asked for at another broker."""

    broker_id: int
    epoch: int
    endpoint: Endpoint
    rack: str | None = None


@dataclass(slots=True)
class FetchedPartition:
    """What one partition gave. ``records`` are chunks when sent, one view when received."""

    topic: str
    topic_id: UUID
    partition: int
    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: list[tuple[int, int]] | None = None
    records: list[Chunk] = field(default_factory=list)
    leader: LeaderHint | None = None
    """Told from version 16 on; not read when received."""
    diverging: OffsetAndEpoch | None = None
    """To a follower, from version 12 on: the last epoch that its log may share with this one, and its end here."""
    preferred_read_replica: int = -1
    """To a consumer, from version 11 on: the broker that it is to ask instead; -1 for none."""


def decode_request(body: memoryview, version: int) -> FetchRequest:
    """Raises RemoteProtocolError if the body is malformed, or names more than a request may."""
    reader = WireReader(body, flexible=is_flexible(ApiKey.FETCH, version))
    request = _read_head(reader, version)
    for _ in range(checked_count(ApiKey.FETCH, 0, reader.array_length())):
        topic, topic_id = _read_topic_name(reader, version)
        for _ in range(checked_count(ApiKey.FETCH, len(request.partitions), reader.array_length())):
            request.partitions.append(_read_asked(reader, topic, topic_id, version))
        reader.skip_tags()
    if version >= 7:
        for _ in range(checked_count(ApiKey.FETCH, 0, reader.array_length())):
            topic, topic_id = _read_topic_name(reader, version)
            for _ in range(checked_count(ApiKey.FETCH, len(request.forgotten), reader.array_length())):
                request.forgotten.append(ForgottenPartition(topic, topic_id, reader.int32()))
            reader.skip_tags()
    _read_end(reader, version, request)
    return request


def decoding_request(body: memoryview, version: int) -> Steps[FetchRequest]:
    """``decode_request`` in steps."""
    reader = WireReader(body, flexible=is_flexible(ApiKey.FETCH, version))
    request = _read_head(reader, version)
    for _ in range(checked_count(ApiKey.FETCH, 0, reader.array_length())):
        topic, topic_id = _read_topic_name(reader, version)
        for _ in range(checked_count(ApiKey.FETCH, len(request.partitions), reader.array_length())):
            request.partitions.append(_read_asked(reader, topic, topic_id, version))
            if len(request.partitions) % SLICE == 0:
                yield
        reader.skip_tags()
        yield
    if version >= 7:
        for _ in range(checked_count(ApiKey.FETCH, 0, reader.array_length())):
            topic, topic_id = _read_topic_name(reader, version)
            for _ in range(checked_count(ApiKey.FETCH, len(request.forgotten), reader.array_length())):
                request.forgotten.append(ForgottenPartition(topic, topic_id, reader.int32()))
                if len(request.forgotten) % SLICE == 0:
                    yield
            reader.skip_tags()
            yield
    _read_end(reader, version, request)
    return request


def _read_head(reader: WireReader, version: int) -> FetchRequest:
    replica_id = reader.int32() if version <= 14 else -1
    if version < FIRST_VERSION_OF_BATCHES:
        max_wait_ms, min_bytes = reader.numbers(_OLD_LIMITS)
        max_bytes = reader.int32() if version >= FIRST_VERSION_WITH_LIMIT else _UNLIMITED
        return FetchRequest(max_wait_ms, min_bytes, max_bytes, [], replica_id=replica_id)
    max_wait_ms, min_bytes, max_bytes, isolated = reader.numbers(_LIMITS)
    isolation = IsolationLevel.READ_COMMITTED if isolated else IsolationLevel.READ_UNCOMMITTED
    session_id, session_epoch = (reader.int32(), reader.int32()) if version >= 7 else (0, -1)
    return FetchRequest(max_wait_ms, min_bytes, max_bytes, [], isolation, replica_id, session_id, session_epoch)


def _read_end(reader: WireReader, version: int, request: FetchRequest) -> None:
    if version >= 11:
        request.rack_id = reader.string_or_none() or ""
    if version >= 15:
        request.replica_id, request.replica_epoch = _replica_state_tag(reader)
    else:
        reader.skip_tags()


def _read_topic_name(reader: WireReader, version: int) -> tuple[str, UUID]:
    if version >= TOPIC_ID_VERSION:
        return "", reader.uuid()
    return checked_topic(ApiKey.FETCH, reader.string()), ZERO_UUID


def _read_asked(reader: WireReader, topic: str, topic_id: UUID, version: int) -> FetchPartition:
    partition = reader.int32()
    leader_epoch = reader.int32() if version >= 9 else -1
    offset = reader.int64()
    last_epoch = reader.int32() if version >= 12 else -1
    log_start = reader.int64() if version >= 5 else -1
    max_bytes = reader.int32()
    reader.skip_tags()
    return FetchPartition(topic, topic_id, partition, offset, max_bytes, leader_epoch, last_epoch, log_start)


_REPLICA_STATE_TAG = 1


def _replica_state_tag(reader: WireReader) -> tuple[int, int]:
    """The follower's id and its broker epoch."""
    found, count = (-1, -1), reader.uvarint()
    reader.count_tags(count)
    for _ in range(count):
        tag, size = reader.uvarint(), reader.uvarint()
        value = WireReader(reader.take(size), flexible=True)
        if tag == _REPLICA_STATE_TAG:
            found = value.int32(), value.int64()
    return found


def encode_request(request: FetchRequest, version: int) -> list[Chunk]:
    """The request's body; each partition stands under its topic in the order given."""
    writer = WireWriter(flexible=is_flexible(ApiKey.FETCH, version))
    if version <= 14:
        writer.int32(request.replica_id)
    writer.int32(request.max_wait_ms)
    writer.int32(request.min_bytes)
    if version >= FIRST_VERSION_WITH_LIMIT:
        writer.int32(request.max_bytes)
    if version >= FIRST_VERSION_OF_BATCHES:
        writer.int8(request.isolation)
    if version >= 7:
        writer.int32(request.session_id)
        writer.int32(request.session_epoch)
    topics = _group(request.partitions, version)
    writer.array_length(len(topics))
    for name, partitions in topics.items():
        _write_topic_name(writer, name)
        writer.array_length(len(partitions))
        for asked in partitions:
            _write_asked(writer, asked, version)
        writer.tags()
    if version >= 7:
        _write_forgotten(writer, request.forgotten, version)
    if version >= 11:
        writer.string(request.rack_id)
    if version >= 15 and request.replica_id >= 0:
        writer.tagged({_REPLICA_STATE_TAG: _REPLICA_STATE.pack(request.replica_id, request.replica_epoch, 0)})
    else:
        writer.tags()
    return writer.chunks()


def _write_forgotten(writer: WireWriter, forgotten: list[ForgottenPartition], version: int) -> None:
    topics = _group(forgotten, version)
    writer.array_length(len(topics))
    for name, partitions in topics.items():
        _write_topic_name(writer, name)
        writer.array_length(len(partitions))
        for each in partitions:
            writer.int32(each.partition)
        writer.tags()


def _write_asked(writer: WireWriter, asked: FetchPartition, version: int) -> None:
    writer.int32(asked.partition)
    if version >= 9:
        writer.int32(asked.current_leader_epoch)
    writer.int64(asked.offset)
    if version >= 12:
        writer.int32(asked.last_fetched_epoch)
    if version >= 5:
        writer.int64(asked.log_start_offset)
    writer.int32(asked.max_bytes)
    writer.tags()


def encode_response(
    partitions: list[FetchedPartition],
    version: int,
    *,
    error: ErrorCode = ErrorCode.NONE,
    session_id: int = 0,
    throttle_ms: int = 0,
) -> list[Chunk]:
    """The response body; file slices among the records pass through unread."""
    writer = _response_head(version, error, session_id, throttle_ms)
    topics = _group(partitions, version)
    writer.array_length(len(topics))
    for name, fetched in topics.items():
        _write_topic_name(writer, name)
        writer.array_length(len(fetched))
        for partition in fetched:
            _write_fetched(writer, partition, version)
        writer.tags()
    _write_hints(writer, partitions, version)
    return writer.chunks()


def encoding_response(
    partitions: list[FetchedPartition],
    version: int,
    *,
    error: ErrorCode = ErrorCode.NONE,
    session_id: int = 0,
    throttle_ms: int = 0,
) -> Steps[list[Chunk]]:
    """``encode_response`` in steps."""
    writer = _response_head(version, error, session_id, throttle_ms)
    topics: dict[str | UUID, list[FetchedPartition]] = {}
    for start in range(0, len(partitions), SLICE):
        _group_into(topics, partitions[start : start + SLICE], version)
        yield
    writer.array_length(len(topics))
    for name, fetched in topics.items():
        _write_topic_name(writer, name)
        writer.array_length(len(fetched))
        for number, partition in enumerate(fetched):
            _write_fetched(writer, partition, version)
            if number % SLICE == SLICE - 1:
                yield
        writer.tags()
        yield
    _write_hints(writer, partitions, version)
    return writer.chunks()


def _response_head(version: int, error: ErrorCode, session_id: int, throttle_ms: int) -> WireWriter:
    writer = WireWriter(flexible=is_flexible(ApiKey.FETCH, version))
    if version >= 1:
        writer.int32(throttle_ms)
    if version >= 7:
        writer.int16(error)
        writer.int32(session_id)
    return writer


def _write_hints(writer: WireWriter, partitions: list[FetchedPartition], version: int) -> None:
    hints = [each.leader for each in partitions if each.leader] if version >= _LEADER_HINT_VERSION else None
    if hints:
        writer.tagged({_NODE_ENDPOINTS_TAG: encode_endpoints(hints)})
    else:
        writer.tags()


_DIVERGING_EPOCH_TAG = 0
_NODE_ENDPOINTS_TAG = 0
_CURRENT_LEADER_TAG = 1


def encode_endpoints(hints: Iterable[LeaderHint]) -> bytes:
    """The ``NodeEndpoints`` field of Fetch and Produce answers: each leader's address once."""
    leaders = {each.broker_id: each for each in hints}
    writer = WireWriter(flexible=True)
    writer.array_length(len(leaders))
    for each in leaders.values():
        writer.int32(each.broker_id)
        writer.string(each.endpoint.host)
        writer.int32(each.endpoint.port)
        writer.string(each.rack)
        writer.tags()
    return writer.data()


def encode_leader(hint: LeaderHint) -> bytes:
    """The ``CurrentLeader`` field of Fetch and Produce answers."""
    writer = WireWriter(flexible=True)
    writer.int32(hint.broker_id)
    writer.int32(hint.epoch)
    writer.tags()
    return writer.data()


def _write_topic_name(writer: WireWriter, name: str | UUID) -> None:
    if isinstance(name, UUID):
        writer.uuid(name)
    else:
        writer.string(name)


def _write_fetched(writer: WireWriter, partition: FetchedPartition, version: int) -> None:
    if version < FIRST_VERSION_OF_BATCHES:
        writer.raw(_OLD_FETCHED.pack(partition.partition, partition.error, partition.high_watermark))
        writer.records(partition.records)
        return
    ends = partition.high_watermark, partition.last_stable_offset
    writer.raw(_FETCHED.pack(partition.partition, partition.error, *ends))
    if version >= 5:
        writer.int64(partition.log_start_offset)
    writer.array_length(None if partition.aborted is None else len(partition.aborted))
    pack = (_ABORTED_FLEXIBLE if writer.flexible else _ABORTED).pack
    for producer_id, first_offset in partition.aborted or ():
        writer.raw(pack(producer_id, first_offset))
    if version >= 11:
        writer.int32(partition.preferred_read_replica)
    writer.records(partition.records)
    if partition.diverging is not None and version >= DIVERGING_VERSION:
        end = partition.diverging
        writer.tagged({_DIVERGING_EPOCH_TAG: _EPOCH_END.pack(end.epoch, end.offset, 0)})
    elif partition.leader is not None and version >= _LEADER_HINT_VERSION:
        writer.tagged({_CURRENT_LEADER_TAG: encode_leader(partition.leader)})
    else:
        writer.tags()


_T = TypeVar("_T", FetchPartition, FetchedPartition, ForgottenPartition)


def _group(partitions: list[_T], version: int) -> dict[str | UUID, list[_T]]:
    topics: dict[str | UUID, list[_T]] = {}
    _group_into(topics, partitions, version)
    return topics


def _group_into(topics: dict[str | UUID, list[_T]], partitions: list[_T], version: int) -> None:
    by_id = version >= TOPIC_ID_VERSION
    for each in partitions:
        topics.setdefault(each.topic_id if by_id else each.topic, []).append(each)


def decode_response(body: memoryview, version: int) -> tuple[ErrorCode, list[FetchedPartition]]:
    """The top-level error and the partitions. Raises RemoteProtocolError if the body is malformed."""
    reader = WireReader(body, flexible=is_flexible(ApiKey.FETCH, version))
    if version >= 1:
        reader.int32()
    error = ErrorCode.NONE
    if version >= 7:
        error = ErrorCode(reader.int16())
        reader.int32()
    by_id = version >= TOPIC_ID_VERSION
    partitions = []
    for _ in range(reader.array_length()):
        topic, topic_id = ("", reader.uuid()) if by_id else (reader.string(), ZERO_UUID)
        for _ in range(reader.array_length()):
            partitions.append(_read_fetched(reader, topic, topic_id, version))
        reader.skip_tags()
    reader.skip_tags()
    return error, partitions


def session_id_of(body: memoryview, version: int) -> int:
    """The fetch session that a response belongs to; 0 for none."""
    return _SESSION_ID.unpack_from(body, 6)[0] if version >= 7 and len(body) >= 10 else 0


def _read_fetched(reader: WireReader, topic: str, topic_id: UUID, version: int) -> FetchedPartition:
    partition = FetchedPartition(topic, topic_id, reader.int32(), ErrorCode(reader.int16()), reader.int64())
    if version >= FIRST_VERSION_OF_BATCHES:
        partition.last_stable_offset = reader.int64()
        if version >= 5:
            partition.log_start_offset = reader.int64()
        partition.aborted = []
        for _ in range(reader.array_length()):
            partition.aborted.append((reader.int64(), reader.int64()))
            reader.skip_tags()
    if version >= 11:
        partition.preferred_read_replica = reader.int32()
    records = reader.bytes_or_none()
    if records:
        partition.records.append(records)
    if version >= DIVERGING_VERSION:
        partition.diverging = _read_diverging(reader)
    else:
        reader.skip_tags()
    return partition


def _read_diverging(reader: WireReader) -> OffsetAndEpoch | None:
    found, count = None, reader.uvarint()
    reader.count_tags(count)
    for _ in range(count):
        tag, size = reader.uvarint(), reader.uvarint()
        value = WireReader(reader.take(size), flexible=True)
        if tag == _DIVERGING_EPOCH_TAG:
            epoch = value.int32()
            found = OffsetAndEpoch(value.int64(), epoch)
    return found
