"""CreateTopics: answered by the controller, once brokers hold and lead each topic or the time is up.

What is asked for is planned, made and described a topic at a time, so that others are served in between. All topics are
planned before any is made, so one request makes a bounded number of partitions.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from sparklog.broker.client_quotas import Changes
from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import Rights, creation_rights
from sparklog.broker.topics import metric_name
from sparklog.config.definition import definitions
from sparklog.config.topic import TopicConfig
from sparklog.controller.assignment import MAX_PARTITIONS, check_partition_count
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.files import check_topic_name
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import CreateTopicsRequest, CreateTopicsResponse
from sparklog.protocol.slices import MOST_ELEMENTS
from sparklog.protocol.wire import ZERO_UUID
from sparklog.security.access import Operation
from sparklog.zk.znodes import TopicAssignment

API = ApiKey.CREATE_TOPICS
VERSIONS = range(0, 8)
_FIRST_STRICT = 6
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED."""
_MOST_PARTITIONS = MOST_ELEMENTS
"""Of one request, in all its topics."""
_Asked = CreateTopicsRequest.CreatableTopic
_Result = CreateTopicsResponse.CreatableTopicResult


class _Planned(NamedTuple):
    """A topic that may be made, and the settings that it is given of its own."""

    assignment: TopicAssignment
    config: dict[str, str]


Answers = list[_Planned | ApiError]
"""What is known of each topic of the request, in its order."""


async def handle(broker: BrokerContext, request: ApiRequest[CreateTopicsRequest]) -> CreateTopicsResponse:
    message = request.message
    asked = Counter(topic.name for topic in message.topics)
    firsts = {metric_name(topic.name): topic.name for topic in reversed(message.topics)}
    answers: Answers = []
    may_create, told = (
        creation_rights(broker, request),
        Rights(broker, request, Operation.DESCRIBE_CONFIGS, quietly=True),
    )
    room = _MOST_PARTITIONS
    async for topic in broker.turns.paced(message.topics):
        try:
            _check(broker, topic.name, asked, may_create)
            planned = _plan(broker, topic, firsts, room)
            room -= len(planned.assignment.partitions)
            answers.append(planned)
        except ApiError as error:
            answers.append(error)
    changes = broker.quotas.changes(request.caller, request.client_id, is_strict=request.version >= _FIRST_STRICT)
    if not message.validate_only:
        await _create(broker, answers, changes, message.timeout_ms / 1000)
    settings = _Settings(broker)
    results = [
        _refused(topic.name, each, told) if isinstance(each, ApiError) else _result(each, settings, message, told)
        async for topic, each in broker.turns.paced(zip(message.topics, answers, strict=True))
    ]
    return CreateTopicsResponse(throttle_time_ms=changes.throttle_ms, topics=results)


def _check(broker: BrokerContext, name: str, asked: Counter[str], may_create: Callable[[str], bool]) -> None:
    """Raises ApiError where the topic is not to be looked for."""
    if not broker.controller.is_active:
        raise ApiError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
    if asked[name] > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"topic {name!r} stands twice in the request")
    if not may_create(name):
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"to make {name!r} needs CREATE on it or on the cluster")


def _plan(broker: BrokerContext, topic: _Asked, firsts: dict[str, str], room: int) -> _Planned:
    """The topic, if it can be made, and has no more partitions than there is ``room`` for in the request."""
    first = firsts[metric_name(topic.name)]
    if first != topic.name:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name!r} collides with topic {first!r}")
    if broker.metadata.topic(topic.name) is not None:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {topic.name!r} exists already")
    _check_room(broker, topic, room)
    properties = {each.name: each.value for each in topic.configs}
    assignment, config = broker.topics.plan(topic.name, topic.num_partitions, topic.replication_factor, properties)
    if topic.assignments:
        if (topic.num_partitions, topic.replication_factor) != (-1, -1):
            raise ApiError(ErrorCode.INVALID_REQUEST, "either choose the brokers, or count partitions and replicas")
        assignment = _manual(broker, topic, assignment)
    return _Planned(assignment, config)


def _check_room(broker: BrokerContext, topic: _Asked, room: int) -> None:
    """Raises ApiError(POLICY_VIOLATION), as Kafka. No topic by itself may have so many that it is refused here."""
    count = len(topic.assignments) or broker.topics.partition_count(topic.num_partitions)
    if room < count <= MAX_PARTITIONS:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"a request makes {_MOST_PARTITIONS} partitions at most, and topics before {topic.name!r} have left "
            f"{room} for its {count}; make it by another request",
        )


async def _create(broker: BrokerContext, answers: Answers, changes: Changes, timeout: float) -> None:
    """Make what is planned, and put the error in the place of what could not be made."""

    async def make(place: int, planned: _Planned) -> None:
        try:
            changes.take(len(planned.assignment.partitions))
            await broker.topics.create(planned.assignment, planned.config, timeout=timeout)
        except ApiError as error:
            answers[place] = error

    # Together: one that gets no leaders does not use up the others' time.
    async with asyncio.TaskGroup() as group:
        async for place, each in broker.turns.paced([*enumerate(answers)]):
            if isinstance(each, _Planned):
                group.create_task(make(place, each))


def _refused(name: str, error: ApiError, told: Rights) -> _Result:
    is_unauthorized = error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return _Result(
        name=name,
        topic_id=ZERO_UUID,
        error_code=error.code,
        error_message=error.reason,
        topic_config_error_code=_code_of_settings(name, told) if is_unauthorized else ErrorCode.NONE,
        num_partitions=-1,
        replication_factor=-1,
        configs=[],
    )


def _code_of_settings(name: str, told: Rights) -> ErrorCode:
    return ErrorCode.NONE if told.allows(name) else ErrorCode.TOPIC_AUTHORIZATION_FAILED


class _Settings:
    """What topics are told of their settings; topics that were given the same share the answer."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._told: dict[tuple[tuple[str, str], ...], list[_Result.CreatableTopicConfigs]] = {}

    def of(self, config: dict[str, str]) -> list[_Result.CreatableTopicConfigs]:
        given = tuple(config.items())
        if given not in self._told:
            layers = self._broker.settings.layers
            in_force = ((name, layers.of_topic(name, config)[0]) for name in definitions(TopicConfig))
            self._told[given] = [
                _Result.CreatableTopicConfigs(
                    name=name, value=found.text, read_only=False, config_source=found.source, is_sensitive=False
                )
                for name, found in in_force
            ]
        return self._told[given]


def _result(planned: _Planned, settings: _Settings, message: CreateTopicsRequest, told: Rights) -> _Result:
    """What was made is told to those that may describe its settings."""
    assignment = planned.assignment
    code = _code_of_settings(assignment.topic, told)
    is_told = code is ErrorCode.NONE
    return _Result(
        name=assignment.topic,
        topic_id=ZERO_UUID if message.validate_only or not is_told else assignment.topic_id or ZERO_UUID,
        error_code=ErrorCode.NONE,
        error_message=None,
        topic_config_error_code=code,
        num_partitions=len(assignment.partitions) if is_told else -1,
        replication_factor=len(next(iter(assignment.partitions.values()))) if is_told else -1,
        configs=settings.of(planned.config) if is_told else [],
    )


def _manual(broker: BrokerContext, topic: _Asked, planned: TopicAssignment) -> TopicAssignment:
    """The assignment that the client chose, if it holds together."""
    check_topic_name(topic.name)
    check_partition_count(len(topic.assignments))
    chosen = {each.partition_index: tuple(each.broker_ids) for each in topic.assignments}
    complaint = None
    if sorted(chosen) != list(range(len(topic.assignments))):
        complaint = "partitions must be numbered from 0, each once"
    elif not all(chosen.values()):
        complaint = "each partition must have a replica"
    elif {id_ for replicas in chosen.values() for id_ in replicas} - broker.metadata.brokers.keys():
        complaint = f"replicas must be on live brokers, {sorted(broker.metadata.brokers)}"
    elif any(len(set(replicas)) != len(replicas) for replicas in chosen.values()):
        complaint = "a broker stands twice among the replicas of a partition"
    elif len({len(replicas) for replicas in chosen.values()}) > 1:
        complaint = "all partitions must have the same number of replicas"
    if complaint:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, complaint)
    return TopicAssignment(topic.name, dict(sorted(chosen.items())), planned.topic_id)
