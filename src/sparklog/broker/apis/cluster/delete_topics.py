"""DeleteTopics: by name, or from version 6 by id; answered once all names are free again or time is up.

All deletions are begun before one is waited for: one that does not come to its end, for a broker with a replica is
away, uses up the time of none of the others.

By id only the topic that bears it is deleted, whatever the brokers know by its name meanwhile. Its name is told to
those that may describe it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from sparklog.broker.client_quotas import Changes
from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import refusal
from sparklog.broker.handling.permissions import check_state_is_kept
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DeleteTopicsRequest, DeleteTopicsResponse
from sparklog.protocol.wire import ZERO_UUID
from sparklog.security.access import Operation, Resource, ResourceType

API = ApiKey.DELETE_TOPICS
VERSIONS = range(0, 7)
_FIRST_STRICT = 5
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED."""
_Result = DeleteTopicsResponse.DeletableTopicResult


class _Doomed(NamedTuple):
    """A topic whose deletion is under way."""

    name: str
    topic_id: UUID | None


async def handle(broker: BrokerContext, request: ApiRequest[DeleteTopicsRequest]) -> DeleteTopicsResponse:
    message = request.message
    asked: Iterable[tuple[str | None, UUID | None]] = (
        ((each.name, each.topic_id) for each in message.topics)
        if request.version >= 6
        else ((name, ZERO_UUID) for name in message.topic_names)
    )
    until = broker.turns.time() + message.timeout_ms / 1000
    changes = broker.quotas.changes(request.caller, request.client_id, is_strict=request.version >= _FIRST_STRICT)
    under_way: dict[str, _Doomed] = {}
    begun = [
        await _begin(broker, request, name, topic_id, changes, under_way)
        async for name, topic_id in broker.turns.paced(asked)
    ]
    results = [
        await _ended(broker, each, until) if isinstance(each, _Doomed) else each
        async for each in broker.turns.paced(begun)
    ]
    return DeleteTopicsResponse(throttle_time_ms=changes.throttle_ms, responses=results)


async def _begin(
    broker: BrokerContext,
    request: ApiRequest[DeleteTopicsRequest],
    name: str | None,
    topic_id: UUID | None,
    changes: Changes,
    under_way: dict[str, _Doomed],
) -> _Doomed | _Result:
    """``under_way``: what the request has begun so far, by name. What it names twice is deleted once."""
    cache = broker.metadata
    by_id = name is None
    if not by_id and topic_id not in (None, ZERO_UUID):
        return _result(name, topic_id, ErrorCode.INVALID_REQUEST, "a topic goes by its name or by its id, not by both")
    if name is None:
        name = cache.name_of(topic_id)
    if not broker.controller.is_active:
        return _result(name, topic_id, ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
    refused = None if name is None else _refused(broker, request, name, topic_id, by_id=by_id)
    if refused is not None:
        return refused
    if name in under_way:
        return under_way[name]
    topic = cache.topic(name) if name is not None else None
    if name is None or topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return _result(name, topic_id, code, "there is no such topic")
    doomed = topic.topic_id
    try:
        check_state_is_kept(broker.config, name, "deleted")
        changes.take(len(topic.partitions))
        await broker.run_zk(broker.zk.topics.request_deletion, name, doomed if by_id else None)
    except ApiError as error:
        return _result(name, doomed, error.code, error.reason)
    begun = under_way[name] = _Doomed(name, doomed)
    return begun


async def _ended(broker: BrokerContext, doomed: _Doomed, until: float) -> _Result:
    name, topic_id = doomed

    def is_gone() -> bool:
        left = broker.metadata.topic(name)
        context = broker.controller.context
        return (left is None or left.topic_id != topic_id) and (context is None or name not in context.deleting)

    if not await broker.metadata.wait_for(is_gone, until - broker.turns.time()):
        return _result(name, topic_id, ErrorCode.REQUEST_TIMED_OUT, "the deletion goes on after this answer")
    return _result(name, topic_id, ErrorCode.NONE, None)


def _refused(
    broker: BrokerContext, request: ApiRequest[DeleteTopicsRequest], name: str, topic_id: UUID | None, *, by_id: bool
) -> _Result | None:
    """None if the caller may delete the topic."""
    resource = Resource(ResourceType.TOPIC, name)
    code = refusal(broker, request, Operation.DESCRIBE, resource) if by_id else ErrorCode.NONE
    if code is not ErrorCode.NONE:
        return _result(None, topic_id, code, "the topic may not be described")
    code = refusal(broker, request, Operation.DELETE, resource)
    return None if code is ErrorCode.NONE else _result(name, topic_id, code, "the topic may not be deleted")


def _result(name: str | None, topic_id: UUID | None, code: ErrorCode, message: str | None) -> _Result:
    return _Result(name=name, topic_id=topic_id, error_code=code, error_message=message)
