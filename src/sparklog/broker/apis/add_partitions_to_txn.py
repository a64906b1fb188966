"""AddPartitionsToTxn: the partitions that a transactional producer is about to write to. All of them, or none.

From version 4 on it is the partitions' leaders that ask, for several transactions at once: to add, or only to verify.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AddPartitionsToTxnResponse, Message
from sparklog.structs import TopicPartition
from sparklog.txn.state import ClientVersion, Producer

API = ApiKey.ADD_PARTITIONS_TO_TXN
VERSIONS = range(0, 6)
_FIRST_VERSION_TO_KNOW_FENCED = 2
_FIRST_BATCHED_VERSION = 4
_FIRST_VERSION_TO_KNOW_ABORTABLE = 5
_Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
_Topic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult


Codes = dict[TopicPartition, ErrorCode]


async def handle(broker: BrokerContext, request: ApiRequest) -> Message:
    message = request.message
    if request.version >= _FIRST_BATCHED_VERSION:
        answers = await asyncio.gather(
            *(_of_transaction(broker, each, request.version) for each in message.transactions)
        )
        return AddPartitionsToTxnResponse(error_code=int(ErrorCode.NONE), results_by_transaction=answers)
    producer = Producer(message.v3_and_below_producer_id, message.v3_and_below_producer_epoch)
    asked = _partitions_in(message.v3_and_below_topics)
    codes = await _add(broker, message.v3_and_below_transactional_id, producer, asked, ClientVersion.CLASSIC)
    if request.version < _FIRST_VERSION_TO_KNOW_FENCED:
        codes = _renamed(codes, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_topics(codes))


async def _of_transaction(broker: BrokerContext, asked: Message, version: int) -> Message:
    producer, partitions = Producer(asked.producer_id, asked.producer_epoch), _partitions_in(asked.topics)
    transactional_id = asked.transactional_id
    if asked.verify_only:
        codes = {tp: broker.transactions.verify(transactional_id, producer, tp) for tp in partitions}
        if version >= _FIRST_VERSION_TO_KNOW_ABORTABLE:
            codes = _renamed(codes, ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
    else:
        codes = await _add(broker, transactional_id, producer, partitions, ClientVersion.EPOCH_A_TRANSACTION)
    return _Result(transactional_id=transactional_id, topic_results=_topics(codes))


def _partitions_in(topics: Iterable[Message]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]


def _renamed(codes: Codes, known: ErrorCode, told: ErrorCode) -> Codes:
    return {tp: told if code is known else code for tp, code in codes.items()}


def _topics(codes: Codes) -> list[Message]:
    results: dict[str, list[Message]] = {}
    for tp, code in codes.items():
        results.setdefault(tp.topic, []).append(
            _Topic.AddPartitionsToTxnPartitionResult(partition_index=tp.partition, partition_error_code=int(code))
        )
    return [_Topic(name=name, results_by_partition=partitions) for name, partitions in results.items()]


async def _add(
    broker: BrokerContext,
    transactional_id: str,
    producer: Producer,
    asked: list[TopicPartition],
    version: ClientVersion,
) -> Codes:
    unknown = [tp for tp in asked if not broker.metadata.knows(tp)]
    if unknown and broker.metadata.has_been_told:
        codes = dict.fromkeys(asked, ErrorCode.OPERATION_NOT_ATTEMPTED)
        return codes | dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    code = await broker.transactions.add_partitions(transactional_id, producer, asked, version)
    return dict.fromkeys(asked, code)
