"""IncrementalAlterConfigs: set, delete, append to or subtract from settings of topics, of this broker or of all."""

from __future__ import annotations

from sparklog.broker.config_alteration import alter, answers, asked_for
from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import IncrementalAlterConfigsResponse, Message

API = ApiKey.INCREMENTAL_ALTER_CONFIGS
VERSIONS = range(0, 2)


async def handle(broker: BrokerContext, request: ApiRequest) -> Message:
    message = request.message
    keys = [(each.resource_type, each.resource_name) for each in message.resources]
    asked = [
        asked_for(*key, [(entry.name, entry.config_operation, entry.value) for entry in each.configs], afresh=False)
        for key, each in zip(keys, message.resources, strict=True)
    ]
    outcomes = await alter(broker, asked, keys, validate_only=message.validate_only)
    return IncrementalAlterConfigsResponse(
        throttle_time_ms=0,
        responses=answers(IncrementalAlterConfigsResponse.AlterConfigsResourceResponse, keys, outcomes),
    )
