"""DescribeClientQuotas: the quotas of users, client ids and addresses that a filter finds, as ZooKeeper has them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from sparklog.broker.client_quotas import entity_at
from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import check
from sparklog.errors import ApiError, ConfigError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from sparklog.quota.entity import DEFAULT, Entity, IpEntity
from sparklog.quota.keys import quotas_in
from sparklog.quota.requests import CLIENT_ID, IP, USER, Component, Filter, parts_of
from sparklog.security.access import Operation
from sparklog.zk.entities import CLIENTS, IPS, USERS

API = ApiKey.DESCRIBE_CLIENT_QUOTAS
VERSIONS = range(0, 2)
_KINDS = {USER: USERS, CLIENT_ID: CLIENTS, IP: IPS}
_Entry = DescribeClientQuotasResponse.EntryData
_logger = logging.getLogger(__name__)


async def handle(
    broker: BrokerContext, request: ApiRequest[DescribeClientQuotasRequest]
) -> DescribeClientQuotasResponse:
    message = request.message
    try:
        check(broker, request, Operation.DESCRIBE_CONFIGS)
        components = [Component(each.entity_type, each.match_type, each.match) for each in message.components]
        wanted = Filter(components, is_strict=message.strict)
        stored = await _stored(broker, wanted)
    except ApiError as error:
        return _refused(error)
    entries = [
        _entry(entity, quotas)
        async for path, properties in broker.turns.paced(stored.items())
        for entity, quotas in _found(wanted, path, properties)
    ]
    return DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, entries=entries
    )


async def _stored(broker: BrokerContext, wanted: Filter) -> dict[str, Mapping[str, str] | None]:
    found: dict[str, Mapping[str, str] | None] = {}
    for kind, below in _KINDS.items():
        if wanted.asks_for(kind):
            found |= await broker.run_zk(broker.zk.configs.of_kind, below)
    return found


def _found(
    wanted: Filter, path: str, properties: Mapping[str, str] | None
) -> list[tuple[Entity | IpEntity, dict[str, float]]]:
    """The entity and its quotas, if it has any and is one of those wanted. What cannot be read is left out."""
    try:
        entity = entity_at(path)
        quotas = quotas_in(entity, properties or {})
    except ConfigError as error:
        _logger.error("the quotas of %s are not told: %s", path, error)
        return []
    return [(entity, quotas)] if quotas and wanted.fits(entity) else []


def _entry(entity: Entity | IpEntity, quotas: dict[str, float]) -> _Entry:
    return _Entry(
        entity=[
            _Entry.EntityData(entity_type=kind, entity_name=None if name is DEFAULT else name)
            for kind, name in parts_of(entity)
        ],
        values=[_Entry.ValueData(key=name, value=value) for name, value in quotas.items()],
    )


def _refused(error: ApiError) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=error.code, error_message=error.reason, entries=None
    )
