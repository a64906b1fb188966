"""LeaderAndIsr: the controller says which partitions this broker leads or follows."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import LeaderAndIsrResponse, Message
from sparklog.structs import TopicPartition
from sparklog.zk.znodes import PartitionState

API = ApiKey.LEADER_AND_ISR
VERSIONS = range(6, 7)


async def handle(broker: BrokerContext, request: ApiRequest) -> Message:
    code = broker.fence.check(request.message)
    if code is not ErrorCode.NONE:
        return LeaderAndIsrResponse(error_code=code, topics=[])
    topics = []
    for topic in request.message.topic_states:
        config = await broker.topic_config(topic.topic_name)
        errors = []
        for each in topic.partition_states:
            tp = TopicPartition(topic.topic_name, each.partition_index)
            led = broker.replicas.leads(tp)
            state = PartitionState(each.leader, each.leader_epoch, tuple(each.isr), each.controller_epoch)
            error = broker.replicas.apply(
                tp, state, config, topic.topic_id, replica_count=len(each.replicas), is_new=each.is_new
            )
            errors.append(
                LeaderAndIsrResponse.LeaderAndIsrTopicError.LeaderAndIsrPartitionError(
                    partition_index=each.partition_index, error_code=error
                )
            )
            _move_coordinator(broker, tp, led)
        topics.append(LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
    return LeaderAndIsrResponse(error_code=ErrorCode.NONE, topics=topics)


def _move_coordinator(broker: BrokerContext, tp: TopicPartition, led: bool) -> None:
    """The leader of a coordinator's partition coordinates what it holds."""
    leads = broker.replicas.leads(tp)
    if leads and not led:
        broker.coordinate(tp)
    elif led and not leads:
        broker.stop_coordinating(tp)
