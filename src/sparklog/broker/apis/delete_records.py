"""DeleteRecords: let partitions begin later; answered with the offset at which each begins from now on."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.topics import INTERNAL_TOPICS
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DeleteRecordsResponse, Message
from sparklog.structs import TopicPartition

API = ApiKey.DELETE_RECORDS
VERSIONS = range(0, 3)
_Topic = DeleteRecordsResponse.DeleteRecordsTopicResult
_NOWHERE = -1


def handle(broker: BrokerContext, request: ApiRequest) -> Message:
    return DeleteRecordsResponse(
        throttle_time_ms=0,
        topics=[
            _Topic(
                name=topic.name,
                partitions=[
                    _delete(broker, TopicPartition(topic.name, each.partition_index), each.offset)
                    for each in topic.partitions
                ],
            )
            for topic in request.message.topics
        ],
    )


def _delete(broker: BrokerContext, tp: TopicPartition, before: int) -> Message:
    code, low_watermark = ErrorCode.NONE, _NOWHERE
    try:
        if tp.topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"the records of {tp.topic} are the broker's own")
        broker.held(tp)
        low_watermark = broker.replicas.delete_records(tp, before)
    except ApiError as error:
        code = error.code
    return _Topic.DeleteRecordsPartitionResult(
        partition_index=tp.partition, low_watermark=low_watermark, error_code=code
    )
