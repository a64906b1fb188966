"""DescribeLag: how many bytes partitions have from given offsets up to their high watermarks, told by their leaders.

A partition may be asked for with several offsets, of several groups. Index and file sizes tell it: no record is read
(``LogSegments.bytes_between``).
"""

from __future__ import annotations

from functools import partial

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import Rights
from sparklog.errors import ApiError, ErrorCode, LogClosed
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeLagRequest, DescribeLagResponse
from sparklog.protocol.slices import Steps, each_of
from sparklog.security.access import Operation
from sparklog.structs import TopicPartition

API = ApiKey.DESCRIBE_LAG
VERSIONS = range(0, 1)
_ANY_EPOCH = -1
_Topic = DescribeLagResponse.DescribedTopic


def handle(broker: BrokerContext, request: ApiRequest[DescribeLagRequest]) -> Steps[DescribeLagResponse]:
    topics, rights = [], Rights(broker, request, Operation.DESCRIBE)
    for topic in request.message.topics:
        partitions = yield from each_of(partial(_told, broker, rights, topic.name), topic.partitions)
        topics.append(_Topic(name=topic.name, partitions=partitions))
        yield
    return DescribeLagResponse(throttle_time_ms=0, topics=topics)


def _told(
    broker: BrokerContext, rights: Rights, topic: str, asked: DescribeLagRequest.LagTopic.LagPartition
) -> _Topic.DescribedPartition:
    code, end, size = ErrorCode.NONE, -1, -1
    try:
        rights.check(topic)
        partition = broker.held(TopicPartition(topic, asked.partition_index))
        partition.check_leader(_ANY_EPOCH)
        end, size = partition.high_watermark.offset, partition.bytes_from(asked.offset)
    except ApiError as error:
        code = error.code
    except (LogClosed, OSError):
        code = ErrorCode.KAFKA_STORAGE_ERROR
    return _Topic.DescribedPartition(
        partition_index=asked.partition_index, error_code=code, offset=asked.offset, high_watermark=end, bytes=size
    )
