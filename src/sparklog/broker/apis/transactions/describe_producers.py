"""DescribeProducers: the producers that partitions here remember, and where their open transactions begin.

Followers answer as leaders do: an administrator compares what each replica knows (``find-hanging --broker-id``).

A partition that is named more than once is described once: a short request would have a huge answer otherwise. (Kafka
describes it as often as it is named; clients look for partitions by name and number.)
"""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import Rights
from sparklog.errors import ApiError, ErrorCode
from sparklog.log.producer_snapshot import ProducerEntry
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeProducersRequest, DescribeProducersResponse
from sparklog.protocol.slices import Steps, each_of
from sparklog.security.access import Operation
from sparklog.structs import TopicPartition

API = ApiKey.DESCRIBE_PRODUCERS
VERSIONS = range(0, 1)
_Topic = DescribeProducersResponse.TopicResponse
_Partition = _Topic.PartitionResponse


def handle(broker: BrokerContext, request: ApiRequest[DescribeProducersRequest]) -> Steps[DescribeProducersResponse]:
    topics: dict[str, _Topic] = {}
    seen, rights = set(), Rights(broker, request, Operation.READ)
    for topic in request.message.topics:
        described = topics.setdefault(topic.name, _Topic(name=topic.name, partitions=[]))
        for each in topic.partition_indexes:
            tp = TopicPartition(topic.name, each)
            if tp not in seen:
                seen.add(tp)
                described.partitions.append((yield from _describe(broker, rights, tp)))
            yield
        yield
    return DescribeProducersResponse(throttle_time_ms=0, topics=[*topics.values()])


def _describe(broker: BrokerContext, rights: Rights, tp: TopicPartition) -> Steps[_Partition]:
    try:
        rights.check(tp.topic)
        partition = broker.replicas.partition(tp)
    except ApiError as error:
        return _Partition(
            partition_index=tp.partition, error_code=int(error.code), error_message=error.reason, active_producers=[]
        )
    producers = yield from each_of(_producer, list(partition.producers))
    return _Partition(
        partition_index=tp.partition, error_code=int(ErrorCode.NONE), error_message=None, active_producers=producers
    )


def _producer(entry: ProducerEntry) -> _Partition.ProducerState:
    return _Partition.ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.transaction_first_offset,
    )
