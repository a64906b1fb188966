"""RenewDelegationToken: let a token last longer, up to its maximum; in force here when it is answered."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.token_requests import change_shown
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from sparklog.security.delegation.token import TokenRules

API = ApiKey.RENEW_DELEGATION_TOKEN
VERSIONS = range(3)


async def handle(
    broker: BrokerContext, request: ApiRequest[RenewDelegationTokenRequest]
) -> RenewDelegationTokenResponse:
    period_ms = request.message.renew_period_ms
    code, expires_ms = await change_shown(broker, request, TokenRules.renewed, period_ms, "renewed")
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expires_ms, throttle_time_ms=0)
