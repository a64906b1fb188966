"""OffsetDelete: forget how far a group has read partitions that its members do not read now."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import Message, OffsetDeleteResponse
from sparklog.structs import TopicPartition

API = ApiKey.OFFSET_DELETE
VERSIONS = range(0, 1)

_Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic


async def handle(broker: BrokerContext, request: ApiRequest) -> Message:
    message = request.message
    asked = [TopicPartition(topic.name, each.partition_index) for topic in message.topics for each in topic.partitions]
    deletion = await broker.groups.delete_offsets(message.group_id, [tp for tp in asked if _exists(broker, tp)])
    if deletion.error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=int(deletion.error), topics=[])
    by_topic: dict[str, list[Message]] = {}
    for tp in dict.fromkeys(asked):
        error = deletion.partitions.get(tp, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        by_topic.setdefault(tp.topic, []).append(
            _Topic.OffsetDeleteResponsePartition(partition_index=tp.partition, error_code=int(error))
        )
    return OffsetDeleteResponse(topics=[_Topic(name=name, partitions=each) for name, each in by_topic.items()])


def _exists(broker: BrokerContext, tp: TopicPartition) -> bool:
    topic = broker.metadata.topic(tp.topic)
    return topic is not None and tp.partition in topic.partitions
