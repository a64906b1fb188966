"""CreateTopics: answered by the controller, once each topic has leaders or the time is up."""

from __future__ import annotations

from collections import Counter

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.topics import check_replication_factor, check_topic_name
from sparklog.config.definition import definitions
from sparklog.config.topic import TopicConfig
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import CreateTopicsResponse, Message
from sparklog.protocol.wire import ZERO_UUID
from sparklog.zk.znodes import TopicAssignment

API = ApiKey.CREATE_TOPICS
VERSIONS = range(2, 8)
_Result = CreateTopicsResponse.CreatableTopicResult


async def handle(broker: BrokerContext, request: ApiRequest) -> Message:
    message = request.message
    asked = Counter(topic.name for topic in message.topics)
    results = []
    for topic in message.topics:
        try:
            if not broker.controller.is_active:
                raise ApiError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
            if asked[topic.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} stands twice in the request")
            results.append(await _create(broker, topic, message.timeout_ms / 1000, message.validate_only))
        except ApiError as error:
            results.append(_refused(topic.name, error))
    return CreateTopicsResponse(throttle_time_ms=0, topics=results)


def _refused(name: str, error: ApiError) -> Message:
    return _Result(
        name=name,
        topic_id=ZERO_UUID,
        error_code=error.code,
        error_message=error.reason,
        topic_config_error_code=ErrorCode.NONE,
        num_partitions=-1,
        replication_factor=-1,
        configs=[],
    )


async def _create(broker: BrokerContext, topic: Message, timeout: float, validate_only: bool) -> Message:
    if broker.metadata.topic(topic.name) is not None:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {topic.name!r} exists already")
    properties = {each.name: each.value for each in topic.configs}
    assignment, config = broker.topics.plan(topic.name, topic.num_partitions, topic.replication_factor, properties)
    if topic.assignments:
        if (topic.num_partitions, topic.replication_factor) != (-1, -1):
            raise ApiError(ErrorCode.INVALID_REQUEST, "either choose the brokers, or count partitions and replicas")
        assignment = _manual(broker, topic, assignment)
    if not validate_only:
        await broker.topics.create(assignment, config, timeout=timeout)
    effective = {name: broker.settings.layers.of_topic(name, config)[0] for name in definitions(TopicConfig)}
    return _Result(
        name=topic.name,
        topic_id=ZERO_UUID if validate_only else assignment.topic_id or ZERO_UUID,
        error_code=ErrorCode.NONE,
        error_message=None,
        topic_config_error_code=ErrorCode.NONE,
        num_partitions=len(assignment.partitions),
        replication_factor=len(next(iter(assignment.partitions.values()))),
        configs=[
            _Result.CreatableTopicConfigs(
                name=name,
                value=found.text,
                read_only=False,
                config_source=found.source,
                is_sensitive=False,
            )
            for name, found in effective.items()
        ],
    )


def _manual(broker: BrokerContext, topic: Message, planned: TopicAssignment) -> TopicAssignment:
    """The assignment that the client chose, if it holds together."""
    check_topic_name(topic.name)
    chosen = {each.partition_index: tuple(each.broker_ids) for each in topic.assignments}
    unknown = {id_ for replicas in chosen.values() for id_ in replicas} - broker.metadata.brokers.keys()
    if sorted(chosen) != list(range(len(topic.assignments))) or unknown or not all(chosen.values()):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"partitions must be numbered from 0, each on live brokers {sorted(broker.metadata.brokers)}",
        )
    for replicas in chosen.values():
        check_replication_factor(len(replicas))
    return TopicAssignment(topic.name, dict(sorted(chosen.items())), planned.topic_id)
