"""DescribeGroups: state, members and assignments of groups. A group that does not exist is Dead, which is no error.

A group that is named more than once is described once: a short request would have a huge answer otherwise. (Kafka
describes it as often as it is named; clients look for groups by name.)
"""

from __future__ import annotations

from functools import partial

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import authorized_operations, refusal
from sparklog.broker.handling.permissions import Allowed
from sparklog.errors import ErrorCode
from sparklog.group.classic.group import Group, GroupState, Member
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeGroupsRequest, DescribeGroupsResponse
from sparklog.protocol.slices import Steps, each_in_steps, each_of
from sparklog.security.access import Operation, Resource, ResourceType

API = ApiKey.DESCRIBE_GROUPS
VERSIONS = range(0, 6)

_Described = DescribeGroupsResponse.DescribedGroup
_Member = _Described.DescribedGroupMember


def handle(broker: BrokerContext, request: ApiRequest[DescribeGroupsRequest]) -> Steps[DescribeGroupsResponse]:
    groups = yield from each_in_steps(partial(_describe, broker, request), dict.fromkeys(request.message.groups))
    return DescribeGroupsResponse(groups=groups)


def _describe(broker: BrokerContext, request: ApiRequest[DescribeGroupsRequest], group_id: str) -> Steps[_Described]:
    resource = Resource(ResourceType.GROUP, group_id)
    refused = refusal(broker, request, Operation.DESCRIBE, resource)
    if refused is not ErrorCode.NONE:
        return _without_members(group_id, refused)
    error, group = broker.groups.describe_group(group_id)
    if error is not ErrorCode.NONE:
        return _without_members(group_id, error)
    is_asked = request.message.include_authorized_operations
    allowed = authorized_operations(broker, request, resource, asked=is_asked)
    if group is None:
        return _without_members(group_id, ErrorCode.NONE, GroupState.DEAD.value, allowed)
    stable = group.state is GroupState.STABLE
    return _Described(
        error_code=int(ErrorCode.NONE),
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=group.protocol or "" if stable else "",
        members=(yield from _members(group, with_data=stable)),
        authorized_operations=allowed,
    )


def _without_members(group_id: str, code: ErrorCode, state: str = "", allowed: Allowed = None) -> _Described:
    return _Described(
        error_code=int(code), group_id=group_id, group_state=state, members=[], authorized_operations=allowed
    )


def _members(group: Group, *, with_data: bool) -> Steps[list[_Member]]:
    """As they are now. Subscription and assignment mean something only while the group is stable."""
    told = [
        (each, each.metadata(group.protocol), each.assignment) if with_data else (each, b"", b"")
        for each in group.members.values()
    ]
    return (yield from each_of(_member, told))


def _member(told: tuple[Member, bytes, bytes]) -> _Member:
    member, metadata, assignment = told
    return _Member(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=metadata,
        member_assignment=assignment,
    )
