"""JoinGroup: a member enters a group, or its next generation.

A member that names more than ``MOST_PROTOCOLS`` protocols is refused: each rebalance looks at those of every member.
(Kafka has no such bound; consumers name one for each assignor that they are configured with.) So is one whose
metadata, that of all protocols together, is more than ``MOST_METADATA``: it is in memory until its session ends, which
may be half an hour after its connection, and no record of ``__consumer_offsets`` could hold the group.
"""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import refusal
from sparklog.errors import ErrorCode
from sparklog.group.classic.group import Protocol
from sparklog.group.classic.requests import JoinAnswer, JoinRequest
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import JoinGroupRequest, JoinGroupResponse
from sparklog.security.access import Operation, Resource, ResourceType

API = ApiKey.JOIN_GROUP
VERSIONS = range(0, 10)
WAITS_FOR_OTHERS = True
MOST_PROTOCOLS = 100
MOST_METADATA = 4 << 20
"""Bytes."""

_FIRST_VERSION_OF_REQUIRED_MEMBER_ID = 4
_FIRST_VERSION_OF_NULL_PROTOCOL = 7
_FIRST_VERSION_OF_SKIPPED_ASSIGNMENT = 9


async def handle(broker: BrokerContext, request: ApiRequest[JoinGroupRequest]) -> JoinGroupResponse:
    message = request.message
    refused = refusal(broker, request, Operation.READ, Resource(ResourceType.GROUP, message.group_id))
    if refused is not ErrorCode.NONE:
        answer = JoinAnswer(refused, "")
    elif len(message.protocols) > MOST_PROTOCOLS or _metadata_size(message) > MOST_METADATA:
        answer = JoinAnswer(ErrorCode.INVALID_REQUEST, message.member_id)
    else:
        answer = await broker.groups.members.join(message.group_id, _join_request(request))
    no_protocol = None if request.version >= _FIRST_VERSION_OF_NULL_PROTOCOL else ""
    return JoinGroupResponse(
        error_code=int(answer.error),
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=no_protocol if answer.protocol is None else answer.protocol,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=each.member_id, group_instance_id=each.instance_id, metadata=each.metadata
            )
            for each in answer.members
        ],
    )


def _metadata_size(message: JoinGroupRequest) -> int:
    return sum(len(each.metadata) for each in message.protocols)


def _join_request(request: ApiRequest[JoinGroupRequest]) -> JoinRequest:
    message = request.message
    # Version 0 has no rebalance timeout; its session timeout serves for both.
    has_timeout = message.rebalance_timeout_ms >= 0
    return JoinRequest(
        member_id=message.member_id,
        instance_id=message.group_instance_id,
        client_id=request.client_id or "",
        client_host=f"/{request.client_host}",  # as Java prints an address, and so as Kafka stores and shows it
        session_timeout_ms=message.session_timeout_ms,
        rebalance_timeout_ms=message.rebalance_timeout_ms if has_timeout else message.session_timeout_ms,
        protocol_type=message.protocol_type,
        protocols=tuple(Protocol(each.name, bytes(each.metadata)) for each in message.protocols),
        needs_member_id=request.version >= _FIRST_VERSION_OF_REQUIRED_MEMBER_ID,
        can_skip_assignment=request.version >= _FIRST_VERSION_OF_SKIPPED_ASSIGNMENT,
    )
