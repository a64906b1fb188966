"""SaslHandshake: how to prove who one is; no listener asks for it, so no mechanism is offered and none goes on."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import SaslHandshakeRequest, SaslHandshakeResponse

API = ApiKey.SASL_HANDSHAKE
VERSIONS = range(0, 2)


def handle(broker: BrokerContext, request: ApiRequest[SaslHandshakeRequest]) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
