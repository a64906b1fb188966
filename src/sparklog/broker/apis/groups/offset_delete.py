"""OffsetDelete: forget how far a group has read partitions that its members do not read now."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import Rights, refusal
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import OffsetDeleteRequest, OffsetDeleteResponse
from sparklog.protocol.slices import Steps, each_of
from sparklog.security.access import Operation, Resource, ResourceType
from sparklog.structs import TopicPartition

API = ApiKey.OFFSET_DELETE
VERSIONS = range(0, 1)

_SLICE = 500
_GONE = {ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.NONE}
"""The group goes with the last of its offsets."""
_AskedTopic = OffsetDeleteRequest.OffsetDeleteRequestTopic
_Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic


def handle(
    broker: BrokerContext, request: ApiRequest[OffsetDeleteRequest]
) -> Steps[OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]]:
    """``asked``: the partitions, and why nothing can be forgotten of one."""
    refused = refusal(broker, request, Operation.DELETE, Resource(ResourceType.GROUP, request.message.group_id))
    if refused is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=int(refused), topics=[])
    rights = Rights(broker, request, Operation.READ)
    asked: dict[TopicPartition, ErrorCode] = {}

    def take(topic: _AskedTopic, partition: _AskedTopic.OffsetDeleteRequestPartition) -> None:
        tp = TopicPartition(topic.name, partition.partition_index)
        if not rights.allows(tp.topic):
            asked[tp] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        else:
            known = broker.metadata.knows(tp)
            asked[tp] = ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    for topic in request.message.topics:
        yield from each_of(partial(take, topic), topic.partitions)
    return _delete(broker, request.message.group_id, asked)


async def _delete(broker: BrokerContext, group_id: str, asked: dict[TopicPartition, ErrorCode]) -> OffsetDeleteResponse:
    """A slice of the partitions at a time: what is refused as a whole is so from the first slice on."""
    there = [tp for tp, code in asked.items() if code is ErrorCode.NONE]
    deletion = await broker.groups.delete_offsets(group_id, there[:_SLICE])
    if deletion.error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=int(deletion.error), topics=[])
    codes = dict(deletion.partitions)
    async for start in broker.turns.paced(range(_SLICE, len(there), _SLICE)):
        some = there[start : start + _SLICE]
        deletion = await broker.groups.delete_offsets(group_id, some)
        codes |= dict.fromkeys(some, _GONE.get(deletion.error, deletion.error)) | deletion.partitions
    by_topic: dict[str, list[_Topic.OffsetDeleteResponsePartition]] = {}
    async for tp in broker.turns.paced(asked):
        error = codes.get(tp, asked[tp])
        by_topic.setdefault(tp.topic, []).append(
            _Topic.OffsetDeleteResponsePartition(partition_index=tp.partition, error_code=int(error))
        )
    return OffsetDeleteResponse(topics=[_Topic(name=name, partitions=each) for name, each in by_topic.items()])
