"""DeleteGroups: forget groups that have no members, with their offsets. Answered once that is replicated."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DeleteGroupsRequest, DeleteGroupsResponse

API = ApiKey.DELETE_GROUPS
VERSIONS = range(0, 3)


async def handle(broker: BrokerContext, request: ApiRequest[DeleteGroupsRequest]) -> DeleteGroupsResponse:
    names = dict.fromkeys(request.message.groups_names)
    results = [
        DeleteGroupsResponse.DeletableGroupResult(
            group_id=group_id, error_code=int(await broker.groups.delete_group(group_id))
        )
        async for group_id in broker.turns.paced(names)
    ]
    return DeleteGroupsResponse(results=results)
