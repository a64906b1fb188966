"""ExpireDelegationToken: let a token end, at once or sooner than it would; in force here when it is answered."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.token_requests import change_shown
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from sparklog.security.delegation.token import TokenRules

API = ApiKey.EXPIRE_DELEGATION_TOKEN
VERSIONS = range(3)


async def handle(
    broker: BrokerContext, request: ApiRequest[ExpireDelegationTokenRequest]
) -> ExpireDelegationTokenResponse:
    period_ms = request.message.expiry_time_period_ms
    code, expires_ms = await change_shown(broker, request, TokenRules.ended, period_ms, "changed the end of")
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expires_ms, throttle_time_ms=0)
