"""Fetch: slices of segments, at once if there is enough, else when there is or the time is up; in a session only news.

The wait is for the whole request, or the whole session, together. What sessions are: ``broker/fetch_sessions.py``.
"""

from __future__ import annotations

from collections.abc import Awaitable

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.fetch_sessions import Fetch, FetchAnswer
from sparklog.clock import monotonic_ms
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.segments import LogPosition
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch as wire
from sparklog.protocol.hot.fetch import FetchedPartition, FetchPartition, FetchRequest
from sparklog.protocol.wire import ZERO_UUID
from sparklog.replica.partition import PartitionRead
from sparklog.structs import Chunk, TopicPartition

API = ApiKey.FETCH
VERSIONS = range(wire.MIN_VERSION, wire.MAX_VERSION + 1)
_FIRST_VERSION_OF_STORAGE_ERRORS = 6
_FIRST_VERSION_OF_ZSTD = 10
_MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

_Read = tuple[list[FetchedPartition], int, dict[TopicPartition, LogPosition]]
"""Every partition's answer, the bytes in all, and how far each partition could be seen."""

decode = wire.decode_request


def encode(answer: FetchAnswer, version: int) -> list[Chunk]:
    return wire.encode_response(answer.partitions, version, error=answer.error, session_id=answer.session_id)


def handle(broker: BrokerContext, request: ApiRequest[FetchRequest]) -> FetchAnswer | Awaitable[FetchAnswer]:
    message: FetchRequest = request.message
    try:
        fetch = broker.fetch_sessions.begin(
            message,
            monotonic_ms(broker.clock),
            broker.metadata.name_of,
            uses_ids=request.version >= wire.TOPIC_ID_VERSION,
        )
    except ApiError as error:
        return FetchAnswer([], error=error.code)
    fetched, size, seen = _read(broker, fetch, request)
    failed = any(each.error is not ErrorCode.NONE for each in fetched)
    if size >= _enough(broker, message) or failed or message.max_wait_ms <= 0 or not fetch.asked:
        return fetch.answer(fetched)
    return _wait(broker, fetch, request, size, seen)


def _most(broker: BrokerContext, message: FetchRequest) -> int:
    return min(message.max_bytes, broker.config.fetch_max_bytes)


def _enough(broker: BrokerContext, message: FetchRequest) -> int:
    """The bytes to wait for: no more than may be sent."""
    return min(message.min_bytes, _most(broker, message))


def _read(broker: BrokerContext, fetch: Fetch, request: ApiRequest[FetchRequest]) -> _Read:
    message: FetchRequest = request.message
    budget = _most(broker, message)
    by_id = request.version >= wire.TOPIC_ID_VERSION
    fetched, size, seen = [], 0, {}
    for asked in fetch.asked:
        topic = asked.topic or (broker.metadata.name_of(asked.topic_id) if by_id else "")
        if topic is None:
            unknown = FetchedPartition("", asked.topic_id, asked.partition, ErrorCode.UNKNOWN_TOPIC_ID)
            fetched.append(unknown)
            continue
        tp = TopicPartition(topic, asked.partition)
        try:
            read = broker.replicas.read(
                tp,
                None if asked.topic_id is ZERO_UUID else asked.topic_id,
                asked.offset,
                min(asked.max_bytes, max(budget - size, 0)),
                message.isolation,
                leader_epoch=asked.current_leader_epoch,
                min_one_batch=size == 0,
            )
        except ApiError as error:
            fetched.append(_failed(broker, asked, tp, error.code, request.version))
            continue
        seen[tp] = read.bound
        if read.records is not None:
            size += read.records.size
        told = _told(asked, topic, read)
        if request.version < _FIRST_VERSION_OF_ZSTD and broker.replicas.partition(tp).config.compression_type == "zstd":
            told.error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            told.records.clear()
        fetched.append(told)
    return fetched, size, seen


def _told(asked: FetchPartition, topic: str, read: PartitionRead) -> FetchedPartition:
    return FetchedPartition(
        topic,
        asked.topic_id,
        asked.partition,
        ErrorCode.NONE,
        read.high_watermark,
        read.last_stable_offset,
        read.log_start_offset,
        None if read.aborted is None else [(each.producer_id, each.first_offset) for each in read.aborted],
        [] if read.records is None else [read.records],
    )


def _failed(
    broker: BrokerContext, asked: FetchPartition, tp: TopicPartition, code: ErrorCode, version: int
) -> FetchedPartition:
    """Tell a client that asks the wrong broker so, and where to go; in codes that its version knows."""
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and broker.metadata.knows(tp):
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if code is ErrorCode.KAFKA_STORAGE_ERROR and version < _FIRST_VERSION_OF_STORAGE_ERRORS:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    failed = FetchedPartition(tp.topic, asked.topic_id, tp.partition, code)
    if code in _MOVED:
        failed.leader = broker.metadata.leader_hint(tp)
    return failed


async def _wait(
    broker: BrokerContext,
    fetch: Fetch,
    request: ApiRequest[FetchRequest],
    size: int,
    seen: dict[TopicPartition, LogPosition],
) -> FetchAnswer:
    message: FetchRequest = request.message
    least = _enough(broker, message)
    fresh = dict.fromkeys(seen, 0)

    def enough(moved: TopicPartition | None) -> bool:
        nonlocal size
        for tp in seen if moved is None else (moved,):
            available = broker.replicas.available(tp, seen[tp], message.isolation)
            size += available - fresh[tp]
            fresh[tp] = available
        return size >= least

    await broker.replicas.fetch_purgatory.wait(seen, enough, message.max_wait_ms)
    return fetch.answer(_read(broker, fetch, request)[0])
