"""AddOffsetsToTxn: a transactional producer is about to commit offsets of a group."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import check
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from sparklog.security.access import Operation, Resource, ResourceType
from sparklog.structs import OFFSETS_TOPIC, TopicPartition
from sparklog.txn.state import Producer

API = ApiKey.ADD_OFFSETS_TO_TXN
VERSIONS = range(0, 5)
_FIRST_VERSION_TO_KNOW_FENCED = 2


async def handle(broker: BrokerContext, request: ApiRequest[AddOffsetsToTxnRequest]) -> AddOffsetsToTxnResponse:
    message = request.message
    try:
        check(broker, request, Operation.WRITE, Resource(ResourceType.TRANSACTIONAL_ID, message.transactional_id))
        check(broker, request, Operation.READ, Resource(ResourceType.GROUP, message.group_id))
    except ApiError as refused:
        return AddOffsetsToTxnResponse(error_code=int(refused.code))
    home = TopicPartition(OFFSETS_TOPIC, broker.groups.partition_for(message.group_id))
    producer = Producer(message.producer_id, message.producer_epoch)
    code = await broker.transactions.add_partitions(message.transactional_id, producer, [home])
    if code is ErrorCode.PRODUCER_FENCED and request.version < _FIRST_VERSION_TO_KNOW_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=int(code))
