"""DescribeTopicPartitions: topics by name, a bounded number of partitions an answer, and a cursor to go on.

No broker is told which replicas are eligible: they are looked up in ZooKeeper, for partitions that lack a member of
their ISR. While ZooKeeper does not answer none is named.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import Rights, authorized_operations, bits_of
from sparklog.broker.handling.permissions import Allowed
from sparklog.broker.metadata_cache import PartitionMetadata, TopicMetadata
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.files import is_topic_name
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from sparklog.protocol.slices import Steps
from sparklog.protocol.wire import ZERO_UUID
from sparklog.security.access import Operation, Resource, ResourceType
from sparklog.structs import INTERNAL_TOPICS, TopicPartition
from sparklog.zk.znodes import PartitionState

API = ApiKey.DESCRIBE_TOPIC_PARTITIONS
VERSIONS = range(0, 1)
_Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_Partition = _Topic.DescribeTopicPartitionsResponsePartition
_Cursor = DescribeTopicPartitionsResponse.Cursor


def handle(
    broker: BrokerContext, request: ApiRequest[DescribeTopicPartitionsRequest]
) -> Steps[DescribeTopicPartitionsResponse | Awaitable[DescribeTopicPartitionsResponse]]:
    response = yield from _described(broker, request)
    lacking = {
        TopicPartition(topic.name or "", each.partition_index): each
        for topic in response.topics
        for each in topic.partitions
        if len(each.isr_nodes) < len(each.replica_nodes)
    }
    return _with_eligible(broker, response, lacking) if lacking else response


async def _with_eligible(
    broker: BrokerContext, response: DescribeTopicPartitionsResponse, lacking: dict[TopicPartition, _Partition]
) -> DescribeTopicPartitionsResponse:
    with suppress(ApiError):
        for tp, state in (await broker.run_zk(_read_eligible, broker, list(lacking))).items():
            lacking[tp].eligible_leader_replicas = list(state.eligible)
            lacking[tp].last_known_elr = list(state.last_known)
    return response


def _read_eligible(broker: BrokerContext, partitions: list[TopicPartition]) -> dict[TopicPartition, PartitionState]:
    """On the thread that is kept for ZooKeeper."""
    return broker.zk.states.beside(broker.zk.states.read(partitions))


def _described(
    broker: BrokerContext, request: ApiRequest[DescribeTopicPartitionsRequest]
) -> Steps[DescribeTopicPartitionsResponse]:
    message = request.message
    try:
        names = _names(broker, message)
    except ApiError as error:
        return _response([_failed(each.name, error.code) for each in message.topics], None)
    rights = Rights(broker, request, Operation.DESCRIBE, quietly=not message.topics)
    first = message.cursor.partition_index if message.cursor else 0
    room = max(min(broker.config.max_request_partition_size_limit, message.response_partition_limit), 1)
    topics: list[_Topic] = []
    hidden: list[_Topic] = []
    for name in names:
        yield
        if not rights.allows(name):
            hidden += [_hidden(name)] if message.topics else []
            continue
        if room == 0:
            return _response(topics + hidden, _Cursor(topic_name=name, partition_index=0))
        start = first if message.cursor and name == message.cursor.topic_name else 0
        topic = broker.metadata.topic(name)
        allowed = authorized_operations(broker, request, Resource(ResourceType.TOPIC, name))
        if topic is None:
            topics.append(_unknown(name, allowed))
            continue
        partitions = sorted(topic.partitions.items())[start : start + room]
        topics.append(_describe(broker, topic, partitions, allowed))
        room -= len(partitions)
        if start + len(partitions) < len(topic.partitions):
            cursor = _Cursor(topic_name=name, partition_index=start + len(partitions))
            return _response(topics + hidden, cursor)
    return _response(topics + hidden, None)


def _names(broker: BrokerContext, message: DescribeTopicPartitionsRequest) -> list[str]:
    """The topics asked for (all if none is named), from the cursor's on."""
    cursor = message.cursor
    named = {each.name for each in message.topics} or {each.name for each in broker.metadata.topics()}
    if cursor is None:
        return sorted(named)
    if cursor.partition_index < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a cursor at partition {cursor.partition_index}")
    if message.topics and cursor.topic_name not in named:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a cursor at topic {cursor.topic_name!r}, which is not asked for")
    return sorted(name for name in named if name >= cursor.topic_name)


def _response(topics: list[_Topic], cursor: _Cursor | None) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=topics, next_cursor=cursor)


def _unknown(name: str, allowed: Allowed) -> _Topic:
    valid = is_topic_name(name)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if valid else ErrorCode.INVALID_TOPIC_EXCEPTION
    return _failed(name, code, allowed)


def _failed(name: str, code: ErrorCode, allowed: Allowed = None) -> _Topic:
    return _Topic(
        error_code=code,
        name=name,
        topic_id=ZERO_UUID,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
        topic_authorized_operations=bits_of(allowed),
    )


def _hidden(name: str) -> _Topic:
    return _Topic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        name=name,
        topic_id=ZERO_UUID,
        is_internal=False,
        partitions=[],
        topic_authorized_operations=bits_of(None),
    )


def _describe(
    broker: BrokerContext,
    topic: TopicMetadata,
    partitions: list[tuple[int, PartitionMetadata]],
    allowed: Allowed,
) -> _Topic:
    return _Topic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        topic_authorized_operations=bits_of(allowed),
        partitions=[
            _Partition(
                error_code=ErrorCode.NONE,
                partition_index=number,
                leader_id=each.leader if each.leader in broker.metadata.brokers else -1,
                leader_epoch=each.leader_epoch,
                replica_nodes=each.replicas,
                isr_nodes=each.isr,
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=broker.metadata.offline(each),
            )
            for number, each in partitions
        ],
    )
