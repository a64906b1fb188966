"""SaslHandshake: begins an authentication; refused here, for the listener's gate serves it where it may come."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ErrorCode
from sparklog.net.authentication import HANDSHAKE_VERSIONS
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import SaslHandshakeRequest, SaslHandshakeResponse

API = ApiKey.SASL_HANDSHAKE
VERSIONS = HANDSHAKE_VERSIONS


def handle(broker: BrokerContext, request: ApiRequest[SaslHandshakeRequest]) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
