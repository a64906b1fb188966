"""LeaveGroup: one member leaves, or from version 3 on several are removed."""

from __future__ import annotations

from collections.abc import Awaitable

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import refusal
from sparklog.errors import ErrorCode
from sparklog.group.classic.requests import MemberIdentity
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import LeaveGroupRequest, LeaveGroupResponse
from sparklog.protocol.slices import Steps, each_of
from sparklog.security.access import Operation, Resource, ResourceType

API = ApiKey.LEAVE_GROUP
VERSIONS = range(0, 6)

_FIRST_BATCHED_VERSION = 3


def handle(
    broker: BrokerContext, request: ApiRequest[LeaveGroupRequest]
) -> Steps[LeaveGroupResponse | Awaitable[LeaveGroupResponse]]:
    message = request.message
    refused = refusal(broker, request, Operation.READ, Resource(ResourceType.GROUP, message.group_id))
    if refused is not ErrorCode.NONE:
        return LeaveGroupResponse(error_code=int(refused), members=[])
    if request.version < _FIRST_BATCHED_VERSION:
        yield from ()
        return _leave(broker, message)
    leaving = yield from each_of(_identity, message.members)
    return _remove(broker, message.group_id, leaving)


def _identity(member: LeaveGroupRequest.MemberIdentity) -> MemberIdentity:
    return MemberIdentity(member.member_id, member.group_instance_id)


async def _leave(broker: BrokerContext, message: LeaveGroupRequest) -> LeaveGroupResponse:
    answer = await broker.groups.members.leave(message.group_id, [MemberIdentity(message.member_id, None)])
    error = answer.error if answer.error is not ErrorCode.NONE else answer.members[0]
    return LeaveGroupResponse(error_code=int(error))


async def _remove(broker: BrokerContext, group_id: str, leaving: list[MemberIdentity]) -> LeaveGroupResponse:
    answer = await broker.groups.members.leave(group_id, leaving)
    # A request that failed as a whole has no errors of its members.
    removed = zip(leaving, answer.members, strict=answer.error is ErrorCode.NONE)
    members = [
        LeaveGroupResponse.MemberResponse(
            member_id=each.member_id, group_instance_id=each.instance_id, error_code=int(error)
        )
        async for each, error in broker.turns.paced(removed)
    ]
    return LeaveGroupResponse(error_code=int(answer.error), members=members)
