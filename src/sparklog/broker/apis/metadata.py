"""Metadata: the brokers, and who leads the partitions of the topics asked for; makes missing topics where it may.

A broker that has just started is connected to before the controller has told it of anybody. It lets clients wait: from
an answer without brokers librdkafka does not recover before its next refresh, minutes later.
"""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.metadata_cache import PartitionMetadata, TopicMetadata
from sparklog.broker.permissions import ON_CLUSTER, ON_TOPIC, Allowed, authorized_operations
from sparklog.broker.topics import INTERNAL_TOPICS
from sparklog.errors import ErrorCode
from sparklog.log.files import is_topic_name
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import Message, MetadataResponse
from sparklog.protocol.wire import ZERO_UUID

API = ApiKey.METADATA
VERSIONS = range(0, 14)
_Topic = MetadataResponse.MetadataResponseTopic
_PATIENCE_S = 20.0
"""Less than clients wait for an answer."""


async def handle(broker: BrokerContext, request: ApiRequest) -> Message:
    await broker.metadata.wait_for(lambda: bool(broker.metadata.brokers), _PATIENCE_S)
    asked = request.message.topics
    allowed = authorized_operations(request.message.include_topic_authorized_operations, ON_TOPIC)
    if asked is None or (request.version == 0 and not asked):
        topics = [_describe(broker, topic, allowed) for topic in broker.metadata.topics()]
    else:
        may_create = request.message.allow_auto_topic_creation and broker.config.auto_create_topics_enable
        distinct = {(each.name, each.topic_id): each for each in asked}.values()
        topics = [await _answer(broker, each, may_create, allowed) for each in distinct]
    cache = broker.metadata
    return MetadataResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=info.id, host=info.endpoint.host, port=info.endpoint.port, rack=info.rack
            )
            for info in cache.brokers.values()
        ],
        cluster_id=broker.cluster_id,
        authorized_operations=authorized_operations(request.message.include_cluster_authorized_operations, ON_CLUSTER),
        controller_id=cache.controller_id if cache.controller_id in cache.brokers else -1,
        topics=topics,
    )


async def _answer(broker: BrokerContext, asked: Message, may_create: bool, allowed: Allowed) -> Message:
    name = asked.name
    if name is None:
        name = broker.metadata.name_of(asked.topic_id)
        if name is None:
            return _error(ErrorCode.UNKNOWN_TOPIC_ID, None, allowed, asked.topic_id)
    topic = broker.metadata.topic(name)
    if topic is None and not is_topic_name(name):
        return _error(ErrorCode.INVALID_TOPIC_EXCEPTION, name, allowed)
    if topic is None and may_create:
        error = await broker.topics.ensure(name)
        if error is not ErrorCode.NONE:
            return _error(error, name, allowed)
        topic = broker.metadata.topic(name)
    if topic is None:
        return _error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, allowed)
    return _describe(broker, topic, allowed)


def _error(code: ErrorCode, name: str | None, allowed: Allowed, topic_id: object = ZERO_UUID) -> Message:
    return _Topic(
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
        authorized_operations=allowed,
    )


def _describe(broker: BrokerContext, topic: TopicMetadata, allowed: Allowed) -> Message:
    return _Topic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(broker, number, each) for number, each in sorted(topic.partitions.items())],
        authorized_operations=allowed,
    )


def _partition(broker: BrokerContext, number: int, partition: PartitionMetadata) -> Message:
    lives = partition.leader in broker.metadata.brokers
    return _Topic.MetadataResponsePartition(
        error_code=ErrorCode.NONE if lives else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=number,
        leader_id=partition.leader if lives else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=partition.offline,
    )
