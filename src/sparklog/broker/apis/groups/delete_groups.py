"""DeleteGroups: forget groups that have no members, with their offsets. Answered once that is replicated."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import refusal
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DeleteGroupsRequest, DeleteGroupsResponse
from sparklog.security.access import Operation, Resource, ResourceType

API = ApiKey.DELETE_GROUPS
VERSIONS = range(0, 3)


async def handle(broker: BrokerContext, request: ApiRequest[DeleteGroupsRequest]) -> DeleteGroupsResponse:
    names = dict.fromkeys(request.message.groups_names)
    results = [
        DeleteGroupsResponse.DeletableGroupResult(
            group_id=group_id, error_code=int(await _delete(broker, request, group_id))
        )
        async for group_id in broker.turns.paced(names)
    ]
    return DeleteGroupsResponse(results=results)


async def _delete(broker: BrokerContext, request: ApiRequest[DeleteGroupsRequest], group_id: str) -> ErrorCode:
    refused = refusal(broker, request, Operation.DELETE, Resource(ResourceType.GROUP, group_id))
    return refused if refused is not ErrorCode.NONE else await broker.groups.delete_group(group_id)
