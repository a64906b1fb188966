"""TxnOffsetCommit: how far a group has read, as part of a transaction. Visible when that commits.

Up to version 4 AddOffsetsToTxn has told the transaction's coordinator; from version 5 on this does, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sparklog.broker.apis.groups.offset_commit import codes_by_partition, known_offsets
from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import Rights, check
from sparklog.broker.txn.entry import Permits
from sparklog.errors import ApiError, ErrorCode
from sparklog.group.classic.requests import CommitRequest, MemberIdentity, TransactionalCommit
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from sparklog.protocol.slices import Steps
from sparklog.record.control import ProducerIdAndEpoch
from sparklog.security.access import Operation, Resource, ResourceType
from sparklog.structs import OFFSETS_TOPIC, TopicPartition
from sparklog.txn.state import ClientVersion, Producer

API = ApiKey.TXN_OFFSET_COMMIT
VERSIONS = range(0, 6)
_FIRST_VERSION_TO_KNOW_ABORTABLE = 4
_FIRST_VERSION_TO_ADD_OFFSETS = 5
_Topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_TO_COMMIT = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.TRANSACTION_ABORTABLE: ErrorCode.INVALID_TXN_STATE,
}
"""What the transaction's coordinator says, to a client that asks the group's: try again where that may help."""


Codes = dict[TopicPartition, ErrorCode]


def handle(
    broker: BrokerContext, request: ApiRequest[TxnOffsetCommitRequest]
) -> Steps[Awaitable[TxnOffsetCommitResponse]]:
    message = request.message
    try:
        check(broker, request, Operation.WRITE, Resource(ResourceType.TRANSACTIONAL_ID, message.transactional_id))
        check(broker, request, Operation.READ, Resource(ResourceType.GROUP, message.group_id))
    except ApiError as refused:
        code = refused.code
        return _each_told(broker, message, lambda _: code)
    rights = Rights(broker, request, Operation.READ)
    identity = MemberIdentity(message.member_id, message.group_instance_id, message.generation_id)
    commit = yield from known_offsets(broker, rights, message.topics, identity)
    return _answer(broker, request, rights, commit)


async def _answer(
    broker: BrokerContext, request: ApiRequest[TxnOffsetCommitRequest], rights: Rights, commit: CommitRequest
) -> TxnOffsetCommitResponse:
    message = request.message
    codes: Codes = {}
    if commit.offsets:
        if broker.txn_entry.must_ask(message.transactional_id, _client_version(request)):
            codes = await _commit_in_turn(broker, request, commit)
        else:
            codes = await _commit(broker, request, commit, None)
    return await _each_told(broker, message, codes_by_partition(broker, rights, codes))


async def _each_told(
    broker: BrokerContext, message: TxnOffsetCommitRequest, code_of: Callable[[TopicPartition], ErrorCode]
) -> TxnOffsetCommitResponse:
    topics = []
    for topic in message.topics:
        partitions = []
        async for each in broker.turns.paced(topic.partitions):
            code = code_of(TopicPartition(topic.name, each.partition_index))
            partitions.append(
                _Topic.TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=int(code))
            )
        topics.append(_Topic(name=topic.name, partitions=partitions))
    return TxnOffsetCommitResponse(topics=topics)


def _client_version(request: ApiRequest[TxnOffsetCommitRequest]) -> ClientVersion:
    adds = request.version >= _FIRST_VERSION_TO_ADD_OFFSETS
    return ClientVersion.EPOCH_A_TRANSACTION if adds else ClientVersion.CLASSIC


async def _commit_in_turn(
    broker: BrokerContext, request: ApiRequest[TxnOffsetCommitRequest], commit: CommitRequest
) -> Codes:
    """As ``_commit``, where the transaction's coordinator has to be asked first."""
    message = request.message
    producer = Producer(message.producer_id, message.producer_epoch)
    home = TopicPartition(OFFSETS_TOPIC, broker.groups.partition_for(message.group_id))
    async with broker.txn_entry.turn(message.transactional_id):
        permits: Permits = {}
        if not broker.txn_entry.has_entered(home, producer):
            version = _client_version(request)
            permits = await broker.txn_entry.ask(message.transactional_id, producer, [home], version)
        return await _commit(broker, request, commit, permits)


async def _commit(
    broker: BrokerContext, request: ApiRequest[TxnOffsetCommitRequest], commit: CommitRequest, permits: Permits | None
) -> Codes:
    """Without permits the transaction's coordinator is this broker."""
    message = request.message
    producer = Producer(message.producer_id, message.producer_epoch)

    def may_begin(partition: int) -> ErrorCode:
        home = TopicPartition(OFFSETS_TOPIC, partition)
        if permits is None:
            code = broker.txn_entry.check_here(message.transactional_id, producer, home)
        elif home in permits:
            code = broker.txn_entry.check(home, producer, permits[home])
        else:
            entered = broker.txn_entry.has_entered(home, producer)
            code = ErrorCode.NONE if entered else ErrorCode.CONCURRENT_TRANSACTIONS  # the coordinator was not asked
        return _told(code, request.version)

    in_transaction = TransactionalCommit(ProducerIdAndEpoch(*producer), commit, may_begin)
    return await broker.groups.commit_in_transaction(message.group_id, in_transaction)


def _told(code: ErrorCode, version: int) -> ErrorCode:
    """What a client is told that speaks this version."""
    outside = code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
    if outside and version >= _FIRST_VERSION_TO_KNOW_ABORTABLE:
        return ErrorCode.TRANSACTION_ABORTABLE
    return _TO_COMMIT.get(code, code)
