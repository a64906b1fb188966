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
from sparklog.protocol.hot.fetch import FetchedPartition, FetchRequest
from sparklog.structs import Chunk, TopicPartition, chunk_size

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


def handle(broker: BrokerContext, request: ApiRequest) -> FetchAnswer | Awaitable[FetchAnswer]:
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


def _read(broker: BrokerContext, fetch: Fetch, request: ApiRequest) -> _Read:
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
        partition, bound = broker.replicas.read(
            asked, topic, message.isolation, max(budget - size, 0), min_one_batch=size == 0
        )
        size += sum(map(chunk_size, partition.records))
        if bound is not None:
            seen[TopicPartition(topic, asked.partition)] = bound
        elif partition.error is not ErrorCode.NONE:
            _explain(broker, partition, request.version)
        if request.version < _FIRST_VERSION_OF_ZSTD:
            _spare_old_client(broker, partition)
        fetched.append(partition)
    return fetched, size, seen


def _explain(broker: BrokerContext, failed: FetchedPartition, version: int) -> None:
    """Tell a client that asks the wrong broker so, and where to go; in codes that its version knows."""
    tp = TopicPartition(failed.topic, failed.partition)
    if failed.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and broker.metadata.knows(tp):
        failed.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if failed.error is ErrorCode.KAFKA_STORAGE_ERROR and version < _FIRST_VERSION_OF_STORAGE_ERRORS:
        failed.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if failed.error in _MOVED:
        failed.leader = broker.metadata.leader_hint(tp)


def _spare_old_client(broker: BrokerContext, fetched: FetchedPartition) -> None:
    """A client older than zstd is told so where the topic is kept in it."""
    if fetched.error is ErrorCode.NONE:
        log = broker.replicas.partition(TopicPartition(fetched.topic, fetched.partition)).log
        if log.config.compression_type == "zstd":
            fetched.error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            fetched.records.clear()


async def _wait(
    broker: BrokerContext, fetch: Fetch, request: ApiRequest, size: int, seen: dict[TopicPartition, LogPosition]
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
