"""ConsumerGroupHeartbeat: a member of the consumer protocol joins, is alive, moves with its group, or leaves."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ErrorCode
from sparklog.group.consumer.assignment import Partitions, TopicIdPartition, by_topic
from sparklog.group.consumer.requests import ConsumerHeartbeat
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from sparklog.protocol.wire import ZERO_UUID

API = ApiKey.CONSUMER_GROUP_HEARTBEAT
VERSIONS = range(0, 2)

_FIRST_VERSION_OF_OWN_MEMBER_ID = 1
_Assignment = ConsumerGroupHeartbeatResponse.Assignment


async def handle(
    broker: BrokerContext, request: ApiRequest[ConsumerGroupHeartbeatRequest]
) -> ConsumerGroupHeartbeatResponse:
    answer = await broker.groups.members.consumer_heartbeat(_heartbeat(request))
    if answer.error is not ErrorCode.NONE:
        return ConsumerGroupHeartbeatResponse(
            error_code=int(answer.error), error_message=answer.message, member_epoch=0, heartbeat_interval_ms=0
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=0,
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=None if answer.assigned is None else _assignment(answer.assigned),
    )


def _heartbeat(request: ApiRequest[ConsumerGroupHeartbeatRequest]) -> ConsumerHeartbeat:
    message = request.message
    topics, owned = message.subscribed_topic_names, message.topic_partitions
    return ConsumerHeartbeat(
        group_id=message.group_id,
        member_id=message.member_id,
        epoch=message.member_epoch,
        client_id=request.client_id or "",
        client_host=f"/{request.client_host}",  # as Java prints an address, and so as Kafka stores and shows it
        instance_id=message.instance_id,
        rack_id=message.rack_id,
        rebalance_timeout_ms=message.rebalance_timeout_ms,
        topics=None if topics is None else frozenset(topics),
        regex=message.subscribed_topic_regex if request.version >= _FIRST_VERSION_OF_OWN_MEMBER_ID else None,
        assignor=message.server_assignor,
        owned=None if owned is None else _owned(owned),
        brings_id=request.version >= _FIRST_VERSION_OF_OWN_MEMBER_ID,
    )


def _owned(topics: list[ConsumerGroupHeartbeatRequest.TopicPartitions]) -> Partitions:
    return frozenset(
        TopicIdPartition(topic.topic_id or ZERO_UUID, number) for topic in topics for number in topic.partitions
    )


def _assignment(assigned: Partitions) -> _Assignment:
    topics = [
        _Assignment.TopicPartitions(topic_id=topic_id, partitions=numbers)
        for topic_id, numbers in by_topic(assigned).items()
    ]
    return _Assignment(topic_partitions=topics)
