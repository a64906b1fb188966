"""OffsetDelete: forget how far a group has read partitions that its members do not read now."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import OffsetDeleteRequest, OffsetDeleteResponse
from sparklog.protocol.slices import Steps, each_of
from sparklog.structs import TopicPartition

API = ApiKey.OFFSET_DELETE
VERSIONS = range(0, 1)

_SLICE = 500
_GONE = {ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.NONE}
"""The group goes with the last of its offsets."""
_AskedTopic = OffsetDeleteRequest.OffsetDeleteRequestTopic
_Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic


def handle(broker: BrokerContext, request: ApiRequest[OffsetDeleteRequest]) -> Steps[Awaitable[OffsetDeleteResponse]]:
    """``asked``: the partitions, and whether there are such."""
    asked: dict[TopicPartition, bool] = {}

    def take(topic: _AskedTopic, partition: _AskedTopic.OffsetDeleteRequestPartition) -> None:
        tp = TopicPartition(topic.name, partition.partition_index)
        asked[tp] = broker.metadata.knows(tp)

    for topic in request.message.topics:
        yield from each_of(partial(take, topic), topic.partitions)
    return _delete(broker, request.message.group_id, asked)


async def _delete(broker: BrokerContext, group_id: str, asked: dict[TopicPartition, bool]) -> OffsetDeleteResponse:
    """A slice of the partitions at a time: what is refused as a whole is so from the first slice on."""
    there = [tp for tp, exists in asked.items() if exists]
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
        error = codes.get(tp, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        by_topic.setdefault(tp.topic, []).append(
            _Topic.OffsetDeleteResponsePartition(partition_index=tp.partition, error_code=int(error))
        )
    return OffsetDeleteResponse(topics=[_Topic(name=name, partitions=each) for name, each in by_topic.items()])
