"""ListGroups: the groups that this broker coordinates, optionally those in some states or of some type only."""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import Rights
from sparklog.group.classic.group import Group
from sparklog.group.consumer.group import ConsumerGroup
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ListGroupsRequest, ListGroupsResponse
from sparklog.protocol.slices import Steps, each_of
from sparklog.protocol.subscription import PROTOCOL_TYPE
from sparklog.security.access import CLUSTER, Operation, ResourceType

API = ApiKey.LIST_GROUPS
VERSIONS = range(0, 6)


def handle(broker: BrokerContext, request: ApiRequest[ListGroupsRequest]) -> Steps[ListGroupsResponse]:
    states = {each.lower() for each in request.message.states_filter or ()}
    types = {each.lower() for each in request.message.types_filter or ()}
    may_hear_of = _may_hear_of(broker, request)
    error, groups = yield from broker.groups.list_groups()
    allowed = yield from each_of(lambda group: may_hear_of(group.group_id), groups)
    listed = [
        each
        for each in (yield from each_of(_listed, compress(groups, allowed)))
        if (not states or each.group_state.lower() in states) and (not types or each.group_type in types)
    ]
    return ListGroupsResponse(error_code=int(error), groups=listed)


def _may_hear_of(broker: BrokerContext, request: ApiRequest[ListGroupsRequest]) -> Callable[[str], bool]:
    """Of all groups, if the caller may describe the cluster."""
    if broker.authorizer.allows_quietly(request.caller, Operation.DESCRIBE, CLUSTER):
        return lambda _: True
    return Rights(broker, request, Operation.DESCRIBE, ResourceType.GROUP, quietly=True).allows


def _listed(group: Group | ConsumerGroup) -> ListGroupsResponse.ListedGroup:
    if isinstance(group, Group):
        group_type, protocol_type = "classic", group.protocol_type or ""
    else:
        group_type, protocol_type = "consumer", PROTOCOL_TYPE
    return ListGroupsResponse.ListedGroup(
        group_id=group.group_id, protocol_type=protocol_type, group_state=group.state.value, group_type=group_type
    )
