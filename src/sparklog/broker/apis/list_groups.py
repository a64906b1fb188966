"""ListGroups: the groups that this broker coordinates, optionally those in some states or of some type only."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ListGroupsResponse, Message

API = ApiKey.LIST_GROUPS
VERSIONS = range(0, 6)

_TYPE = "classic"


def handle(broker: BrokerContext, request: ApiRequest) -> Message:
    states = {each.lower() for each in request.message.states_filter or ()}
    types = {each.lower() for each in request.message.types_filter or ()}
    error, groups = broker.groups.list_groups()
    listed = [
        ListGroupsResponse.ListedGroup(
            group_id=each.group_id,
            protocol_type=each.protocol_type or "",
            group_state=each.state.value,
            group_type=_TYPE,
        )
        for each in groups
        if (not states or each.state.value.lower() in states) and (not types or _TYPE in types)
    ]
    return ListGroupsResponse(error_code=int(error), groups=listed)
