"""EndTxn: commit or abort. Answered when the decision is in the log; the markers follow.

From version 5 on every end raises the producer's epoch, and the answer says who the producer is now.
"""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import refusal
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import EndTxnRequest, EndTxnResponse
from sparklog.security.access import Operation, Resource, ResourceType
from sparklog.txn.machine import EndRequest
from sparklog.txn.state import ClientVersion, Producer

API = ApiKey.END_TXN
VERSIONS = range(0, 6)
_FIRST_VERSION_TO_KNOW_FENCED = 2
_FIRST_VERSION_TO_RAISE_EPOCHS = 5


async def handle(broker: BrokerContext, request: ApiRequest[EndTxnRequest]) -> EndTxnResponse:
    message = request.message
    resource = Resource(ResourceType.TRANSACTIONAL_ID, message.transactional_id)
    refused = refusal(broker, request, Operation.WRITE, resource)
    if refused is not ErrorCode.NONE:
        return EndTxnResponse(error_code=int(refused))
    producer = Producer(message.producer_id, message.producer_epoch)
    raises = request.version >= _FIRST_VERSION_TO_RAISE_EPOCHS
    version = ClientVersion.EPOCH_A_TRANSACTION if raises else ClientVersion.CLASSIC
    asked = EndRequest(producer, message.committed, version)
    code, client = await broker.transactions.end(message.transactional_id, asked)
    if code is ErrorCode.PRODUCER_FENCED and request.version < _FIRST_VERSION_TO_KNOW_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(error_code=int(code), producer_id=client.producer_id, producer_epoch=client.epoch)
