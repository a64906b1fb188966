"""GetReplicaLogInfo: where the logs of replicas end, as they lie on this broker's disks. Asked by controllers.

Named as in KIP-966. It is answered for the registration whose epoch is in the answer, whether or not this broker has
been told of the partitions: their logs were opened before it registered.
"""

from __future__ import annotations

from uuid import UUID

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import GetReplicaLogInfoRequest, GetReplicaLogInfoResponse
from sparklog.structs import TopicPartition

API = ApiKey.GET_REPLICA_LOG_INFO
VERSIONS = range(0, 1)
_Topic = GetReplicaLogInfoResponse.TopicLogInfo


async def handle(broker: BrokerContext, request: ApiRequest[GetReplicaLogInfoRequest]) -> GetReplicaLogInfoResponse:
    message, epoch = request.message, broker.fence.broker_epoch
    if message.broker_id != broker.config.broker_id or epoch is None:
        return GetReplicaLogInfoResponse(
            throttle_time_ms=0, error_code=ErrorCode.STALE_BROKER_EPOCH, broker_epoch=-1, topics=[]
        )
    topics = [
        _Topic(
            name=topic.name,
            partitions=[_end_of(broker, TopicPartition(topic.name, each), topic.topic_id) for each in topic.partitions],
        )
        for topic in message.topics
    ]
    return GetReplicaLogInfoResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, broker_epoch=epoch, topics=topics)


def _end_of(broker: BrokerContext, tp: TopicPartition, topic_id: UUID | None) -> _Topic.PartitionLogInfo:
    code, epoch, offset = ErrorCode.NONE, -1, -1
    try:
        epoch, offset = broker.replicas.log_end(tp, topic_id)
    except ApiError as error:
        code = error.code
    return _Topic.PartitionLogInfo(
        partition=tp.partition, last_written_leader_epoch=epoch, log_end_offset=offset, error_code=code
    )
