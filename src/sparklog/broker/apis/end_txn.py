"""EndTxn: commit or abort. Answered when the decision is in the log; the markers follow."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import EndTxnResponse, Message
from sparklog.txn.state import Producer

API = ApiKey.END_TXN
VERSIONS = range(0, 4)
_FIRST_VERSION_TO_KNOW_FENCED = 2


async def handle(broker: BrokerContext, request: ApiRequest) -> Message:
    message = request.message
    producer = Producer(message.producer_id, message.producer_epoch)
    code = await broker.transactions.end(message.transactional_id, producer, commit=message.committed)
    if code is ErrorCode.PRODUCER_FENCED and request.version < _FIRST_VERSION_TO_KNOW_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(error_code=int(code))
