"""DeleteRecords: let partitions begin later; answered with the offset at which each begins from now on.

Each partition begins there at once. The answer is held until that is durable for all of them: one checkpoint a log
directory, written off the loop. Where the disk refuses that, also for want of room, the answer for its partitions is
KAFKA_STORAGE_ERROR, for after a crash they may begin earlier again.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from pathlib import Path

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import Rights
from sparklog.errors import ApiError, ErrorCode, LogDirFailed
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DeleteRecordsRequest, DeleteRecordsResponse
from sparklog.protocol.slices import Steps, each_of
from sparklog.security.access import Operation
from sparklog.structs import INTERNAL_TOPICS, TopicPartition

API = ApiKey.DELETE_RECORDS
VERSIONS = range(0, 3)
_Topic = DeleteRecordsResponse.DeleteRecordsTopicResult
_NOWHERE = -1


def handle(broker: BrokerContext, request: ApiRequest[DeleteRecordsRequest]) -> Steps[Awaitable[DeleteRecordsResponse]]:
    topics, rights = [], Rights(broker, request, Operation.DELETE)
    for topic in request.message.topics:
        deleted = yield from each_of(partial(_delete, broker, rights, topic.name), topic.partitions)
        topics.append(_Topic(name=topic.name, partitions=deleted))
        yield
    return _when_durable(broker, topics)


async def _when_durable(broker: BrokerContext, topics: list[_Topic]) -> DeleteRecordsResponse:
    done = [
        (each, TopicPartition(topic.name, each.partition_index))
        for topic in topics
        for each in topic.partitions
        if each.error_code == ErrorCode.NONE
    ]
    refusals: dict[Path, LogDirFailed] = {}
    if done:
        for directory, write, failed in broker.replicas.start_checkpoints():
            try:
                await broker.run_disk(write)
            except LogDirFailed as error:
                refusals[directory] = error
                failed(error)
    for each, tp in done:
        try:
            refused = refusals.get(broker.held(tp).log_dir)
            if refused is not None:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(refused))
        except ApiError as error:  # its log directory failed, or it was deleted, before this was durable
            each.error_code, each.low_watermark = error.code, _NOWHERE
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)


def _delete(
    broker: BrokerContext,
    rights: Rights,
    topic: str,
    asked: DeleteRecordsRequest.DeleteRecordsTopic.DeleteRecordsPartition,
) -> _Topic.DeleteRecordsPartitionResult:
    tp = TopicPartition(topic, asked.partition_index)
    code, low_watermark = ErrorCode.NONE, _NOWHERE
    try:
        rights.check(topic)
        if tp.topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"the records of {tp.topic} are the broker's own")
        broker.held(tp)
        low_watermark = broker.replicas.delete_records(tp, asked.offset)
    except ApiError as error:
        code = error.code
    return _Topic.DeleteRecordsPartitionResult(
        partition_index=tp.partition, low_watermark=low_watermark, error_code=code
    )
