"""FindCoordinator: which broker coordinates a group or a transactional id. From version 4 on, several at once."""

from __future__ import annotations

from typing import TypedDict

from sparklog.broker.context import ApiRequest, BrokerContext, KeyType
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse

API = ApiKey.FIND_COORDINATOR
VERSIONS = range(0, 7)

_FIRST_BATCHED_VERSION = 4


class _Found(TypedDict):
    """The fields of an answer, or of one key's part of it."""

    error_code: int
    error_message: str | None
    node_id: int
    host: str
    port: int


async def handle(broker: BrokerContext, request: ApiRequest[FindCoordinatorRequest]) -> FindCoordinatorResponse:
    message = request.message
    error, kind = ErrorCode.NONE, _kind(message.key_type)
    if kind is None:
        error = ErrorCode.INVALID_REQUEST
    elif not await broker.has_coordinators(kind):  # once for all keys: the client waits for it
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE

    def found(key: str) -> _Found:
        leader = None if error is not ErrorCode.NONE or kind is None else broker.coordinator_of(kind, key)
        endpoint = None if leader is None else leader.endpoint_on(request.caller.listener)
        if leader is None or endpoint is None:
            return _refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE if error is ErrorCode.NONE else error)
        return {
            "error_code": 0,
            "error_message": None,
            "node_id": leader.id,
            "host": endpoint.host,
            "port": endpoint.port,
        }

    if request.version < _FIRST_BATCHED_VERSION:
        return FindCoordinatorResponse(**found(message.key))
    coordinators = [
        FindCoordinatorResponse.Coordinator(key=key, **found(key))
        async for key in broker.turns.paced(message.coordinator_keys)
    ]
    return FindCoordinatorResponse(coordinators=coordinators)


def _kind(key_type: int) -> KeyType | None:
    try:
        return KeyType(key_type)
    except ValueError:
        return None


def _refusal(error: ErrorCode) -> _Found:
    return {"error_code": int(error), "error_message": error.name, "node_id": -1, "host": "", "port": -1}
