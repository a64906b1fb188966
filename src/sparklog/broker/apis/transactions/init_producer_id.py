"""InitProducerId: an id for an idempotent producer; for a transactional one also an epoch that fences older ones.

From version 6 on its transactions may wait for a decision made elsewhere, and it may keep the one that is open.
"""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import refusal
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from sparklog.security.access import CLUSTER, Operation, Resource, ResourceType
from sparklog.txn.machine import InitRequest
from sparklog.txn.runtime import InitAnswer
from sparklog.txn.state import NO_EPOCH, NO_ID, Producer

API = ApiKey.INIT_PRODUCER_ID
VERSIONS = range(0, 7)
_FIRST_EPOCH = 0
_FIRST_VERSION_TO_KNOW_FENCED = 4


async def handle(broker: BrokerContext, request: ApiRequest[InitProducerIdRequest]) -> InitProducerIdResponse:
    refused = _refusal(broker, request)
    answer = await _init(broker, request.message) if refused is ErrorCode.NONE else InitAnswer(refused)
    error = answer.error
    if error is ErrorCode.PRODUCER_FENCED and request.version < _FIRST_VERSION_TO_KNOW_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(
        throttle_time_ms=0,
        error_code=error,
        producer_id=answer.producer.producer_id,
        producer_epoch=answer.producer.epoch,
        ongoing_txn_producer_id=answer.ongoing.producer_id,
        ongoing_txn_producer_epoch=answer.ongoing.epoch,
    )


def _refusal(broker: BrokerContext, request: ApiRequest[InitProducerIdRequest]) -> ErrorCode:
    """Without a transactional id whoever may write to any topic may be idempotent there (KIP-679)."""
    transactional_id = request.message.transactional_id
    if transactional_id is not None:
        return refusal(broker, request, Operation.WRITE, Resource(ResourceType.TRANSACTIONAL_ID, transactional_id))
    authorizer, caller = broker.authorizer, request.caller
    allowed = authorizer.allows_quietly(caller, Operation.IDEMPOTENT_WRITE, CLUSTER) or authorizer.allows_somewhere(
        caller, Operation.WRITE, ResourceType.TOPIC
    )
    return ErrorCode.NONE if allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def _init(broker: BrokerContext, message: InitProducerIdRequest) -> InitAnswer:
    expected = Producer(message.producer_id, message.producer_epoch)
    if (expected.producer_id == NO_ID) != (expected.epoch == NO_EPOCH):
        return InitAnswer(ErrorCode.INVALID_REQUEST)
    if message.transactional_id is None:
        try:
            return InitAnswer(ErrorCode.NONE, Producer(await broker.producer_ids.take(), _FIRST_EPOCH))
        except ApiError:
            return InitAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    goes_on = None if expected.producer_id == NO_ID else expected
    asked = InitRequest(
        message.transactional_id,
        message.transaction_timeout_ms,
        goes_on,
        two_phase=message.enable2_pc,
        keeps=message.keep_prepared_txn,
    )
    return await broker.transactions.init_producer_id(asked)
