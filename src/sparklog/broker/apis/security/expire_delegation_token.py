"""ExpireDelegationToken: let a token end, at once or sooner than it would; in force here when it is answered."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.token_requests import NEVER, check_connection, enabled, told
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse

API = ApiKey.EXPIRE_DELEGATION_TOKEN
VERSIONS = range(3)


async def handle(
    broker: BrokerContext, request: ApiRequest[ExpireDelegationTokenRequest]
) -> ExpireDelegationTokenResponse:
    code, expires_ms = ErrorCode.NONE, NEVER
    try:
        expires_ms = await _expire(broker, request)
    except ApiError as error:
        code = error.code
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expires_ms, throttle_time_ms=0)


async def _expire(broker: BrokerContext, request: ApiRequest[ExpireDelegationTokenRequest]) -> int:
    """When it expires: now, where it is gone. Raises ApiError."""
    check_connection(request)
    tokens, message = enabled(broker), request.message
    with told():
        before, after = await tokens.change(
            bytes(message.hmac), request.caller.principal, tokens.rules.ended, message.expiry_time_period_ms
        )
    tokens.audit.administered(request.caller, "removed" if after is None else "changed the end of", [before])
    return broker.clock.now_ms() if after is None else after.expires_ms
