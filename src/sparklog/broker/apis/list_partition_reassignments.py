"""ListPartitionReassignments: which replicas are moving: none ever are."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse

API = ApiKey.LIST_PARTITION_REASSIGNMENTS
VERSIONS = range(0, 1)


def handle(
    broker: BrokerContext, request: ApiRequest[ListPartitionReassignmentsRequest]
) -> ListPartitionReassignmentsResponse:
    active = broker.controller.is_active
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE if active else ErrorCode.NOT_CONTROLLER,
        error_message=None if active else "this broker is not the controller",
        topics=[],
    )
