"""StopReplica: the controller takes partitions away from this broker, with their files if it says so.

NONE says that the files are gone, or can never be served again; where the disk refused that, the answer for the
partition is KAFKA_STORAGE_ERROR, and the controller asks again.

Files go only where ZooKeeper says that they are to: the topic is to be deleted, or the partition has no replica here
any more. So a forged request deletes nothing that the cluster counts on; the answer is INVALID_REQUEST.
"""

from __future__ import annotations

import logging
from functools import partial

from sparklog.broker import partition_changes
from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import refusal
from sparklog.broker.handling.forgetting import forget
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.cut import name_some
from sparklog.log.directories.departures import Departure
from sparklog.log.files import check_partition, is_topic_name
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import StopReplicaRequest, StopReplicaResponse
from sparklog.security.access import Operation
from sparklog.structs import TopicPartition

API = ApiKey.STOP_REPLICA
VERSIONS = range(3, 5)
_logger = logging.getLogger(__name__)


async def handle(broker: BrokerContext, request: ApiRequest[StopReplicaRequest]) -> StopReplicaResponse:
    answer = await _serve(broker, request)
    await forget(broker.turns, request.message.topic_states)
    return answer


async def _serve(broker: BrokerContext, request: ApiRequest[StopReplicaRequest]) -> StopReplicaResponse:
    message = request.message
    code = refusal(broker, request, Operation.CLUSTER_ACTION) or await broker.fence.admit(message)
    if code is not ErrorCode.NONE:
        return StopReplicaResponse(error_code=code, partition_errors=[])
    try:
        kept = await _kept(broker, message)
    except ApiError as error:
        return StopReplicaResponse(error_code=error.code, partition_errors=[])
    asked = (
        (TopicPartition(topic.topic_name, each.partition_index), each.leader_epoch, bool(each.delete_partition))
        for topic in message.topic_states
        for each in topic.partition_states
    )
    results = []
    for some in partition_changes.slices(asked):
        codes = await partition_changes.take_away(
            broker, [partial(_stop, broker, message, kept, *each) for each in some]
        )
        results += [
            StopReplicaResponse.StopReplicaPartitionError(
                topic_name=tp.topic, partition_index=tp.partition, error_code=code
            )
            for (tp, _, _), code in zip(some, codes, strict=True)
        ]
    return StopReplicaResponse(error_code=ErrorCode.NONE, partition_errors=results)


async def _kept(broker: BrokerContext, message: StopReplicaRequest) -> set[TopicPartition]:
    """The partitions that are to be deleted here, but are this broker's in ZooKeeper. Raises ApiError."""
    kept = set[TopicPartition]()
    for topic in message.topic_states:
        doomed = {each.partition_index for each in topic.partition_states if each.delete_partition}
        if doomed and is_topic_name(topic.topic_name):
            here = await broker.run_zk(broker.zk.topics.kept_by, broker.replicas.broker_id, topic.topic_name)
            kept |= {TopicPartition(topic.topic_name, number) for number in doomed & here}
    if kept:
        names = name_some([str(tp) for tp in sorted(kept)])
        _logger.warning("not deleted, for this broker has replicas of them in ZooKeeper: %s", names)
    return kept


def _stop(
    broker: BrokerContext,
    message: StopReplicaRequest,
    kept: set[TopicPartition],
    tp: TopicPartition,
    leader_epoch: int,
    delete: bool,
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
    if delete and tp in kept:
        return ErrorCode.INVALID_REQUEST
    if broker.replicas.leads(tp):
        broker.stop_coordinating(tp)
    broker.fetchers.leave(tp)
    return broker.replicas.depart(tp, None) if delete else broker.replicas.stop(tp, delete=False)
