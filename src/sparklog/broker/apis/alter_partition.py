"""AlterPartition: a leader has the controller write another ISR."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.controller.isr_change import UNKNOWN_EPOCH, IsrChange
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AlterPartitionRequest, AlterPartitionResponse
from sparklog.structs import NO_LEADER, TopicPartition
from sparklog.zk.znodes import PartitionState

API = ApiKey.ALTER_PARTITION
VERSIONS = range(2, 4)
_Asked = AlterPartitionRequest.TopicData.PartitionData
_Topic = AlterPartitionResponse.TopicData


async def handle(broker: BrokerContext, request: ApiRequest[AlterPartitionRequest]) -> AlterPartitionResponse:
    message, context = request.message, broker.controller.context
    if context is None:
        return AlterPartitionResponse(throttle_time_ms=0, error_code=ErrorCode.NOT_CONTROLLER, topics=[])
    names = {topic.topic_id: context.named(topic.topic_id) for topic in message.topics}
    asked: dict[TopicPartition, IsrChange] = {}
    async for topic in broker.turns.paced(message.topics):
        name = names[topic.topic_id]
        if name is not None:
            asked |= {TopicPartition(name, e.partition_index): _change(message.broker_id, e) for e in topic.partitions}
    try:
        outcomes = await broker.controller.change_isrs(message.broker_id, message.broker_epoch, asked)
    except ApiError as error:
        return AlterPartitionResponse(throttle_time_ms=0, error_code=error.code, topics=[])
    topics = []
    async for topic in broker.turns.paced(message.topics):
        name = names[topic.topic_id]
        topics.append(
            _Topic(
                topic_id=topic.topic_id,
                partitions=[
                    _told(
                        each.partition_index,
                        ErrorCode.UNKNOWN_TOPIC_ID
                        if name is None
                        else outcomes[TopicPartition(name, each.partition_index)],
                    )
                    for each in topic.partitions
                ],
            )
        )
    return AlterPartitionResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, topics=topics)


def _change(leader: int, asked: _Asked) -> IsrChange:
    members = [(each.broker_id, each.broker_epoch) for each in asked.new_isr_with_epochs or ()]
    members = members or [(each, UNKNOWN_EPOCH) for each in asked.new_isr or ()]  # version 2 says no epochs
    isr, epochs = tuple(each for each, _ in members), tuple(epoch for _, epoch in members)
    return IsrChange(leader, asked.leader_epoch, isr, epochs, asked.partition_epoch)


def _told(number: int, outcome: PartitionState | ErrorCode) -> _Topic.PartitionData:
    if isinstance(outcome, ErrorCode):
        return _Topic.PartitionData(
            partition_index=number,
            error_code=outcome,
            leader_id=NO_LEADER,
            leader_epoch=-1,
            isr=[],
            leader_recovery_state=0,
            partition_epoch=-1,
        )
    return _Topic.PartitionData(
        partition_index=number,
        error_code=ErrorCode.NONE,
        leader_id=outcome.leader,
        leader_epoch=outcome.leader_epoch,
        isr=list(outcome.isr),
        leader_recovery_state=0,
        partition_epoch=outcome.version,
    )
