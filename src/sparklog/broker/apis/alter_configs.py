"""AlterConfigs: all settings of topics, of this broker or of all; what is not named goes back to its default."""

from __future__ import annotations

from collections.abc import Awaitable

from sparklog.broker.config_alteration import altered
from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.config.dynamic import Operation
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AlterConfigsResponse, Message
from sparklog.protocol.slices import Steps

API = ApiKey.ALTER_CONFIGS
VERSIONS = range(0, 3)


def handle(broker: BrokerContext, request: ApiRequest) -> Steps[Awaitable[Message]]:
    return altered(broker, request.message, AlterConfigsResponse, lambda _: Operation.SET, afresh=True)
