"""AlterConfigs: all settings of topics, of this broker or of all; what is not named goes back to its default."""

from __future__ import annotations

from sparklog.broker.config_alteration import alter, answers, asked_for
from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.config.dynamic import Operation
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AlterConfigsResponse, Message

API = ApiKey.ALTER_CONFIGS
VERSIONS = range(0, 3)


async def handle(broker: BrokerContext, request: ApiRequest) -> Message:
    message = request.message
    keys = [(each.resource_type, each.resource_name) for each in message.resources]
    asked = [
        asked_for(*key, [(entry.name, Operation.SET, entry.value) for entry in each.configs], afresh=True)
        for key, each in zip(keys, message.resources, strict=True)
    ]
    outcomes = await alter(broker, asked, keys, validate_only=message.validate_only)
    return AlterConfigsResponse(
        throttle_time_ms=0,
        responses=answers(AlterConfigsResponse.AlterConfigsResourceResponse, keys, outcomes),
    )
