"""OffsetCommit: how far a group has read. Answered once the offsets are replicated."""

from __future__ import annotations

from collections.abc import Awaitable

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ErrorCode
from sparklog.group.classic.group import NO_TIMESTAMP, CommittedOffset
from sparklog.group.classic.requests import CommitRequest, MemberIdentity
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import OffsetCommitRequest, OffsetCommitResponse, TxnOffsetCommitRequest
from sparklog.protocol.slices import Steps
from sparklog.record.layout import MAX_INT64
from sparklog.structs import TopicPartition

API = ApiKey.OFFSET_COMMIT
VERSIONS = range(2, 10)
_Topics = list[OffsetCommitRequest.OffsetCommitRequestTopic] | list[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic]

_FIRST_VERSION_OF_MEMBER_EPOCH = 9


def handle(broker: BrokerContext, request: ApiRequest[OffsetCommitRequest]) -> Steps[Awaitable[OffsetCommitResponse]]:
    message = request.message
    identity = MemberIdentity(message.member_id, message.group_instance_id, message.generation_id_or_member_epoch)
    knows_epochs = request.version >= _FIRST_VERSION_OF_MEMBER_EPOCH
    commit = yield from known_offsets(broker, message.topics, identity, message.retention_time_ms)
    return _commit(broker, message, commit._replace(knows_epochs=knows_epochs))


async def _commit(broker: BrokerContext, message: OffsetCommitRequest, commit: CommitRequest) -> OffsetCommitResponse:
    errors: dict[TopicPartition, ErrorCode] = {}
    if commit.offsets:
        errors = await broker.groups.commit_offsets(message.group_id, commit)
    unknown = error_of_unknown(broker)
    response_topic = OffsetCommitResponse.OffsetCommitResponseTopic
    topics = []
    for topic in message.topics:
        partitions = []
        async for each in broker.turns.paced(topic.partitions):
            tp = TopicPartition(topic.name, each.partition_index)
            error = errors.get(tp, unknown)
            partitions.append(
                response_topic.OffsetCommitResponsePartition(partition_index=tp.partition, error_code=int(error))
            )
        topics.append(response_topic(name=topic.name, partitions=partitions))
    return OffsetCommitResponse(topics=topics)


def error_of_unknown(broker: BrokerContext) -> ErrorCode:
    """What is said of a partition that this broker has not heard of."""
    told = broker.metadata.has_been_told
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if told else ErrorCode.NOT_COORDINATOR


def known_offsets(
    broker: BrokerContext, topics: _Topics, identity: MemberIdentity, retention_ms: int = -1
) -> Steps[CommitRequest]:
    """The commit of the offsets of partitions that exist, as OffsetCommit and TxnOffsetCommit name them."""
    era = broker.groups.era
    now_ms = broker.clock.now_ms()
    expire_ms = NO_TIMESTAMP if retention_ms < 0 else min(now_ms + retention_ms, MAX_INT64)
    offsets = {}
    for topic in topics:
        known = broker.metadata.topic(topic.name)
        for each in topic.partitions if known else ():
            if known and each.partition_index in known.partitions:
                offsets[TopicPartition(topic.name, each.partition_index)] = CommittedOffset(
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.committed_metadata or "",
                    now_ms,
                    expire_ms,
                )
            yield
        yield
    return CommitRequest(identity, offsets, era=era)
