"""Heartbeat: a member is alive, and learns whether its group is rebalancing."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.group.classic.requests import MemberIdentity
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import HeartbeatRequest, HeartbeatResponse

API = ApiKey.HEARTBEAT
VERSIONS = range(0, 5)


def handle(broker: BrokerContext, request: ApiRequest[HeartbeatRequest]) -> HeartbeatResponse:
    message = request.message
    identity = MemberIdentity(message.member_id, message.group_instance_id, message.generation_id)
    return HeartbeatResponse(error_code=int(broker.groups.members.heartbeat(message.group_id, identity)))
