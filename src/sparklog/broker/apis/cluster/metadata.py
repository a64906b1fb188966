"""Metadata: the brokers, and who leads the partitions of the topics asked for; makes missing topics where it may.

A broker that has just started is connected to before the controller has told it of any broker. It lets clients wait:
from an answer without brokers librdkafka does not recover before its next refresh, minutes later.

A topic that the caller may not describe is left out where all are asked for, and refused unseen where it is named. An
id is no secret: whoever names one that is known hears so, but not by what name.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from itertools import compress
from uuid import UUID

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import (
    Rights,
    authorized_on_cluster,
    authorized_operations,
    creation_rights,
    is_open,
)
from sparklog.broker.handling.permissions import Allowed
from sparklog.broker.metadata_cache import PartitionMetadata, TopicMetadata
from sparklog.broker.topics import PATIENCE_S
from sparklog.errors import ErrorCode
from sparklog.log.files import is_topic_name
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import Encoded, MetadataRequest, MetadataResponse
from sparklog.protocol.slices import Shared, Steps, each_of, encoding
from sparklog.protocol.wire import ZERO_UUID
from sparklog.security.access import Operation, Resource, ResourceType
from sparklog.structs import INTERNAL_TOPICS

API = ApiKey.METADATA
VERSIONS = range(0, 14)
_Topic = MetadataResponse.MetadataResponseTopic
Answer = MetadataResponse | Encoded
_FIRST_VERSION_OF_LISTENERS = 6
_FIRST_VERSION_OF_THROTTLE = 3
_PATIENCE_S = 20.0
"""Less than clients wait for an answer."""


def handle(broker: BrokerContext, request: ApiRequest[MetadataRequest]) -> Steps[Answer | Awaitable[Answer]]:
    if not _can_tell(broker):
        return _wait(broker, request)
    return (yield from _tell(broker, request))


def _can_tell(broker: BrokerContext) -> bool:
    return broker.metadata.has_been_told and bool(broker.metadata.brokers)


def _tell(broker: BrokerContext, request: ApiRequest[MetadataRequest]) -> Steps[Answer | Awaitable[Answer]]:
    asked = request.message.topics
    if asked is None or (request.version == 0 and not asked):
        return (yield from _all(broker, request))
    rights = Rights(broker, request, Operation.DESCRIBE)
    if request.message.allow_auto_topic_creation and broker.config.auto_create_topics_enable:
        for each in asked:
            if each.name is not None and _is_missing(broker, rights, each.name):
                return _create(broker, request, rights)
            yield
    return (yield from _some(broker, request, rights, {}))


def _is_missing(broker: BrokerContext, rights: Rights, name: str) -> bool:
    """Whether there is no such topic, as far as the caller may know."""
    return rights.allows(name) and broker.metadata.topic(name) is None


async def _wait(broker: BrokerContext, request: ApiRequest[MetadataRequest]) -> Answer:
    """As ``handle``, after the controller has told of a broker."""
    await broker.metadata.wait_for(lambda: _can_tell(broker), _PATIENCE_S)
    return await broker.turns.outcome(_tell(broker, request), lambda: "METADATA")


async def _create(broker: BrokerContext, request: ApiRequest[MetadataRequest], rights: Rights) -> Answer:
    """As ``handle``, with the missing topics made first; those that cannot be are told with the error.

    The client waits for all of them together no longer than for one; it asks again for those whose turn does not come.
    They count as changes of the client. As with Kafka that holds up its next change, not this answer.
    """
    errors: dict[str, ErrorCode] = {}
    may_create = creation_rights(broker, request)
    changes = broker.quotas.changes(request.caller, request.client_id, is_strict=False)
    until = broker.turns.time() + PATIENCE_S
    async for each in broker.turns.paced(request.message.topics or ()):
        name = each.name
        if name is None or name in errors or not _is_missing(broker, rights, name):
            continue
        left_s = until - broker.turns.time()
        if not may_create(name):
            errors[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif is_topic_name(name):
            if left_s > 0 and not broker.topics.is_making(name):
                changes.take(broker.topics.partition_count(-1))
            errors[name] = await broker.topics.ensure(name, left_s) if left_s > 0 else ErrorCode.LEADER_NOT_AVAILABLE
    refused: dict[str, ErrorCode] = {name: error for name, error in errors.items() if error is not ErrorCode.NONE}
    return await broker.turns.drive(_some(broker, request, rights, refused), lambda: "METADATA")


def _all(broker: BrokerContext, request: ApiRequest[MetadataRequest]) -> Steps[Encoded]:
    """Encoded once for all that ask the same before the next change, and may be told of all topics."""
    message, answers = request.message, broker.metadata.answers
    for_topics, for_cluster = (
        message.include_topic_authorized_operations,
        message.include_cluster_authorized_operations,
    )
    topics = broker.metadata.topics()
    if not is_open(broker):
        described = yield from _described(broker, request, topics)
        is_same = len(described) == len(topics) and answers is broker.metadata.answers
        if for_topics or for_cluster or not is_same:
            return Encoded((yield from _encode_all(broker, request, described)), _FIRST_VERSION_OF_THROTTLE)
    key = (request.version, for_topics, for_cluster, request.caller.listener)
    if key not in answers:
        answers[key] = Shared(_encode_all(broker, request, topics))
    return Encoded((yield from answers[key].steps()), _FIRST_VERSION_OF_THROTTLE)


def _described(
    broker: BrokerContext, request: ApiRequest[MetadataRequest], topics: list[TopicMetadata]
) -> Steps[list[TopicMetadata]]:
    """Those of which the caller may hear."""
    rights = Rights(broker, request, Operation.DESCRIBE, quietly=True)
    allowed = yield from each_of(lambda topic: rights.allows(topic.name), topics)
    return [*compress(topics, allowed)]


def _encode_all(
    broker: BrokerContext, request: ApiRequest[MetadataRequest], described: list[TopicMetadata]
) -> Steps[bytes]:
    topics = []
    for topic in described:
        topics.append((yield from _describe(broker, request, topic, _operations(broker, request, topic.name))))
    return (yield from encoding(_response(broker, request, topics), request.version))


def _operations(broker: BrokerContext, request: ApiRequest[MetadataRequest], topic: str) -> Allowed:
    is_asked = request.message.include_topic_authorized_operations
    return authorized_operations(broker, request, Resource(ResourceType.TOPIC, topic), asked=is_asked)


def _some(
    broker: BrokerContext, request: ApiRequest[MetadataRequest], rights: Rights, refused: dict[str, ErrorCode]
) -> Steps[MetadataResponse]:
    topics: list[_Topic] = []
    seen: set[str | UUID | None] = set()
    for each in request.message.topics or ():
        # Where there is a name the id beside it counts for nothing.
        name = each.name if each.name is not None else broker.metadata.name_of(each.topic_id)
        is_hidden = name is None or (each.name is None and not rights.allows(name))
        key = each.topic_id if is_hidden else name
        if key not in seen:
            seen.add(key)
            topics.append((yield from _answer(broker, request, each, name, rights, refused)))
        yield
    return _response(broker, request, topics)


def _response(broker: BrokerContext, request: ApiRequest[MetadataRequest], topics: list[_Topic]) -> MetadataResponse:
    cache = broker.metadata
    return MetadataResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=info.id, host=endpoint.host, port=endpoint.port, rack=info.rack
            )
            for info, endpoint in cache.on(request.caller.listener)
        ],
        cluster_id=broker.cluster_id,
        authorized_operations=authorized_on_cluster(
            broker, request, asked=request.message.include_cluster_authorized_operations
        ),
        controller_id=cache.controller_id if cache.controller_id in cache.brokers else -1,
        topics=topics,
    )


def _answer(
    broker: BrokerContext,
    request: ApiRequest[MetadataRequest],
    asked: MetadataRequest.MetadataRequestTopic,
    name: str | None,
    rights: Rights,
    refused: dict[str, ErrorCode],
) -> Steps[_Topic]:
    """``name``: of the topic that is asked for, by name or by id; None if its id is not known."""
    if name is None:
        return _error(ErrorCode.UNKNOWN_TOPIC_ID, None, None, asked.topic_id)
    if not rights.allows(name):
        return _hidden(asked)
    topic = broker.metadata.topic(name)
    allowed = _operations(broker, request, name)
    if name in refused:
        is_unauthorized = refused[name] is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return _error(refused[name], name, None if is_unauthorized else allowed)
    if topic is None:
        is_possible = is_topic_name(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_possible else ErrorCode.INVALID_TOPIC_EXCEPTION
        return _error(code, name, allowed)
    return (yield from _describe(broker, request, topic, allowed))


def _hidden(asked: MetadataRequest.MetadataRequestTopic) -> _Topic:
    """What was asked is said again, and nothing else."""
    return _Topic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        name=asked.name,
        topic_id=ZERO_UUID if asked.name is not None else asked.topic_id,
        is_internal=False,
        partitions=[],
        authorized_operations=None,
    )


def _error(code: ErrorCode, name: str | None, allowed: Allowed, topic_id: UUID | None = ZERO_UUID) -> _Topic:
    return _Topic(
        error_code=code,
        name=name,
        topic_id=topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
        authorized_operations=allowed,
    )


def _describe(
    broker: BrokerContext, request: ApiRequest[MetadataRequest], topic: TopicMetadata, allowed: Allowed
) -> Steps[_Topic]:
    partitions = yield from each_of(partial(_partition, broker, request), sorted(topic.partitions.items()))
    return _Topic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        authorized_operations=allowed,
    )


def _partition(
    broker: BrokerContext, request: ApiRequest[MetadataRequest], numbered: tuple[int, PartitionMetadata]
) -> _Topic.MetadataResponsePartition:
    number, partition = numbered
    code, lives = ErrorCode.NONE, broker.metadata.takes_clients(partition.leader)
    if not lives:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    elif not broker.metadata.is_on(partition.leader, request.caller.listener):
        knows = request.version >= _FIRST_VERSION_OF_LISTENERS
        code, lives = ErrorCode.LISTENER_NOT_FOUND if knows else ErrorCode.LEADER_NOT_AVAILABLE, False
    return _Topic.MetadataResponsePartition(
        error_code=code,
        partition_index=number,
        leader_id=partition.leader if lives else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=broker.metadata.offline(partition),
    )
