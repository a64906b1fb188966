"""SaslAuthenticate: proves who the client is; refused here, for the listener's gate serves it where it may come."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ErrorCode
from sparklog.net.authentication import AUTHENTICATE_VERSIONS
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import SaslAuthenticateRequest, SaslAuthenticateResponse

API = ApiKey.SASL_AUTHENTICATE
VERSIONS = AUTHENTICATE_VERSIONS


def handle(broker: BrokerContext, request: ApiRequest[SaslAuthenticateRequest]) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="this listener has no authentication, or it is over and has no lifetime",
        auth_bytes=b"",
        session_lifetime_ms=0,
    )
