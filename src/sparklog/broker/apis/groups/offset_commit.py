"""OffsetCommit: how far a group has read. Answered once the offsets are replicated; in version 0, once in ZooKeeper."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import Rights, refusal
from sparklog.broker.handling.zookeeper_offsets import store_offsets
from sparklog.errors import ErrorCode
from sparklog.group.classic.group import NO_TIMESTAMP, CommittedOffset
from sparklog.group.classic.requests import CommitRequest, MemberIdentity
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import OffsetCommitRequest, OffsetCommitResponse, TxnOffsetCommitRequest
from sparklog.protocol.slices import Steps
from sparklog.record.layout import MAX_INT64
from sparklog.security.access import Operation, Resource, ResourceType
from sparklog.structs import TopicPartition

API = ApiKey.OFFSET_COMMIT
VERSIONS = range(10)
_Topics = list[OffsetCommitRequest.OffsetCommitRequestTopic] | list[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic]
_Offsets = dict[TopicPartition, CommittedOffset]

_VERSION_OF_ZOOKEEPER = 0
_VERSION_OF_TIMES = 1
_FIRST_VERSION_OF_MEMBER_EPOCH = 9


def handle(broker: BrokerContext, request: ApiRequest[OffsetCommitRequest]) -> Steps[Awaitable[OffsetCommitResponse]]:
    message = request.message
    refused = refusal(broker, request, Operation.READ, Resource(ResourceType.GROUP, message.group_id))
    if refused is not ErrorCode.NONE:
        return _told(broker, message, lambda _: refused)
    rights = Rights(broker, request, Operation.READ)
    identity = MemberIdentity(message.member_id, message.group_instance_id, message.generation_id_or_member_epoch)
    knows_epochs = request.version >= _FIRST_VERSION_OF_MEMBER_EPOCH
    commit = yield from known_offsets(broker, rights, message.topics, identity, message.retention_time_ms)
    if request.version == _VERSION_OF_ZOOKEEPER:
        return _store(broker, message, rights, commit.offsets)
    if request.version == _VERSION_OF_TIMES:
        commit = commit._replace(offsets=_dated(message, commit.offsets))
    return _commit(broker, message, rights, commit._replace(knows_epochs=knows_epochs))


def _dated(message: OffsetCommitRequest, offsets: _Offsets) -> _Offsets:
    """As of the times that the client says, where it says any."""
    times = {
        TopicPartition(topic.name, each.partition_index): each.commit_timestamp
        for topic in message.topics
        for each in topic.partitions
        if each.commit_timestamp != NO_TIMESTAMP
    }
    return {
        tp: each._replace(commit_timestamp_ms=times.get(tp, each.commit_timestamp_ms)) for tp, each in offsets.items()
    }


async def _store(
    broker: BrokerContext, message: OffsetCommitRequest, rights: Rights, offsets: _Offsets
) -> OffsetCommitResponse:
    most = broker.config.offset_metadata_max_bytes
    fitting = {tp: each.offset for tp, each in offsets.items() if len(each.metadata) <= most}
    codes = dict.fromkeys(offsets, ErrorCode.OFFSET_METADATA_TOO_LARGE)
    codes |= await store_offsets(broker, message.group_id, fitting)
    return await _told(broker, message, codes_by_partition(broker, rights, codes))


async def _commit(
    broker: BrokerContext, message: OffsetCommitRequest, rights: Rights, commit: CommitRequest
) -> OffsetCommitResponse:
    errors: dict[TopicPartition, ErrorCode] = {}
    if commit.offsets:
        errors = await broker.groups.commit_offsets(message.group_id, commit)
    return await _told(broker, message, codes_by_partition(broker, rights, errors))


async def _told(
    broker: BrokerContext, message: OffsetCommitRequest, code_of: Callable[[TopicPartition], ErrorCode]
) -> OffsetCommitResponse:
    response_topic = OffsetCommitResponse.OffsetCommitResponseTopic
    topics = []
    for topic in message.topics:
        partitions = []
        async for each in broker.turns.paced(topic.partitions):
            tp = TopicPartition(topic.name, each.partition_index)
            partitions.append(
                response_topic.OffsetCommitResponsePartition(partition_index=tp.partition, error_code=int(code_of(tp)))
            )
        topics.append(response_topic(name=topic.name, partitions=partitions))
    return OffsetCommitResponse(topics=topics)


def codes_by_partition(
    broker: BrokerContext, rights: Rights, codes: Mapping[TopicPartition, ErrorCode]
) -> Callable[[TopicPartition], ErrorCode]:
    """What is said of a partition: ``codes`` are those of what was committed, or could not be."""
    told = broker.metadata.has_been_told
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if told else ErrorCode.NOT_COORDINATOR

    def code_of(tp: TopicPartition) -> ErrorCode:
        return codes.get(tp, unknown) if rights.allows(tp.topic) else ErrorCode.TOPIC_AUTHORIZATION_FAILED

    return code_of


def known_offsets(
    broker: BrokerContext, rights: Rights, topics: _Topics, identity: MemberIdentity, retention_ms: int = -1
) -> Steps[CommitRequest]:
    """The commit of the offsets of partitions that exist and that the caller may read, as OffsetCommit and
    TxnOffsetCommit name them.
    """
    epoch = broker.groups.deletion_epoch
    now_ms = broker.clock.now_ms()
    expire_ms = NO_TIMESTAMP if retention_ms < 0 else min(now_ms + retention_ms, MAX_INT64)
    offsets = {}
    for topic in topics:
        known = broker.metadata.topic(topic.name) if rights.allows(topic.name) else None
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
    return CommitRequest(identity, offsets, deletion_epoch=epoch)
