"""AlterConfigs: all settings of topics, of this broker or of all; what is not named goes back to its default."""

from __future__ import annotations

from collections.abc import Awaitable

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.config_alteration import Resource, altered
from sparklog.config.dynamic import Operation
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AlterConfigsRequest, AlterConfigsResponse
from sparklog.protocol.slices import Steps

API = ApiKey.ALTER_CONFIGS
VERSIONS = range(0, 3)


def handle(broker: BrokerContext, request: ApiRequest[AlterConfigsRequest]) -> Steps[Awaitable[AlterConfigsResponse]]:
    message = request.message
    resources = (
        Resource(
            each.resource_type, each.resource_name, [(entry.name, Operation.SET, entry.value) for entry in each.configs]
        )
        for each in message.resources
    )
    return altered(broker, request, resources, AlterConfigsResponse, afresh=True, validate_only=message.validate_only)
