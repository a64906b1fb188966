"""LeaveGroup: one member leaves, or from version 3 on several are removed."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ErrorCode
from sparklog.group.classic.requests import MemberIdentity
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import LeaveGroupRequest, LeaveGroupResponse

API = ApiKey.LEAVE_GROUP
VERSIONS = range(0, 6)

_FIRST_BATCHED_VERSION = 3


async def handle(broker: BrokerContext, request: ApiRequest[LeaveGroupRequest]) -> LeaveGroupResponse:
    message = request.message
    if request.version < _FIRST_BATCHED_VERSION:
        answer = await broker.groups.members.leave(message.group_id, [MemberIdentity(message.member_id, None)])
        error = answer.error if answer.error is not ErrorCode.NONE else answer.members[0]
        return LeaveGroupResponse(error_code=int(error))
    leaving = [MemberIdentity(each.member_id, each.group_instance_id) for each in message.members]
    answer = await broker.groups.members.leave(message.group_id, leaving)
    members = [
        LeaveGroupResponse.MemberResponse(
            member_id=each.member_id, group_instance_id=each.instance_id, error_code=int(error)
        )
        # A request that failed as a whole has no errors of its members.
        for each, error in zip(leaving, answer.members, strict=answer.error is ErrorCode.NONE)
    ]
    return LeaveGroupResponse(error_code=int(answer.error), members=members)
