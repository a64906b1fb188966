"""IncrementalAlterConfigs: set, delete, append to or subtract from settings of topics, of this broker or of all."""

from __future__ import annotations

from collections.abc import Awaitable

from sparklog.broker.config_alteration import altered
from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import IncrementalAlterConfigsResponse, Message
from sparklog.protocol.slices import Steps

API = ApiKey.INCREMENTAL_ALTER_CONFIGS
VERSIONS = range(0, 2)


def handle(broker: BrokerContext, request: ApiRequest) -> Steps[Awaitable[Message]]:
    return altered(
        broker, request.message, IncrementalAlterConfigsResponse, lambda entry: entry.config_operation, afresh=False
    )
