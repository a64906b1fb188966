"""Heartbeat: a member is alive, and learns whether its group is rebalancing."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import refusal
from sparklog.errors import ErrorCode
from sparklog.group.classic.requests import MemberIdentity
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import HeartbeatRequest, HeartbeatResponse
from sparklog.security.access import Operation, Resource, ResourceType

API = ApiKey.HEARTBEAT
VERSIONS = range(0, 5)


def handle(broker: BrokerContext, request: ApiRequest[HeartbeatRequest]) -> HeartbeatResponse:
    message = request.message
    refused = refusal(broker, request, Operation.READ, Resource(ResourceType.GROUP, message.group_id))
    if refused is not ErrorCode.NONE:
        return HeartbeatResponse(error_code=int(refused))
    identity = MemberIdentity(message.member_id, message.group_instance_id, message.generation_id)
    return HeartbeatResponse(error_code=int(broker.groups.members.heartbeat(message.group_id, identity)))
