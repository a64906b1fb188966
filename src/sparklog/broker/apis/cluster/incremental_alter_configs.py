"""IncrementalAlterConfigs: set, delete, append to or subtract from settings of topics, brokers or loggers."""

from __future__ import annotations

from collections.abc import Awaitable

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.config_alteration import Resource, altered
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from sparklog.protocol.slices import Steps

API = ApiKey.INCREMENTAL_ALTER_CONFIGS
VERSIONS = range(0, 2)


def handle(
    broker: BrokerContext, request: ApiRequest[IncrementalAlterConfigsRequest]
) -> Steps[Awaitable[IncrementalAlterConfigsResponse]]:
    message = request.message
    resources = (
        Resource(
            each.resource_type,
            each.resource_name,
            [(entry.name, entry.config_operation, entry.value) for entry in each.configs],
        )
        for each in message.resources
    )
    return altered(
        broker, request, resources, IncrementalAlterConfigsResponse, afresh=False, validate_only=message.validate_only
    )
