"""InitProducerId: an id for an idempotent producer. Transactional ids are refused: there are no transactions yet."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import InitProducerIdResponse, Message

API = ApiKey.INIT_PRODUCER_ID
VERSIONS = range(0, 5)
_FIRST_EPOCH = 0


async def handle(broker: BrokerContext, request: ApiRequest) -> Message:
    if request.message.transactional_id is not None:
        return _refused(ErrorCode.INVALID_REQUEST)
    try:
        producer_id = await broker.producer_ids.take()
    except ApiError:
        return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=_FIRST_EPOCH
    )


def _refused(code: ErrorCode) -> Message:
    return InitProducerIdResponse(throttle_time_ms=0, error_code=code, producer_id=-1, producer_epoch=-1)
