"""OffsetForLeaderEpoch: where a leader epoch ended, for clients and followers to find what was cut off behind them."""

from __future__ import annotations

from functools import partial

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import Rights
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from sparklog.protocol.slices import Steps, each_of
from sparklog.security.access import CLUSTER, Operation
from sparklog.structs import OffsetAndEpoch, TopicPartition

API = ApiKey.OFFSET_FOR_LEADER_EPOCH
VERSIONS = range(0, 5)
_Topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
_UNDEFINED = OffsetAndEpoch(-1, -1)


def handle(
    broker: BrokerContext, request: ApiRequest[OffsetForLeaderEpochRequest]
) -> Steps[OffsetForLeaderEpochResponse]:
    topics, rights = [], _rights(broker, request)
    for topic in request.message.topics:
        answers = yield from each_of(partial(_answer, broker, rights, topic.topic), topic.partitions)
        topics.append(_Topic(topic=topic.topic, partitions=answers))
        yield
    return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)


def _rights(broker: BrokerContext, request: ApiRequest[OffsetForLeaderEpochRequest]) -> Rights | None:
    """None of a broker, which may ask for all topics."""
    if broker.authorizer.allows_quietly(request.caller, Operation.CLUSTER_ACTION, CLUSTER):
        return None
    return Rights(broker, request, Operation.DESCRIBE)


def _answer(
    broker: BrokerContext,
    rights: Rights | None,
    topic: str,
    asked: OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition,
) -> _Topic.EpochEndOffset:
    code, end = ErrorCode.NONE, _UNDEFINED
    try:
        if rights is not None:
            rights.check(topic)
        partition = broker.held(TopicPartition(topic, asked.partition))
        partition.check_leader(asked.current_leader_epoch)
        end = partition.end_offset_for_epoch(asked.leader_epoch) or _UNDEFINED
    except ApiError as error:
        code = error.code
    return _Topic.EpochEndOffset(
        error_code=code, partition=asked.partition, leader_epoch=end.epoch, end_offset=end.offset
    )
