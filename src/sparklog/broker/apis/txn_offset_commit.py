"""TxnOffsetCommit: how far a group has read, as part of a transaction. Visible when that commits."""

from __future__ import annotations

from sparklog.broker.apis.offset_commit import known_offsets
from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.topics import OFFSETS_TOPIC
from sparklog.errors import ErrorCode
from sparklog.group.requests import CommitRequest, MemberIdentity, TransactionalCommit
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import Message, TxnOffsetCommitResponse
from sparklog.record.control import ProducerIdAndEpoch
from sparklog.structs import TopicPartition
from sparklog.txn.state import Producer

API = ApiKey.TXN_OFFSET_COMMIT
VERSIONS = range(0, 4)
_Topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_TO_COMMIT = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""What the transaction's coordinator says, to a client that asks the group's: try again where that may help."""


async def handle(broker: BrokerContext, request: ApiRequest) -> Message:
    message = request.message
    offsets = known_offsets(broker, message.topics)
    codes: dict[TopicPartition, ErrorCode] = {}
    if offsets:
        identity = MemberIdentity(message.member_id, message.group_instance_id, message.generation_id)
        producer = ProducerIdAndEpoch(message.producer_id, message.producer_epoch)

        def may_begin(partition: int) -> ErrorCode:
            home = TopicPartition(OFFSETS_TOPIC, partition)
            code = broker.transactions.verify(message.transactional_id, Producer(*producer), home)
            return _TO_COMMIT.get(code, code)

        commit = TransactionalCommit(producer, CommitRequest(identity, offsets), may_begin)
        codes = await broker.groups.commit_in_transaction(message.group_id, commit)
    topics = []
    for topic in message.topics:
        partitions = []
        for each in topic.partitions:
            code = codes.get(TopicPartition(topic.name, each.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            partitions.append(
                _Topic.TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=int(code))
            )
        topics.append(_Topic(name=topic.name, partitions=partitions))
    return TxnOffsetCommitResponse(topics=topics)
