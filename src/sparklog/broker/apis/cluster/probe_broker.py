"""ProbeBroker: whether another broker takes connections at its address, as this one sees it. Asked by brokers.

Only the address of a live broker is looked at, as this broker knows it, or whoever asks could have it look anywhere.
"""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import refusal
from sparklog.errors import ErrorCode
from sparklog.net.vigil import Sight
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import ProbeBrokerRequest, ProbeBrokerResponse
from sparklog.security.access import Operation
from sparklog.structs import Endpoint

API = ApiKey.PROBE_BROKER
VERSIONS = range(0, 1)
WAITS_FOR_OTHERS = True


async def handle(broker: BrokerContext, request: ApiRequest[ProbeBrokerRequest]) -> ProbeBrokerResponse:
    message, refused = request.message, refusal(broker, request, Operation.CLUSTER_ACTION)
    if refused is not ErrorCode.NONE:
        return _answer(refused, Sight.UNKNOWN)
    known = broker.metadata.brokers.get(message.broker_id)
    if known is None or known.endpoint != Endpoint(message.host, message.port):
        return _answer(ErrorCode.BROKER_NOT_AVAILABLE, Sight.UNKNOWN)
    return _answer(ErrorCode.NONE, await broker.looks.at(known.endpoint))


def _answer(code: ErrorCode, sight: Sight) -> ProbeBrokerResponse:
    return ProbeBrokerResponse(throttle_time_ms=0, error_code=code, sight=sight)
