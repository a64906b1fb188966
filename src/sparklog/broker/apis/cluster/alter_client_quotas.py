"""AlterClientQuotas: sets and takes away quotas of users, client ids and addresses; in force here when it is answered.

Each entity is changed whole or not at all, by itself. Of two changes of one entity the later one is answered.
"""

from __future__ import annotations

from contextlib import suppress

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import check
from sparklog.errors import ApiError, ConfigError, CoordinationError, ErrorCode
from sparklog.net.limits import by_address
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AlterClientQuotasRequest, AlterClientQuotasResponse
from sparklog.quota.entity import DEFAULT, Entity, IpEntity, Name
from sparklog.quota.keys import CONNECTION_CREATION_RATE
from sparklog.quota.requests import changes_of, entity_of
from sparklog.security.access import Operation
from sparklog.zk.entities import client_entity, ip_entity, user_client_entity, user_entity

API = ApiKey.ALTER_CLIENT_QUOTAS
VERSIONS = range(0, 2)
_Asked = AlterClientQuotasRequest.EntryData
_Entry = AlterClientQuotasResponse.EntryData
_Parts = tuple[tuple[str, str | None], ...]


async def handle(broker: BrokerContext, request: ApiRequest[AlterClientQuotasRequest]) -> AlterClientQuotasResponse:
    message = request.message
    answers: dict[_Parts, _Entry] = {}
    refused: ApiError | None = None
    try:
        check(broker, request, Operation.ALTER_CONFIGS)
    except ApiError as denied:
        refused = denied
    async for each in broker.turns.paced(message.entries):
        parts = tuple((part.entity_type, part.entity_name) for part in each.entity)
        error = ApiError(ErrorCode.NONE)
        try:
            if refused is not None:
                raise refused
            await _alter(broker, parts, each, validate_only=message.validate_only)
        except ApiError as refusal:
            error = refusal
        answers[parts] = _entry(parts, error)
    return AlterClientQuotasResponse(throttle_time_ms=0, entries=[*answers.values()])


async def _alter(broker: BrokerContext, parts: _Parts, asked: _Asked, *, validate_only: bool) -> None:
    """Raises ApiError."""
    entity = entity_of(parts)
    try:
        path = path_of(entity)
        if isinstance(entity, IpEntity) and entity.ip is not DEFAULT:
            await broker.loop.run_in_executor(None, by_address, {entity.ip: 0}, CONNECTION_CREATION_RATE)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
    changes = changes_of(entity, [(op.key, None if op.remove else op.value) for op in asked.ops])
    if not validate_only:
        await broker.run_zk(broker.zk.configs.update, path, changes)
        with suppress(CoordinationError):  # it is stored; this broker will follow as the others do
            await broker.settings.take_over(path)


def path_of(entity: Entity | IpEntity) -> str:
    """Where the settings of an entity are. Raises ConfigError for a name that cannot stand there."""
    if isinstance(entity, IpEntity):
        return ip_entity(_named(entity.ip))
    if entity.user is None:
        return client_entity(_named(entity.client_id))
    if entity.client_id is None:
        return user_entity(_named(entity.user))
    return user_client_entity(_named(entity.user), _named(entity.client_id))


def _named(name: Name | None) -> str | None:
    return None if name is DEFAULT else name


def _entry(parts: _Parts, error: ApiError) -> _Entry:
    return _Entry(
        error_code=error.code,
        error_message=error.reason or None,
        entity=[_Entry.EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
    )
