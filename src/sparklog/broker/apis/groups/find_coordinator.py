"""FindCoordinator: which broker coordinates a group or a transactional id. From version 4 on, several at once."""

from __future__ import annotations

from typing import TypedDict

from sparklog.broker.context import ApiRequest, BrokerContext, KeyType
from sparklog.broker.handling.authorization import REFUSALS, Rights
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse
from sparklog.security.access import Operation, ResourceType

API = ApiKey.FIND_COORDINATOR
VERSIONS = range(0, 7)

_FIRST_BATCHED_VERSION = 4


class _Found(TypedDict):
    """The fields of an answer, or of one key's part of it."""

    error_code: int
    error_message: str
    node_id: int
    host: str
    port: int


async def handle(broker: BrokerContext, request: ApiRequest[FindCoordinatorRequest]) -> FindCoordinatorResponse:
    message = request.message
    finder = _Finder(broker, request)
    if request.version < _FIRST_BATCHED_VERSION:
        return FindCoordinatorResponse(**await finder.find(message.key))
    coordinators = [
        FindCoordinatorResponse.Coordinator(key=key, **await finder.find(key))
        async for key in broker.turns.paced(message.coordinator_keys)
    ]
    return FindCoordinatorResponse(coordinators=coordinators)


class _Finder:
    """Finds the coordinators of the keys of one request, which are all of one kind."""

    def __init__(self, broker: BrokerContext, request: ApiRequest[FindCoordinatorRequest]) -> None:
        self._broker = broker
        self._request = request
        self._kind = _kind(request.message.key_type)
        is_group = self._kind is KeyType.GROUP
        self._resource = ResourceType.GROUP if is_group else ResourceType.TRANSACTIONAL_ID
        self._rights = Rights(broker, request, Operation.DESCRIBE, self._resource)
        self._of_success = ErrorCode.NONE.name if request.version < _FIRST_BATCHED_VERSION else ""
        """The message where there is no error: as Kafka's."""
        self._are_there: bool | None = None

    async def find(self, key: str) -> _Found:
        """Whether there are coordinators at all is asked once for all keys, for the client waits for it."""
        kind = self._kind
        if kind is None:
            return _refusal(ErrorCode.INVALID_REQUEST)
        if not self._rights.allows(key):
            return _refusal(REFUSALS[self._resource])
        if self._are_there is None:
            self._are_there = await self._broker.has_coordinators(kind)
        leader = self._broker.coordinator_of(kind, key) if self._are_there else None
        endpoint = None if leader is None else leader.endpoint_on(self._request.caller.listener)
        if leader is None or endpoint is None:
            return _refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return {
            "error_code": 0,
            "error_message": self._of_success,
            "node_id": leader.id,
            "host": endpoint.host,
            "port": endpoint.port,
        }


def _kind(key_type: int) -> KeyType | None:
    try:
        return KeyType(key_type)
    except ValueError:
        return None


def _refusal(error: ErrorCode) -> _Found:
    return {"error_code": int(error), "error_message": error.name, "node_id": -1, "host": "", "port": -1}
