"""SyncGroup: the leader brings the assignment, and every member fetches its share."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import refusal
from sparklog.errors import ErrorCode
from sparklog.group.classic.requests import SyncRequest
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import SyncGroupRequest, SyncGroupResponse
from sparklog.security.access import Operation, Resource, ResourceType

API = ApiKey.SYNC_GROUP
VERSIONS = range(0, 6)
WAITS_FOR_OTHERS = True
_NAMES_PROTOCOL = 5
"""From this version on a member must say what it takes part in."""


async def handle(broker: BrokerContext, request: ApiRequest[SyncGroupRequest]) -> SyncGroupResponse:
    message = request.message
    if request.version >= _NAMES_PROTOCOL and None in (message.protocol_type, message.protocol_name):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, assignment=b"")
    refused = refusal(broker, request, Operation.READ, Resource(ResourceType.GROUP, message.group_id))
    if refused is not ErrorCode.NONE:
        return SyncGroupResponse(error_code=int(refused), assignment=b"")
    answer = await broker.groups.members.sync(
        message.group_id,
        SyncRequest(
            member_id=message.member_id,
            instance_id=message.group_instance_id,
            generation=message.generation_id,
            protocol_type=message.protocol_type,
            protocol=message.protocol_name,
            assignments={each.member_id: bytes(each.assignment) for each in message.assignments},
        ),
    )
    return SyncGroupResponse(
        error_code=int(answer.error),
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol,
        assignment=answer.assignment,
    )
