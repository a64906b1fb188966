"""AlterReplicaLogDirs: this broker's replicas of partitions are moved to another log directory, or made there later.

The answer says that the copying has begun; DescribeLogDirs tells how far it is. Of a partition that the cluster has and
this broker does not, the wish is remembered, and the answer is REPLICA_NOT_AVAILABLE, as Kafka's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import refusal
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from sparklog.protocol.slices import Steps, each_of
from sparklog.security.access import Operation
from sparklog.structs import TopicPartition

API = ApiKey.ALTER_REPLICA_LOG_DIRS
VERSIONS = range(0, 3)
_Topic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult


async def handle(broker: BrokerContext, request: ApiRequest[AlterReplicaLogDirsRequest]) -> AlterReplicaLogDirsResponse:
    results: defaultdict[str, dict[int, ErrorCode]] = defaultdict(dict)
    refused = refusal(broker, request, Operation.ALTER)
    async for tp, path in broker.turns.paced(_wishes(request.message)):
        is_refused = refused is not ErrorCode.NONE
        results[tp.topic][tp.partition] = refused if is_refused else await _alter(broker, tp, path)
    topics = await broker.turns.drive(_telling(results), lambda: "an AlterReplicaLogDirs")
    return AlterReplicaLogDirsResponse(throttle_time_ms=0, results=topics)


def _wishes(message: AlterReplicaLogDirsRequest) -> Iterator[tuple[TopicPartition, str]]:
    for directory in message.dirs:
        for topic in directory.topics:
            for number in topic.partitions:
                yield TopicPartition(topic.name, number), directory.path


def _telling(results: Mapping[str, Mapping[int, ErrorCode]]) -> Steps[list[_Topic]]:
    topics = []
    for name, codes in results.items():
        topics.append(_Topic(topic_name=name, partitions=(yield from each_of(_told, codes.items()))))
        yield
    return topics


def _told(outcome: tuple[int, ErrorCode]) -> _Topic.AlterReplicaLogDirPartitionResult:
    number, code = outcome
    return _Topic.AlterReplicaLogDirPartitionResult(partition_index=number, error_code=code)


async def _alter(broker: BrokerContext, tp: TopicPartition, path: str) -> ErrorCode:
    try:
        await broker.replicas.futures.alter(tp, path)
    except ApiError as error:
        topic = broker.metadata.topic(tp.topic)
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic and tp.partition in topic.partitions:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        return error.code
    return ErrorCode.NONE
