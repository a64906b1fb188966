"""DeleteGroups: forget groups that have no members, with their offsets. Answered once that is replicated."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DeleteGroupsResponse, Message

API = ApiKey.DELETE_GROUPS
VERSIONS = range(0, 3)


async def handle(broker: BrokerContext, request: ApiRequest) -> Message:
    names = dict.fromkeys(request.message.groups_names)
    errors = {each: await broker.groups.delete_group(each) async for each in broker.turns.paced(names)}
    results = [
        DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=int(error))
        for group_id, error in errors.items()
    ]
    return DeleteGroupsResponse(results=results)
