"""WriteTxnMarkers: a transaction's coordinator ends it in the partitions that this broker leads."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import refusal
from sparklog.broker.partition_changes import slices
from sparklog.broker.txn.markers import RAISING_VERSION, Codes
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from sparklog.security.access import CLUSTER, Operation
from sparklog.structs import TopicPartition
from sparklog.txn.markers import Marker
from sparklog.txn.state import Producer

API = ApiKey.WRITE_TXN_MARKERS
VERSIONS = range(1, 3)
WAITS_FOR_OTHERS = True
_Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
_Topic = _Result.WritableTxnMarkerTopicResult


async def handle(broker: BrokerContext, request: ApiRequest[WriteTxnMarkersRequest]) -> WriteTxnMarkersResponse:
    refused = _refusal(broker, request)
    results = [await _write(broker, each, refused) async for each in broker.turns.paced(request.message.markers)]
    return WriteTxnMarkersResponse(markers=results)


def _refusal(broker: BrokerContext, request: ApiRequest[WriteTxnMarkersRequest]) -> ErrorCode:
    """Brokers may, and an administrator, to end a transaction that hangs (KIP-664)."""
    if broker.authorizer.allows_quietly(request.caller, Operation.ALTER, CLUSTER):
        return ErrorCode.NONE
    return refusal(broker, request, Operation.CLUSTER_ACTION)


async def _write(broker: BrokerContext, asked: WriteTxnMarkersRequest.WritableTxnMarker, refused: ErrorCode) -> _Result:
    producer = Producer(asked.producer_id, asked.producer_epoch)
    raises_epoch = asked.transaction_version >= RAISING_VERSION
    marker = Marker(producer, asked.transaction_result, asked.coordinator_epoch, raises_epoch)
    partitions = (TopicPartition(topic.name, number) for topic in asked.topics for number in topic.partition_indexes)
    codes: Codes = {}
    async for some in broker.turns.paced(slices(partitions)):
        if refused is not ErrorCode.NONE:
            codes |= dict.fromkeys(some, refused)
            continue
        codes |= await broker.txn_markers.take(marker, [tp for tp in dict.fromkeys(some) if tp not in codes])
    topics: dict[str, list[_Topic.WritableTxnMarkerPartitionResult]] = {}
    async for tp, code in broker.turns.paced(codes.items()):
        topics.setdefault(tp.topic, []).append(
            _Topic.WritableTxnMarkerPartitionResult(partition_index=tp.partition, error_code=int(code))
        )
    results = [_Topic(name=name, partitions=each) for name, each in topics.items()]
    return _Result(producer_id=asked.producer_id, topics=results)
