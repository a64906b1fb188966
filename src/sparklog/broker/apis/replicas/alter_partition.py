"""AlterPartition: a leader has the controller write another ISR."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from uuid import UUID

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import refusal
from sparklog.controller.isr_change import UNKNOWN_EPOCH, IsrChange
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AlterPartitionRequest, AlterPartitionResponse
from sparklog.protocol.slices import Steps, each_of
from sparklog.security.access import Operation
from sparklog.structs import NO_LEADER, TopicPartition
from sparklog.zk.znodes import PartitionState

API = ApiKey.ALTER_PARTITION
VERSIONS = range(2, 4)
_Asked = AlterPartitionRequest.TopicData.PartitionData
_Topic = AlterPartitionResponse.TopicData
_Names = Mapping[UUID | None, str | None]
"""Of topics, by their ids; None of one that is not known."""


async def handle(broker: BrokerContext, request: ApiRequest[AlterPartitionRequest]) -> AlterPartitionResponse:
    refused = refusal(broker, request, Operation.CLUSTER_ACTION)
    if refused is not ErrorCode.NONE:
        return _response(refused, [])
    message, context = request.message, broker.controller.context
    if context is None:
        return _response(ErrorCode.NOT_CONTROLLER, [])
    names = {topic.topic_id: context.named(topic.topic_id) for topic in message.topics}
    asked = await broker.turns.drive(_asked(message, names), _what)
    try:
        outcomes = await broker.controller.change_isrs(message.broker_id, message.broker_epoch, asked)
    except ApiError as error:
        return _response(error.code, [])
    return _response(ErrorCode.NONE, await broker.turns.drive(_telling(message, names, outcomes), _what))


def _what() -> str:
    return "an AlterPartition"


def _response(code: ErrorCode, topics: list[_Topic]) -> AlterPartitionResponse:
    return AlterPartitionResponse(throttle_time_ms=0, error_code=code, topics=topics)


def _asked(message: AlterPartitionRequest, names: _Names) -> Steps[dict[TopicPartition, IsrChange]]:
    asked = {}
    for topic in message.topics:
        name = names[topic.topic_id]
        yield
        if name is None:
            continue
        for each in topic.partitions:
            asked[TopicPartition(name, each.partition_index)] = _change(message.broker_id, topic.topic_id, each)
            yield
    return asked


def _telling(
    message: AlterPartitionRequest, names: _Names, outcomes: dict[TopicPartition, PartitionState | ErrorCode]
) -> Steps[list[_Topic]]:
    topics = []
    for topic in message.topics:
        tell = partial(_tell, names[topic.topic_id], outcomes)
        topics.append(_Topic(topic_id=topic.topic_id, partitions=(yield from each_of(tell, topic.partitions))))
        yield
    return topics


def _tell(
    name: str | None, outcomes: dict[TopicPartition, PartitionState | ErrorCode], asked: _Asked
) -> _Topic.PartitionData:
    number = asked.partition_index
    return _told(number, ErrorCode.UNKNOWN_TOPIC_ID if name is None else outcomes[TopicPartition(name, number)])


def _change(leader: int, topic_id: UUID | None, asked: _Asked) -> IsrChange:
    members = [(each.broker_id, each.broker_epoch) for each in asked.new_isr_with_epochs or ()]
    members = members or [(each, UNKNOWN_EPOCH) for each in asked.new_isr or ()]  # version 2 says no epochs
    isr, epochs = tuple(each for each, _ in members), tuple(epoch for _, epoch in members)
    return IsrChange(leader, asked.leader_epoch, isr, epochs, asked.partition_epoch, topic_id)


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
