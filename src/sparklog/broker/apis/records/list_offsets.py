"""ListOffsets: the first offset, the end, the latest record, or the first at or after a time.

A search by time is made in steps where it has to look at many batches, and a large batch is looked into off the loop.
What was appended meanwhile may be found or not; a leader that has lost the partition meanwhile does not tell.

Version 0, of clients from before Kafka 0.10.1, asks for several offsets: the beginnings of segments no newer than a
time, the newest first. Source: Kafka 3.9, ``UnifiedLog.legacyFetchOffsetsBefore``; a segment is as old as its newest
record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine, Generator
from functools import partial
from typing import Any, TypeVar

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import Rights
from sparklog.errors import ApiError, CorruptRecord, ErrorCode, LogClosed
from sparklog.log.search import LongWork, Step
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ListOffsetsRequest, ListOffsetsResponse
from sparklog.protocol.slices import Steps, each_in_steps
from sparklog.replica.partition import Partition
from sparklog.security.access import Operation
from sparklog.structs import IsolationLevel, TopicPartition

API = ApiKey.LIST_OFFSETS
VERSIONS = range(0, 11)
_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED = -1, -2, -3, -4, -5
_FIRST_VERSION = {_LATEST: 0, _EARLIEST: 0, _MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9}
"""Times below zero have a meaning each, from some version on."""
_FIRST_VERSION_OF_ONE = 1
_CONSUMER = -1
_Topic = ListOffsetsResponse.ListOffsetsTopicResponse
T = TypeVar("T")
_Searching = Generator[Step, None, T]
_Found = tuple[int, int, int]
"""Timestamp (-1 where none was asked for), offset (-1 if there is none) and its leader epoch (-1 if unknown)."""


def handle(
    broker: BrokerContext, request: ApiRequest[ListOffsetsRequest]
) -> Steps[ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]]:
    searching = _search(broker, request)
    while True:
        try:
            work = next(searching)
        except StopIteration as end:
            response: ListOffsetsResponse = end.value
            return response
        if work is not None:
            return _go_on(broker, work, searching)
        yield


async def _go_on(
    broker: BrokerContext, work: LongWork[Any], searching: _Searching[ListOffsetsResponse]
) -> ListOffsetsResponse:
    """The answer of a search that has come to long work."""
    responses: list[ListOffsetsResponse] = []

    def rest() -> Generator[Step, None, None]:
        yield work
        responses.append((yield from searching))

    async for each in broker.turns.paced(rest()):
        if each is not None:
            await broker.preparation.run(each.run)
    return responses[0]


def _search(broker: BrokerContext, request: ApiRequest[ListOffsetsRequest]) -> _Searching[ListOffsetsResponse]:
    times: Counter[TopicPartition] = Counter()
    for topic in request.message.topics:
        for asked in topic.partitions:
            times[TopicPartition(topic.name, asked.partition_index)] += 1
            yield None
    topics, rights = [], Rights(broker, request, Operation.DESCRIBE)
    for topic in request.message.topics:
        answer = partial(_answer, broker, request, rights, topic.name, times)
        topics.append(_Topic(name=topic.name, partitions=(yield from each_in_steps(answer, topic.partitions))))
        yield None
    return ListOffsetsResponse(throttle_time_ms=0, topics=topics)


def _answer(
    broker: BrokerContext,
    request: ApiRequest[ListOffsetsRequest],
    rights: Rights,
    topic: str,
    times: Counter[TopicPartition],
    asked: ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition,
) -> _Searching[_Topic.ListOffsetsPartitionResponse]:
    tp = TopicPartition(topic, asked.partition_index)
    code, found, several = ErrorCode.NONE, (-1, -1, -1), []
    try:
        rights.check(topic)
        if times[tp] > 1 and request.version >= _FIRST_VERSION_OF_ONE:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{tp} stands in the request twice")
        if asked.timestamp < 0 and request.version < _FIRST_VERSION.get(asked.timestamp, request.version + 1):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{asked.timestamp} has no meaning in this version")
        partition = broker.held(tp)
        partition.check_leader(asked.current_leader_epoch)
        if asked.timestamp == _LATEST:
            _check_end_is_known(partition, request.message)
        if request.version < _FIRST_VERSION_OF_ONE:
            several = _offsets_before(partition, asked, request.message, broker.clock.now_ms())
        else:
            searched = yield from _find(partition, asked.timestamp, request.message)
            partition.check_leader(asked.current_leader_epoch)
            found = searched
    except ApiError as error:
        code = error.code
    except (CorruptRecord, LogClosed, OSError):
        code = ErrorCode.KAFKA_STORAGE_ERROR
    if request.version < _FIRST_VERSION_OF_ONE:
        return _Topic.ListOffsetsPartitionResponse(
            partition_index=tp.partition, error_code=code, old_style_offsets=several
        )
    timestamp, offset, epoch = found
    return _Topic.ListOffsetsPartitionResponse(
        partition_index=tp.partition, error_code=code, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )


def _check_end_is_known(partition: Partition, message: ListOffsetsRequest) -> None:
    """Raises ApiError to a client: it may have seen more at the leader before than this one knows to be committed."""
    if message.replica_id == _CONSUMER and not partition.knows_end:
        raise ApiError(
            ErrorCode.OFFSET_NOT_AVAILABLE, f"the end of {partition.tp} is not known yet under its new leader"
        )


def _end(partition: Partition, message: ListOffsetsRequest) -> int:
    """Where the log ends for the asker: a replica sees all of it, a client what its isolation level allows."""
    if message.replica_id != _CONSUMER:
        return partition.log_end_offset
    isolation = IsolationLevel.READ_COMMITTED if message.isolation_level == 1 else IsolationLevel.READ_UNCOMMITTED
    return partition.bound(isolation).offset


def _offsets_before(
    partition: Partition,
    asked: ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition,
    message: ListOffsetsRequest,
    now_ms: int,
) -> list[int]:
    """The beginnings of segments, and the end of the log, that are no newer than what is asked; the newest first."""
    end, start, timestamp = partition.log_end_offset, partition.log_start_offset, asked.timestamp
    views = partition.segment_views()
    places = [(max(each.base_offset, start), each.latest_timestamp) for each in views]
    if views[-1].size:
        places.append((end, now_ms))
    if timestamp == _EARLIEST:
        places = places[:1]
    elif timestamp != _LATEST:
        while places and places[-1][1] > timestamp:
            places.pop()
    found = [offset for offset, _ in reversed(places)][: max(asked.max_num_offsets, 0)]
    visible = _end(partition, message)
    shown = [offset for offset in found if offset <= visible]
    return shown if len(shown) == len(found) else [visible, *shown]


def _find(partition: Partition, timestamp: int, message: ListOffsetsRequest) -> _Searching[_Found]:
    if timestamp == _LATEST:
        return -1, _end(partition, message), partition.leader_epoch
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return -1, partition.log_start_offset, partition.epoch_at(partition.log_start_offset)
    if timestamp == _LATEST_TIERED:
        return -1, -1, -1
    is_latest = timestamp == _MAX_TIMESTAMP
    found = yield from partition.latest_timestamp() if is_latest else partition.offset_for_timestamp(timestamp)
    if found is None:
        return -1, -1, -1
    if found.offset >= _end(partition, message):
        _check_end_is_known(partition, message)
        return -1, -1, -1
    return found.timestamp, found.offset, partition.epoch_at(found.offset)
