"""RenewDelegationToken: let a token last longer, up to its maximum; in force here when it is answered."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.token_requests import NEVER, check_connection, enabled, told
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import RenewDelegationTokenRequest, RenewDelegationTokenResponse

API = ApiKey.RENEW_DELEGATION_TOKEN
VERSIONS = range(3)


async def handle(
    broker: BrokerContext, request: ApiRequest[RenewDelegationTokenRequest]
) -> RenewDelegationTokenResponse:
    code, expires_ms = ErrorCode.NONE, NEVER
    try:
        expires_ms = await _renew(broker, request)
    except ApiError as error:
        code = error.code
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expires_ms, throttle_time_ms=0)


async def _renew(broker: BrokerContext, request: ApiRequest[RenewDelegationTokenRequest]) -> int:
    """When it expires. Raises ApiError."""
    check_connection(request)
    tokens, message = enabled(broker), request.message
    with told():
        before, after = await tokens.change(
            bytes(message.hmac), request.caller.principal, tokens.rules.renewed, message.renew_period_ms
        )
    tokens.audit.administered(request.caller, "renewed", [before])
    assert after is not None
    return after.expires_ms
