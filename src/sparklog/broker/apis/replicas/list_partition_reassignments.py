"""ListPartitionReassignments: which replicas are on the move; answered by the controller."""

from __future__ import annotations

from collections.abc import Iterable

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import check
from sparklog.controller.context import ControllerContext
from sparklog.controller.reassignment import in_progress
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
from sparklog.protocol.slices import Steps
from sparklog.security.access import Operation
from sparklog.structs import TopicPartition

API = ApiKey.LIST_PARTITION_REASSIGNMENTS
VERSIONS = range(0, 1)
_Topic = ListPartitionReassignmentsResponse.OngoingTopicReassignment


def handle(
    broker: BrokerContext, request: ApiRequest[ListPartitionReassignmentsRequest]
) -> Steps[ListPartitionReassignmentsResponse]:
    try:
        check(broker, request, Operation.DESCRIBE)
    except ApiError as refused:
        return _response(refused.code, refused.reason, [])
    context = broker.controller.context
    if context is None:
        return _response(ErrorCode.NOT_CONTROLLER, "this broker is not the controller", [])
    topics: dict[str, _Topic] = {}
    told = set[TopicPartition]()
    for tp in _asked(context, request.message):
        yield
        move = in_progress(context, tp)
        if move is not None and tp not in told:
            told.add(tp)
            topic = topics.setdefault(tp.topic, _Topic(name=tp.topic, partitions=[]))
            topic.partitions.append(
                _Topic.OngoingPartitionReassignment(
                    partition_index=tp.partition,
                    replicas=list(move.replicas),
                    adding_replicas=list(move.adding),
                    removing_replicas=list(move.removing),
                )
            )
    return _response(ErrorCode.NONE, "", list(topics.values()))


def _asked(context: ControllerContext, message: ListPartitionReassignmentsRequest) -> Iterable[TopicPartition]:
    """All that may move, if the request names none."""
    if message.topics is None:
        return sorted(context.moving | context.departures.keys())
    return (TopicPartition(topic.name, number) for topic in message.topics for number in topic.partition_indexes)


def _response(code: ErrorCode, text: str, topics: list[_Topic]) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(throttle_time_ms=0, error_code=code, error_message=text, topics=topics)
