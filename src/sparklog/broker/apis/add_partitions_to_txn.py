"""AddPartitionsToTxn: the partitions that a transactional producer is about to write to. All of them, or none."""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.errors import ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AddPartitionsToTxnResponse, Message
from sparklog.structs import TopicPartition
from sparklog.txn.state import Producer

API = ApiKey.ADD_PARTITIONS_TO_TXN
VERSIONS = range(0, 4)
"""The later ones are spoken between Kafka's brokers."""
_FIRST_VERSION_TO_KNOW_FENCED = 2
_Topic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult


async def handle(broker: BrokerContext, request: ApiRequest) -> Message:
    message = request.message
    asked = [TopicPartition(topic.name, number) for topic in message.v3_and_below_topics for number in topic.partitions]
    codes = await _add(broker, message, asked)
    results: dict[str, list[Message]] = {}
    for tp in asked:
        code = codes[tp]
        if code is ErrorCode.PRODUCER_FENCED and request.version < _FIRST_VERSION_TO_KNOW_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        results.setdefault(tp.topic, []).append(
            _Topic.AddPartitionsToTxnPartitionResult(partition_index=tp.partition, partition_error_code=int(code))
        )
    topics = [_Topic(name=name, results_by_partition=partitions) for name, partitions in results.items()]
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)


async def _add(broker: BrokerContext, message: Message, asked: list[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
    unknown = [tp for tp in asked if not broker.metadata.knows(tp)]
    if unknown:
        codes = dict.fromkeys(asked, ErrorCode.OPERATION_NOT_ATTEMPTED)
        return codes | dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    producer = Producer(message.v3_and_below_producer_id, message.v3_and_below_producer_epoch)
    code = await broker.transactions.add_partitions(message.v3_and_below_transactional_id, producer, asked)
    return dict.fromkeys(asked, code)
