"""GetReplicaLogInfo: where the logs of replicas end, as they lie on this broker's disks. Asked by controllers.

Named as in KIP-966. It is answered for the registration whose epoch is in the answer, whether or not this broker has
been told of the partitions: their logs were opened before it registered.
"""

from __future__ import annotations

from functools import partial

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import refusal
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import GetReplicaLogInfoRequest, GetReplicaLogInfoResponse
from sparklog.protocol.slices import Steps, each_of
from sparklog.security.access import Operation
from sparklog.structs import TopicPartition

API = ApiKey.GET_REPLICA_LOG_INFO
VERSIONS = range(0, 1)
_Topic = GetReplicaLogInfoResponse.TopicLogInfo


async def handle(broker: BrokerContext, request: ApiRequest[GetReplicaLogInfoRequest]) -> GetReplicaLogInfoResponse:
    refused = refusal(broker, request, Operation.CLUSTER_ACTION)
    if refused is not ErrorCode.NONE:
        return _refused(refused)
    message, epoch = request.message, broker.fence.broker_epoch
    if message.broker_id != broker.config.broker_id or epoch is None:
        return _refused(ErrorCode.STALE_BROKER_EPOCH)
    topics = await broker.turns.drive(_ends(broker, message), lambda: "a GetReplicaLogInfo")
    return GetReplicaLogInfoResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, broker_epoch=epoch, topics=topics)


def _refused(code: ErrorCode) -> GetReplicaLogInfoResponse:
    return GetReplicaLogInfoResponse(throttle_time_ms=0, error_code=code, broker_epoch=-1, topics=[])


def _ends(broker: BrokerContext, message: GetReplicaLogInfoRequest) -> Steps[list[_Topic]]:
    topics = []
    for topic in message.topics:
        partitions = yield from each_of(partial(_end_of, broker, topic), topic.partitions)
        topics.append(_Topic(name=topic.name, partitions=partitions))
        yield
    return topics


def _end_of(broker: BrokerContext, topic: GetReplicaLogInfoRequest.TopicLogs, number: int) -> _Topic.PartitionLogInfo:
    code, epoch, offset = ErrorCode.NONE, -1, -1
    try:
        epoch, offset = broker.replicas.log_end(TopicPartition(topic.name, number), topic.topic_id)
    except ApiError as error:
        code = error.code
    return _Topic.PartitionLogInfo(
        partition=number, last_written_leader_epoch=epoch, log_end_offset=offset, error_code=code
    )
