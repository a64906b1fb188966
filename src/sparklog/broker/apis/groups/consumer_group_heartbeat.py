"""ConsumerGroupHeartbeat: a member of the consumer protocol joins, is alive, moves with its group, or leaves."""

from __future__ import annotations

from collections.abc import Awaitable

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import Rights, check
from sparklog.errors import ApiError, ErrorCode
from sparklog.group.consumer.assignment import Partitions, TopicIdPartition, by_topic
from sparklog.group.consumer.requests import ConsumerHeartbeat
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from sparklog.protocol.slices import Steps, each_of
from sparklog.protocol.wire import ZERO_UUID
from sparklog.security.access import Operation, Resource, ResourceType

API = ApiKey.CONSUMER_GROUP_HEARTBEAT
VERSIONS = range(0, 2)

_FIRST_VERSION_OF_OWN_MEMBER_ID = 1
_Assignment = ConsumerGroupHeartbeatResponse.Assignment


def handle(
    broker: BrokerContext, request: ApiRequest[ConsumerGroupHeartbeatRequest]
) -> Steps[ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]]:
    message, rights = request.message, Rights(broker, request, Operation.DESCRIBE)
    try:
        check(broker, request, Operation.READ, Resource(ResourceType.GROUP, message.group_id))
        yield from each_of(rights.check, message.subscribed_topic_names or ())
    except ApiError as refused:
        return _refused(refused.code, refused.reason)
    owned = yield from _owned(request.message.topic_partitions)
    return _answer(broker, _heartbeat(request, owned))


async def _answer(broker: BrokerContext, heartbeat: ConsumerHeartbeat) -> ConsumerGroupHeartbeatResponse:
    answer = await broker.groups.members.consumer_heartbeat(heartbeat)
    if answer.error is not ErrorCode.NONE:
        return _refused(answer.error, answer.message)
    assignment = None
    if answer.assigned is not None:
        assignment = await broker.turns.drive(_assignment(answer.assigned), lambda: f"group {heartbeat.group_id}")
    return ConsumerGroupHeartbeatResponse(
        error_code=0,
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=assignment,
    )


def _refused(code: ErrorCode, why: str | None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=int(code), error_message=why, member_epoch=0, heartbeat_interval_ms=0
    )


def _heartbeat(request: ApiRequest[ConsumerGroupHeartbeatRequest], owned: Partitions | None) -> ConsumerHeartbeat:
    message = request.message
    topics = message.subscribed_topic_names
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
        owned=owned,
        brings_id=request.version >= _FIRST_VERSION_OF_OWN_MEMBER_ID,
    )


def _owned(topics: list[ConsumerGroupHeartbeatRequest.TopicPartitions] | None) -> Steps[Partitions | None]:
    """A topic a step."""
    owned: list[TopicIdPartition] = []
    for topic in topics or ():
        owned += [TopicIdPartition(topic.topic_id or ZERO_UUID, number) for number in topic.partitions]
        yield
    return None if topics is None else frozenset(owned)


def _assignment(assigned: Partitions) -> Steps[_Assignment]:
    topics = []
    for topic_id, numbers in (yield from by_topic(assigned)).items():
        topics.append(_Assignment.TopicPartitions(topic_id=topic_id, partitions=numbers))
        yield
    return _Assignment(topic_partitions=topics)
