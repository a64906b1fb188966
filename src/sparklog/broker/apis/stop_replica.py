"""StopReplica: the controller takes partitions away from this broker, with their files if it says so."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import Message, StopReplicaResponse
from sparklog.structs import TopicPartition

API = ApiKey.STOP_REPLICA
VERSIONS = range(3, 4)


def handle(broker: BrokerContext, request: ApiRequest) -> Message:
    code = broker.fence.check(request.message)
    if code is not ErrorCode.NONE:
        return StopReplicaResponse(error_code=code, partition_errors=[])
    results = []
    for topic in request.message.topic_states:
        for each in topic.partition_states:
            tp = TopicPartition(topic.topic_name, each.partition_index)
            error = ErrorCode.NONE
            if broker.replicas.leads(tp):
                broker.stop_coordinating(tp)
            try:
                broker.replicas.stop(tp, delete=each.delete_partition)
            except OSError:
                error = ErrorCode.KAFKA_STORAGE_ERROR
            results.append(
                StopReplicaResponse.StopReplicaPartitionError(
                    topic_name=tp.topic, partition_index=tp.partition, error_code=error
                )
            )
    return StopReplicaResponse(error_code=ErrorCode.NONE, partition_errors=results)
