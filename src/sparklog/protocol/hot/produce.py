"""Produce (API 0), versions 3 to 12. Schema: ``ProduceRequest.json`` and ``ProduceResponse.json`` of Apache Kafka 4.0.

Versions 0 to 2 have the same shape without ``transactional_id`` and carry record formats older than v2.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot.fetch import LeaderHint, encode_endpoints, encode_leader
from sparklog.protocol.messages import is_flexible
from sparklog.protocol.slices import MOST_ELEMENTS, SLICE, Steps, checked_count, checked_topic, sliced
from sparklog.protocol.wire import WireReader, WireWriter
from sparklog.structs import Chunk, TopicPartition

MIN_VERSION, MAX_VERSION = 0, 12
_LEADER_HINT_VERSION = 10
_CURRENT_LEADER_TAG = _NODE_ENDPOINTS_TAG = 0
_ACKS = Struct(">hi")
_RESULT = Struct(">ihq")
_NO_THROTTLE = bytes(5)


class ProduceRequest(NamedTuple):
    """Records to append; each value is what the producer sent for that partition, uncopied."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    records: list[tuple[TopicPartition, memoryview | None]]


class ProduceResult(NamedTuple):
    """What became of one partition's records."""

    error: ErrorCode
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    message: str | None = None
    leader: LeaderHint | None = None
    """Told from version 10 on."""
    refused_records: Sequence[int] = ()
    """Which records of the batch are to blame, counted from 0; told from version 8 on. None: the batch as a whole."""


def decode_request(body: memoryview, version: int) -> ProduceRequest:
    """Raises RemoteProtocolError if the body is malformed, or names more than a request may."""
    request = decode_if_few(body, version, MOST_ELEMENTS)
    assert request is not None
    return request


def decode_if_few(body: memoryview, version: int, most: int) -> ProduceRequest | None:
    """``decode_request``, unless more than ``most`` topics or partitions are named."""
    reader = WireReader(body, flexible=is_flexible(ApiKey.PRODUCE, version))
    transactional_id = reader.string_or_none() if version >= 3 else None
    acks, timeout_ms = reader.numbers(_ACKS)
    topics = checked_count(ApiKey.PRODUCE, 0, reader.array_length())
    if topics > most:
        return None
    records: list[tuple[TopicPartition, memoryview | None]] = []
    for _ in range(topics):
        topic = checked_topic(ApiKey.PRODUCE, reader.string())
        count = checked_count(ApiKey.PRODUCE, len(records), reader.array_length())
        if len(records) + count > most:
            return None
        for _ in range(count):
            partition = reader.int32()
            records.append((TopicPartition(topic, partition), reader.bytes_or_none()))
            reader.skip_tags()
        reader.skip_tags()
    reader.skip_tags()
    return ProduceRequest(transactional_id, acks, timeout_ms, records)


def decoding_request(body: memoryview, version: int) -> Steps[ProduceRequest]:
    """``decode_request`` in steps."""
    reader = WireReader(body, flexible=is_flexible(ApiKey.PRODUCE, version))
    transactional_id = reader.string_or_none() if version >= 3 else None
    acks, timeout_ms = reader.numbers(_ACKS)
    records: list[tuple[TopicPartition, memoryview | None]] = []
    for _ in range(checked_count(ApiKey.PRODUCE, 0, reader.array_length())):
        topic = checked_topic(ApiKey.PRODUCE, reader.string())
        for _ in range(checked_count(ApiKey.PRODUCE, len(records), reader.array_length())):
            partition = reader.int32()
            records.append((TopicPartition(topic, partition), reader.bytes_or_none()))
            reader.skip_tags()
            if len(records) % SLICE == 0:
                yield
        reader.skip_tags()
        yield
    reader.skip_tags()
    return ProduceRequest(transactional_id, acks, timeout_ms, records)


def encode_request(
    acks: int,
    timeout_ms: int,
    records: dict[TopicPartition, list[Chunk]],
    version: int,
    transactional_id: str | None = None,
) -> list[Chunk]:
    """A request body; the chunks of a partition are its batches, handed on uncopied."""
    writer = WireWriter(flexible=is_flexible(ApiKey.PRODUCE, version))
    if version >= 3:
        writer.string(transactional_id)
    writer.int16(acks)
    writer.int32(timeout_ms)
    topics = _by_topic(list(records))
    writer.array_length(len(topics))
    for topic, partitions in topics.items():
        writer.string(topic)
        writer.array_length(len(partitions))
        for tp in partitions:
            writer.int32(tp.partition)
            writer.records(records[tp])
            writer.tags()
        writer.tags()
    writer.tags()
    return writer.chunks()


def encode_response(results: dict[TopicPartition, ProduceResult], version: int, throttle_ms: int = 0) -> list[Chunk]:
    """The response body, partitions grouped by topic in the order of their first appearance."""
    writer = WireWriter(flexible=is_flexible(ApiKey.PRODUCE, version))
    topics = _by_topic(list(results))
    writer.array_length(len(topics))
    for topic, partitions in topics.items():
        writer.string(topic)
        writer.array_length(len(partitions))
        for tp in partitions:
            _write_result(writer, tp.partition, results[tp], version)
        writer.tags()
    _write_end(writer, results, version, throttle_ms)
    return writer.chunks()


def encoding_response(
    results: dict[TopicPartition, ProduceResult], version: int, throttle_ms: int = 0
) -> Steps[list[Chunk]]:
    """``encode_response`` in steps."""
    writer = WireWriter(flexible=is_flexible(ApiKey.PRODUCE, version))
    topics = _by_topic(list(results))
    yield
    writer.array_length(len(topics))
    for topic, partitions in topics.items():
        writer.string(topic)
        writer.array_length(len(partitions))
        for some in sliced(partitions):
            for tp in some:
                _write_result(writer, tp.partition, results[tp], version)
            yield
        writer.tags()
    _write_end(writer, results, version, throttle_ms)
    return writer.chunks()


def _write_end(
    writer: WireWriter, results: dict[TopicPartition, ProduceResult], version: int, throttle_ms: int
) -> None:
    if version >= 1:
        writer.int32(throttle_ms)
    hints = [each.leader for each in results.values() if each.leader] if version >= _LEADER_HINT_VERSION else None
    if hints:
        writer.tagged({_NODE_ENDPOINTS_TAG: encode_endpoints(hints)})
    else:
        writer.tags()


def _write_result(writer: WireWriter, partition: int, result: ProduceResult, version: int) -> None:
    writer.raw(_RESULT.pack(partition, result.error, result.base_offset))
    if version >= 2:
        writer.int64(result.log_append_time_ms)
    if version >= 5:
        writer.int64(result.log_start_offset)
    if version >= 8:
        writer.array_length(len(result.refused_records))
        for index in result.refused_records:
            writer.int32(index)
            writer.string(result.message)
            writer.tags()
        writer.string(result.message)
    if result.leader is not None and version >= _LEADER_HINT_VERSION:
        writer.tagged({_CURRENT_LEADER_TAG: encode_leader(result.leader)})
    else:
        writer.tags()


def decode_response(body: memoryview, version: int) -> dict[TopicPartition, ProduceResult]:
    """What became of each partition's records. Raises RemoteProtocolError if the body is malformed."""
    reader = WireReader(body, flexible=is_flexible(ApiKey.PRODUCE, version))
    results = _read_results(reader, version)
    if version >= 1:
        reader.int32()  # as ``throttle_ms`` tells
    reader.skip_tags()
    return results


def throttle_ms(body: memoryview, version: int) -> int:
    """How long the answer asks for silence. Raises RemoteProtocolError if it is malformed.

    The time stands behind the results; most answers end in a time of 0 and no tags, which is seen without them.
    """
    if version < 1 or body[-len(_NO_THROTTLE) :] == _NO_THROTTLE:
        return 0
    reader = WireReader(body, flexible=is_flexible(ApiKey.PRODUCE, version))
    _read_results(reader, version)
    return reader.int32()


def _read_results(reader: WireReader, version: int) -> dict[TopicPartition, ProduceResult]:
    results: dict[TopicPartition, ProduceResult] = {}
    for _ in range(reader.array_length()):
        topic = reader.string()
        for _ in range(reader.array_length()):
            partition, code, offset = reader.numbers(_RESULT)
            append_time = reader.int64() if version >= 2 else -1
            log_start = reader.int64() if version >= 5 else -1
            message, refused = _read_message(reader) if version >= 8 else (None, ())
            reader.skip_tags()
            tp = TopicPartition(topic, partition)
            results[tp] = ProduceResult(
                ErrorCode(code), offset, append_time, log_start, message, refused_records=refused
            )
        reader.skip_tags()
    return results


def _read_message(reader: WireReader) -> tuple[str | None, tuple[int, ...]]:
    """The partition's error message, or the first that its records have; and which records have one."""
    first, refused = None, []
    for _ in range(reader.array_length()):
        index = reader.int32()
        refused.append(index)
        complaint = reader.string_or_none()
        first = first or (f"record {index}: {complaint}" if complaint else None)
        reader.skip_tags()
    text = reader.string_or_none()
    return (first if text is None else text), tuple(refused)


def _by_topic(partitions: list[TopicPartition]) -> dict[str, list[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp)
    return topics
