"""FindCoordinator: which broker coordinates a group or a transactional id. From version 4 on, several at once."""

from __future__ import annotations

from typing import NamedTuple

from sparklog.broker.context import ApiRequest, BrokerContext, KeyType
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import FindCoordinatorResponse, Message

API = ApiKey.FIND_COORDINATOR
VERSIONS = range(0, 7)

_FIRST_BATCHED_VERSION = 4


class _Found(NamedTuple):
    error: ErrorCode
    node_id: int
    host: str
    port: int

    @property
    def error_message(self) -> str | None:
        return None if self.error is ErrorCode.NONE else self.error.name


async def handle(broker: BrokerContext, request: ApiRequest) -> Message:
    message = request.message
    if request.version >= _FIRST_BATCHED_VERSION:
        coordinators = [
            FindCoordinatorResponse.Coordinator(key=key, **_fields(await _find(broker, message.key_type, key)))
            async for key in broker.turns.paced(message.coordinator_keys)
        ]
        return FindCoordinatorResponse(coordinators=coordinators)
    return FindCoordinatorResponse(**_fields(await _find(broker, message.key_type, message.key)))


async def _find(broker: BrokerContext, key_type: int, key: str) -> _Found:
    try:
        kind = KeyType(key_type)
    except ValueError:
        return _Found(ErrorCode.INVALID_REQUEST, -1, "", -1)
    return _Found(*await broker.find_coordinator(kind, key))


def _fields(found: _Found) -> dict[str, object]:
    return {
        "error_code": int(found.error),
        "error_message": found.error_message,
        "node_id": found.node_id,
        "host": found.host,
        "port": found.port,
    }
