"""Fetch: slices of segments, at once if there is enough, else when there is or the time is up.

No fetch sessions: every request names all its partitions, and the session id answered is 0, which tells the client so.
"""

from __future__ import annotations

from collections.abc import Awaitable

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ErrorCode
from sparklog.log.segments import LogPosition
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.hot import fetch as wire
from sparklog.protocol.hot.fetch import FetchedPartition, FetchRequest
from sparklog.structs import Chunk, TopicPartition, chunk_size

API = ApiKey.FETCH
VERSIONS = range(wire.MIN_VERSION, wire.MAX_VERSION + 1)
Answer = list[FetchedPartition] | ErrorCode

decode = wire.decode_request


def encode(answer: Answer, version: int) -> list[Chunk]:
    if isinstance(answer, ErrorCode):
        return wire.encode_response([], version, error=answer)
    return wire.encode_response(answer, version)


def handle(broker: BrokerContext, request: ApiRequest) -> Answer | Awaitable[Answer]:
    message: FetchRequest = request.message
    if message.session_id:
        return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    fetched, size, seen = _read(broker, message, request.version)
    failed = any(each.error is not ErrorCode.NONE for each in fetched)
    if size >= message.min_bytes or failed or message.max_wait_ms <= 0 or not message.partitions:
        return fetched
    return _wait(broker, message, request.version, size, seen)


def _read(
    broker: BrokerContext, message: FetchRequest, version: int
) -> tuple[list[FetchedPartition], int, dict[TopicPartition, LogPosition]]:
    """Every partition's answer, the bytes in all, and how far each partition could be seen."""
    budget = min(message.max_bytes, broker.config.fetch_max_bytes)
    by_id = version >= wire.TOPIC_ID_VERSION
    fetched, size, seen = [], 0, {}
    for asked in message.partitions:
        topic = broker.metadata.name_of(asked.topic_id) if by_id else asked.topic
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
        fetched.append(partition)
    return fetched, size, seen


async def _wait(
    broker: BrokerContext, message: FetchRequest, version: int, size: int, seen: dict[TopicPartition, LogPosition]
) -> Answer:
    def enough() -> bool:
        fresh = sum(broker.replicas.available(tp, since, message.isolation) for tp, since in seen.items())
        return size + fresh >= message.min_bytes

    await broker.replicas.fetch_purgatory.wait(seen, enough, message.max_wait_ms)
    return _read(broker, message, version)[0]
