"""AlterPartitionReassignments: move replicas; only where they are already, for no broker copies from another yet."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.controller.context import ControllerContext
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
from sparklog.protocol.slices import Steps
from sparklog.structs import TopicPartition

API = ApiKey.ALTER_PARTITION_REASSIGNMENTS
VERSIONS = range(0, 1)
_Topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse


def handle(
    broker: BrokerContext, request: ApiRequest[AlterPartitionReassignmentsRequest]
) -> Steps[AlterPartitionReassignmentsResponse]:
    context = broker.controller.context
    if context is None:
        return _response(ErrorCode.NOT_CONTROLLER, "this broker is not the controller", [])
    topics = []
    for topic in request.message.topics:
        partitions = []
        for each in topic.partitions:
            code, text = _judge(context, TopicPartition(topic.name, each.partition_index), each.replicas)
            partitions.append(
                _Topic.ReassignablePartitionResponse(
                    partition_index=each.partition_index, error_code=code, error_message=text
                )
            )
            yield
        topics.append(_Topic(name=topic.name, partitions=partitions))
    return _response(ErrorCode.NONE, None, topics)


def _response(code: ErrorCode, text: str | None, topics: list[_Topic]) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=code, error_message=text, responses=topics
    )


def _judge(context: ControllerContext, tp: TopicPartition, replicas: list[int] | None) -> tuple[ErrorCode, str | None]:
    """What becomes of one partition; ``replicas`` None ends a reassignment."""
    if tp not in context.states or tp.topic in context.deleting:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition"
    if replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{tp} is not being reassigned"
    present = context.replicas(tp)
    if tuple(replicas) == present:
        return ErrorCode.NONE, None
    if not replicas or len(set(replicas)) != len(replicas) or not set(replicas) <= context.brokers.keys():
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the replicas are not live brokers, each once"
    return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{tp} stays on {list(present)}: this version does not move replicas"
