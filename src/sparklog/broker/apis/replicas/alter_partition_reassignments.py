"""AlterPartitionReassignments: begin to move replicas to other brokers, or give up to; answered by the controller.

The answer says that ZooKeeper has it. How far a move is, ListPartitionReassignments tells.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import check
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
from sparklog.protocol.slices import Steps, each_of
from sparklog.security.access import Operation
from sparklog.structs import TopicPartition

API = ApiKey.ALTER_PARTITION_REASSIGNMENTS
VERSIONS = range(0, 1)
_Topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_AskedTopic = AlterPartitionReassignmentsRequest.ReassignableTopic


def handle(
    broker: BrokerContext, request: ApiRequest[AlterPartitionReassignmentsRequest]
) -> AlterPartitionReassignmentsResponse | Awaitable[AlterPartitionReassignmentsResponse]:
    try:
        check(broker, request, Operation.ALTER)
    except ApiError as refused:
        return _refused(refused)
    if not broker.controller.is_active:
        return _refused(ApiError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller"))
    return _reassign(broker, request.message)


async def _reassign(
    broker: BrokerContext, message: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    wishes: dict[TopicPartition, list[int] | None] = {}
    async for topic in broker.turns.paced(message.topics):
        async for each in broker.turns.paced(topic.partitions):
            wishes[TopicPartition(topic.name, each.partition_index)] = each.replicas
    try:
        refused = await broker.controller.reassign(wishes) if wishes else {}
    except ApiError as error:
        return _refused(error)
    return await broker.turns.drive(_answering(message, refused), lambda: "an AlterPartitionReassignments")


def _answering(
    message: AlterPartitionReassignmentsRequest, refused: dict[TopicPartition, ApiError]
) -> Steps[AlterPartitionReassignmentsResponse]:
    topics = []
    for topic in message.topics:
        partitions = yield from each_of(partial(_outcome, topic.name, refused), topic.partitions)
        topics.append(_Topic(name=topic.name, partitions=partitions))
    return _response(ErrorCode.NONE, "", topics)


def _outcome(
    topic: str, refused: dict[TopicPartition, ApiError], asked: _AskedTopic.ReassignablePartition
) -> _Topic.ReassignablePartitionResponse:
    error = refused.get(TopicPartition(topic, asked.partition_index))
    return _Topic.ReassignablePartitionResponse(
        partition_index=asked.partition_index,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.reason,
    )


def _refused(error: ApiError) -> AlterPartitionReassignmentsResponse:
    return _response(error.code, error.reason, [])


def _response(code: ErrorCode, text: str, topics: list[_Topic]) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=code, error_message=text, responses=topics
    )
