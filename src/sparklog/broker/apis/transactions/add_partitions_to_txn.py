"""AddPartitionsToTxn: the partitions that a transactional producer is about to write to. All of them, or none.

From version 4 on it is the partitions' leaders that ask, for several transactions at once: to add, or only to verify. A
leader has checked before that the client may write there. A client adds none of the coordinators' own partitions by
this request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import NamedTuple, TypeVar

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import Rights, refusal
from sparklog.broker.partition_changes import slices
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from sparklog.protocol.slices import Steps, each_of
from sparklog.security.access import Operation, Resource, ResourceType
from sparklog.structs import INTERNAL_TOPICS, TopicPartition
from sparklog.txn.state import ClientVersion, Producer

API = ApiKey.ADD_PARTITIONS_TO_TXN
VERSIONS = range(0, 6)
_FIRST_VERSION_TO_KNOW_FENCED = 2
_FIRST_BATCHED_VERSION = 4
_FIRST_VERSION_TO_KNOW_ABORTABLE = 5
_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_AskedTopic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic | _Transaction.AddPartitionsToTxnTopic
_Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
_Topic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_T = TypeVar("_T")


Codes = dict[TopicPartition, ErrorCode]


class _Partitions(NamedTuple):
    """What a transaction names, and what of it cannot be added."""

    asked: list[TopicPartition]
    refused: Codes
    """What the client may not write to."""
    unknown: list[TopicPartition]
    """Of the others, what does not exist."""


def handle(
    broker: BrokerContext, request: ApiRequest[AddPartitionsToTxnRequest]
) -> Steps[AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]]:
    message = request.message
    if request.version < _FIRST_BATCHED_VERSION:
        resource = Resource(ResourceType.TRANSACTIONAL_ID, message.v3_and_below_transactional_id)
        refused = refusal(broker, request, Operation.WRITE, resource)
        if refused is not ErrorCode.NONE:
            return _refused(broker, message, refused)
        rights = Rights(broker, request, Operation.WRITE)
        partitions = yield from _partitions_in(broker, message.v3_and_below_topics, rights)
        return _of_client(broker, message, partitions, request.version)
    refused = refusal(broker, request, Operation.CLUSTER_ACTION)
    if refused is not ErrorCode.NONE:
        return AddPartitionsToTxnResponse(error_code=int(refused), results_by_transaction=[])
    transactions = []
    for each in message.transactions:
        transactions.append((each, (yield from _partitions_in(broker, each.topics))))
    return _of_leader(broker, transactions, request.version)


async def _refused(
    broker: BrokerContext, message: AddPartitionsToTxnRequest, code: ErrorCode
) -> AddPartitionsToTxnResponse:
    topics = message.v3_and_below_topics
    codes = {TopicPartition(topic.name, number): code for topic in topics for number in topic.partitions}
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _topics(broker, codes, _Topic))


async def _of_client(
    broker: BrokerContext, message: AddPartitionsToTxnRequest, partitions: _Partitions, version: int
) -> AddPartitionsToTxnResponse:
    producer = Producer(message.v3_and_below_producer_id, message.v3_and_below_producer_epoch)
    codes = await _add(broker, message.v3_and_below_transactional_id, producer, partitions, ClientVersion.CLASSIC)
    if version < _FIRST_VERSION_TO_KNOW_FENCED:
        codes = _renamed(codes, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _topics(broker, codes, _Topic))


async def _of_leader(
    broker: BrokerContext, asked: list[tuple[_Transaction, _Partitions]], version: int
) -> AddPartitionsToTxnResponse:
    results: list[_Result] = []
    async for some in broker.turns.paced(slices(asked)):
        results += await asyncio.gather(*(_of_transaction(broker, *each, version) for each in some))
    return AddPartitionsToTxnResponse(error_code=int(ErrorCode.NONE), results_by_transaction=results)


async def _of_transaction(broker: BrokerContext, asked: _Transaction, partitions: _Partitions, version: int) -> _Result:
    producer = Producer(asked.producer_id, asked.producer_epoch)
    transactional_id = asked.transactional_id
    if asked.verify_only:
        verify = broker.transactions.verify
        codes = {tp: verify(transactional_id, producer, tp) async for tp in broker.turns.paced(partitions.asked)}
        if version >= _FIRST_VERSION_TO_KNOW_ABORTABLE:
            codes = _renamed(codes, ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
    else:
        codes = await _add(broker, transactional_id, producer, partitions, ClientVersion.EPOCH_A_TRANSACTION)
    return _Result(
        transactional_id=transactional_id,
        topic_results=await _topics(broker, codes, _Result.AddPartitionsToTxnTopicResult),
    )


def _partitions_in(
    broker: BrokerContext, topics: Iterable[_AskedTopic], rights: Rights | None = None
) -> Steps[_Partitions]:
    """Without ``rights`` it is not a client that asks."""
    found = _Partitions([], {}, [])

    def take(name: str, number: int) -> None:
        tp = TopicPartition(name, number)
        found.asked.append(tp)
        if rights is not None and (name in INTERNAL_TOPICS or not rights.allows(name)):
            found.refused[tp] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif not broker.metadata.knows(tp):
            found.unknown.append(tp)

    for topic in topics:
        yield from each_of(partial(take, topic.name), topic.partitions)
    return found


def _renamed(codes: Codes, known: ErrorCode, told: ErrorCode) -> Codes:
    return {tp: told if code is known else code for tp, code in codes.items()}


async def _topics(broker: BrokerContext, codes: Codes, topic_type: Callable[..., _T]) -> list[_T]:
    results: dict[str, list[_Topic.AddPartitionsToTxnPartitionResult]] = {}
    async for tp, code in broker.turns.paced(codes.items()):
        results.setdefault(tp.topic, []).append(
            _Topic.AddPartitionsToTxnPartitionResult(partition_index=tp.partition, partition_error_code=int(code))
        )
    return [topic_type(name=name, results_by_partition=partitions) for name, partitions in results.items()]


async def _add(
    broker: BrokerContext,
    transactional_id: str,
    producer: Producer,
    partitions: _Partitions,
    version: ClientVersion,
) -> Codes:
    asked, refused, unknown = partitions
    if refused or (unknown and broker.metadata.has_been_told):
        codes = dict.fromkeys(asked, ErrorCode.OPERATION_NOT_ATTEMPTED)
        return codes | dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) | refused
    code = await broker.transactions.add_partitions(transactional_id, producer, asked, version)
    return dict.fromkeys(asked, code)
