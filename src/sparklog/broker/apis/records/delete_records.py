"""DeleteRecords: let partitions begin later; answered with the offset at which each begins from now on.

Each partition begins there at once. The answer is held until that is durable for all of them: one checkpoint a log
directory, written off the loop. Where the disk refuses that, also for want of room, the answer for its partitions is
KAFKA_STORAGE_ERROR, for after a crash they may begin earlier again.

Then it is held until the other replicas that live begin there too, or the next leader would have what was deleted. A
follower hears of it with what it fetches. One that has not said so when the time is up makes it REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import Rights
from sparklog.errors import ApiError, ErrorCode, LogDirFailed
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DeleteRecordsRequest, DeleteRecordsResponse
from sparklog.protocol.slices import Steps, each_of
from sparklog.replica.purgatory import DelayedOperation
from sparklog.security.access import Operation
from sparklog.structs import INTERNAL_TOPICS, TopicPartition

API = ApiKey.DELETE_RECORDS
VERSIONS = range(0, 3)
_Asked = DeleteRecordsRequest.DeleteRecordsTopic.DeleteRecordsPartition
_Topic = DeleteRecordsResponse.DeleteRecordsTopicResult
_Partition = _Topic.DeleteRecordsPartitionResult
_NOWHERE = -1


def handle(broker: BrokerContext, request: ApiRequest[DeleteRecordsRequest]) -> Steps[Awaitable[DeleteRecordsResponse]]:
    topics, rights = [], Rights(broker, request, Operation.DELETE)
    for topic in request.message.topics:
        deleted = yield from each_of(partial(_delete, broker, rights, topic.name), topic.partitions)
        topics.append(_Topic(name=topic.name, partitions=deleted))
        yield
    return _when_certain(broker, request.message, topics)


class _Deletion(NamedTuple):
    """What is asked of one partition, and what is answered."""

    tp: TopicPartition
    before: int
    """Where it is to begin at the earliest."""
    answer: _Partition

    def fail(self, code: ErrorCode, low_watermark: int = _NOWHERE) -> None:
        self.answer.error_code, self.answer.low_watermark = code, low_watermark


async def _when_certain(
    broker: BrokerContext, message: DeleteRecordsRequest, topics: list[_Topic]
) -> DeleteRecordsResponse:
    begun = [
        _Deletion(TopicPartition(topic.name, each.partition_index), _before(each, answer), answer)
        for topic, answered in zip(message.topics, topics, strict=True)
        for each, answer in zip(topic.partitions, answered.partitions, strict=True)
        if answer.error_code == ErrorCode.NONE
    ]
    if begun:
        await _make_durable(broker, begun)
        await _await_replicas(broker, begun, message.timeout_ms)
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)


def _before(asked: _Asked, answer: _Partition) -> int:
    """The offset that was asked for; where it was everything, that is where the leader begins now."""
    return asked.offset if asked.offset >= 0 else int(answer.low_watermark)


async def _make_durable(broker: BrokerContext, begun: Sequence[_Deletion]) -> None:
    refusals: dict[Path, LogDirFailed] = {}
    for directory, write, failed in broker.replicas.start_checkpoints():
        try:
            await broker.run_disk(write)
        except LogDirFailed as error:
            refusals[directory] = error
            failed(error)
    for each in begun:
        try:
            refused = refusals.get(broker.held(each.tp).log_dir)
            if refused is not None:
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(refused))
        except ApiError as error:  # its log directory failed, or it was deleted, before this was durable
            each.fail(error.code)


async def _await_replicas(broker: BrokerContext, begun: Sequence[_Deletion], timeout_ms: int) -> None:
    left: dict[TopicPartition, int] = {}
    async for each in broker.turns.paced(begun):
        if each.answer.error_code == ErrorCode.NONE and not _is_settled(broker, each.tp, each.before):
            left[each.tp] = max(each.before, left.get(each.tp, 0))
    if left:
        await _until_settled(broker, left, timeout_ms)
    async for each in broker.turns.paced(begun):
        if each.answer.error_code == ErrorCode.NONE:
            _conclude(broker, each)


def _is_settled(broker: BrokerContext, tp: TopicPartition, before: int) -> bool:
    """Whether no replica that lives begins earlier, or this broker cannot tell any more."""
    try:
        return broker.replicas.low_watermark(tp) >= before
    except ApiError:
        return True


async def _until_settled(broker: BrokerContext, left: dict[TopicPartition, int], timeout_ms: int) -> None:
    """Return when that is so of all of them, or the time is up."""
    partitions = list(left)

    def settled(moved: TopicPartition) -> bool:
        if moved in left and _is_settled(broker, moved, left[moved]):
            del left[moved]
        return not left

    operation = DelayedOperation(broker.replicas.deletion_purgatory, settled)
    waiting = operation.future
    try:
        async for tp in broker.turns.paced(partitions):
            operation.wait_for((tp,))
        operation.arm(max(timeout_ms, 0))
        await waiting
    finally:
        waiting.cancel()


def _conclude(broker: BrokerContext, deletion: _Deletion) -> None:
    """What is answered where it is durable here."""
    try:
        low = broker.replicas.low_watermark(deletion.tp)
    except ApiError as error:
        deletion.fail(error.code)
        return
    deletion.answer.low_watermark = low
    if low < deletion.before:
        deletion.fail(ErrorCode.REQUEST_TIMED_OUT, low)


def _delete(
    broker: BrokerContext,
    rights: Rights,
    topic: str,
    asked: _Asked,
) -> _Partition:
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
    return _Partition(partition_index=tp.partition, low_watermark=low_watermark, error_code=code)
