"""ListOffsets: the first offset, the end, or the first at or after a time."""

from __future__ import annotations

from collections import Counter

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ApiError, CorruptRecord, ErrorCode, LogClosed
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ListOffsetsResponse, Message
from sparklog.replica.partition import Partition
from sparklog.structs import IsolationLevel, TopicPartition

API = ApiKey.LIST_OFFSETS
VERSIONS = range(1, 9)
_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL = -1, -2, -3, -4
_SINCE = {_LATEST: 1, _EARLIEST: 1, _MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8}
"""The version from which on a timestamp below 0 means something."""
_Partition = ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse


def handle(broker: BrokerContext, request: ApiRequest) -> Message:
    isolation = IsolationLevel(1 if request.message.isolation_level == 1 else 0)
    times = Counter((topic.name, each.partition_index) for topic in request.message.topics for each in topic.partitions)

    def answer(topic: str, asked: Message) -> Message:
        try:
            if times[topic, asked.partition_index] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "each partition must stand in the request once only")
            if asked.timestamp < 0 and _SINCE.get(asked.timestamp, request.version + 1) > request.version:
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {asked.timestamp} has no meaning")
            return _answer(broker, topic, asked, isolation)
        except ApiError as error:
            return _result(asked, error.code)

    return ListOffsetsResponse(
        throttle_time_ms=0,
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[answer(topic.name, asked) for asked in topic.partitions],
            )
            for topic in request.message.topics
        ],
    )


def _answer(broker: BrokerContext, topic: str, asked: Message, isolation: IsolationLevel) -> Message:
    """What is asked of one partition. Raises ApiError."""
    try:
        partition = broker.replicas.partition(TopicPartition(topic, asked.partition_index))
        partition.check_leader(asked.current_leader_epoch)
        timestamp, offset = _find(partition, asked.timestamp, isolation)
        epoch = partition.log.epochs.epoch_at(offset) if offset >= 0 else -1
    except (CorruptRecord, LogClosed, OSError):
        return _result(asked, ErrorCode.KAFKA_STORAGE_ERROR)
    return _result(asked, ErrorCode.NONE, timestamp, offset, epoch)


def _result(asked: Message, code: ErrorCode, timestamp: int = -1, offset: int = -1, epoch: int = -1) -> Message:
    return _Partition(
        partition_index=asked.partition_index, error_code=code, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )


def _find(partition: Partition, timestamp: int, isolation: IsolationLevel) -> tuple[int, int]:
    """Timestamp (-1 where none was asked for) and offset (-1 if there is none)."""
    log = partition.log
    if timestamp == _LATEST:
        return -1, partition.bound(isolation).offset
    if timestamp in (_EARLIEST, _EARLIEST_LOCAL):
        return -1, log.log_start_offset
    found = log.latest_timestamp() if timestamp == _MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
    if found is None or found.offset >= partition.bound(isolation).offset:
        return -1, -1
    return found.timestamp, found.offset
