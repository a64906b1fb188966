"""StopReplica: the controller takes partitions away from this broker, with their files if it says so.

NONE says that the files are gone, or can never be served again; where the disk refused that, the answer for the
partition is KAFKA_STORAGE_ERROR, and the controller asks again.
"""

from __future__ import annotations

from functools import partial

from sparklog.broker import holdings
from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import refusal
from sparklog.broker.handling.forgetting import forget
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.directories.making import Departure
from sparklog.log.files import check_partition
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import StopReplicaRequest, StopReplicaResponse
from sparklog.security.access import Operation
from sparklog.structs import TopicPartition

API = ApiKey.STOP_REPLICA
VERSIONS = range(3, 5)


async def handle(broker: BrokerContext, request: ApiRequest[StopReplicaRequest]) -> StopReplicaResponse:
    answer = await _serve(broker, request)
    await forget(broker.turns, request.message.topic_states)
    return answer


async def _serve(broker: BrokerContext, request: ApiRequest[StopReplicaRequest]) -> StopReplicaResponse:
    message = request.message
    code = refusal(broker, request, Operation.CLUSTER_ACTION) or await broker.fence.admit(message)
    if code is not ErrorCode.NONE:
        return StopReplicaResponse(error_code=code, partition_errors=[])
    asked = (
        (TopicPartition(topic.topic_name, each.partition_index), each.leader_epoch, bool(each.delete_partition))
        for topic in message.topic_states
        for each in topic.partition_states
    )
    results = []
    for some in holdings.slices(asked):
        codes = await holdings.take_away(broker, [partial(_stop, broker, message, *each) for each in some])
        results += [
            StopReplicaResponse.StopReplicaPartitionError(
                topic_name=tp.topic, partition_index=tp.partition, error_code=code
            )
            for (tp, _, _), code in zip(some, codes, strict=True)
        ]
    return StopReplicaResponse(error_code=ErrorCode.NONE, partition_errors=results)


def _stop(
    broker: BrokerContext, message: StopReplicaRequest, tp: TopicPartition, leader_epoch: int, delete: bool
) -> Departure | ErrorCode:
    """The fence is asked in the turn of the loop in which the partition is stopped. A decision that came late, after
    one of a higher leader epoch, is not obeyed.
    """
    code = broker.fence.check(message)
    if code is not ErrorCode.NONE:
        return code
    try:
        check_partition(tp)
    except ApiError as error:
        return error.code
    if 0 <= leader_epoch < broker.replicas.leader_epoch(tp):
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker.replicas.leads(tp):
        broker.stop_coordinating(tp)
    broker.fetchers.leave(tp)
    return broker.replicas.depart(tp, None) if delete else broker.replicas.stop(tp, delete=False)
