"""EraseRecords: remove the records of some keys from replicas of this broker, or search for them.

One request begins a round and others ask about it; each says how far the replicas are, and tries those again that have
waited. The keys come with the first. A broker that does not know them, since it was started again, or since all that it
was asked for is done, says that it needs them. An end offset of -1 asks the leader where its log ends, and for nothing
else. What is told of a replica is told when it is done. Keys are never logged.
"""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import check
from sparklog.compaction.erased_keys import MOST_BYTES, digest_of
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import EraseRecordsRequest, EraseRecordsResponse
from sparklog.protocol.wire import ZERO_UUID
from sparklog.replica.erasing import Erasing, RoundId, RoundRefused, State
from sparklog.security.access import Operation, Resource, ResourceType
from sparklog.structs import STATE_TOPICS, TopicPartition

API = ApiKey.ERASE_RECORDS
VERSIONS = range(0, 1)
_ASKS_FOR_END = -1
_Asked = EraseRecordsRequest.ErasedPartition
_Partition = EraseRecordsResponse.ErasedPartitionResult


async def handle(broker: BrokerContext, request: ApiRequest[EraseRecordsRequest]) -> EraseRecordsResponse:
    message = request.message
    try:
        check(broker, request, Operation.DELETE, Resource(ResourceType.TOPIC, message.topic))
    except ApiError as refused:
        return _refused(refused.code, refused.reason)
    round_id = RoundId(message.erasure_id or ZERO_UUID, message.round)
    if message.topic in STATE_TOPICS:
        why = f"{message.topic} holds state of the brokers, or of Spark's sinks: nothing is erased from it"
        return _refused(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
    if message.keys is not None:
        if len(message.keys) > MOST_BYTES:
            return _refused(ErrorCode.INVALID_REQUEST, f"the keys take more than {MOST_BYTES} bytes")
        digest = await broker.loop.run_in_executor(None, digest_of, message.keys)
        try:
            broker.eraser.begin(round_id, message.keys, digest, scan_only=message.scan_only)
        except RoundRefused as error:
            return _refused(ErrorCode.INVALID_REQUEST, str(error))
    told, needs_keys = [], False
    async for asked in broker.turns.paced(message.partitions):
        result = _result(broker, message, round_id, asked)
        needs_keys |= result is None
        told.append(
            result or _partition(asked, Erasing(_tp(message, asked), asked.end_offset, why="it is about to begin"))
        )
    return EraseRecordsResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, needs_keys=needs_keys, partitions=told
    )


def _refused(code: ErrorCode, why: str) -> EraseRecordsResponse:
    return EraseRecordsResponse(throttle_time_ms=0, error_code=code, error_message=why, needs_keys=False, partitions=[])


def _tp(message: EraseRecordsRequest, asked: _Asked) -> TopicPartition:
    return TopicPartition(message.topic, asked.partition_index)


def _result(broker: BrokerContext, message: EraseRecordsRequest, round_id: RoundId, asked: _Asked) -> _Partition | None:
    """None where the keys are needed."""
    tp = _tp(message, asked)
    try:
        partition = broker.held(tp)
        partition.check_topic(message.topic_id or ZERO_UUID)
        if asked.end_offset == _ASKS_FOR_END:
            partition.check_leader()
            _, end = broker.replicas.log_end(tp, message.topic_id or ZERO_UUID)
            return _partition(asked, Erasing(tp, end, State.DONE))
    except ApiError as error:
        return _partition(asked, Erasing(tp, asked.end_offset, State.FAILED, error.reason), error.code)
    replica = broker.eraser.ask(round_id, tp, asked.end_offset)
    return None if replica is None else _partition(asked, replica)


def _partition(asked: _Asked, replica: Erasing, code: ErrorCode = ErrorCode.NONE) -> _Partition:
    stats, progress = replica.stats, replica.progress
    return _Partition(
        partition_index=asked.partition_index,
        error_code=code,
        error_message=replica.why or None,
        state=replica.state,
        end_offset=replica.end_offset,
        log_start_offset=replica.log_start_offset,
        segments_done=progress.segments_done,
        segments_total=progress.segments_total,
        records_scanned=stats.records_scanned,
        bytes_scanned=stats.bytes_scanned,
        records_found=stats.records_found,
        segments_rewritten=stats.segments_rewritten,
        segments=[
            _Partition.ScannedSegment(base_offset=each.base_offset, size=each.size, sha256=bytes.fromhex(each.sha256))
            for each in stats.segments
        ],
    )
