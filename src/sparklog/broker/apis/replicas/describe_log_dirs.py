"""DescribeLogDirs: this broker's log directories, the partitions and copies in each with sizes and lags, free room."""

from __future__ import annotations

from collections import defaultdict

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import refusal
from sparklog.errors import ErrorCode
from sparklog.log.directories.usage import DirectoryUse, LogUse
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeLogDirsRequest, DescribeLogDirsResponse
from sparklog.protocol.slices import Steps, each_of
from sparklog.security.access import Operation
from sparklog.structs import TopicPartition

API = ApiKey.DESCRIBE_LOG_DIRS
VERSIONS = range(0, 5)
_Result = DescribeLogDirsResponse.DescribeLogDirsResult
_Topic = _Result.DescribeLogDirsTopic


def handle(broker: BrokerContext, request: ApiRequest[DescribeLogDirsRequest]) -> Steps[DescribeLogDirsResponse]:
    refused = refusal(broker, request, Operation.DESCRIBE)
    if refused is not ErrorCode.NONE:
        return DescribeLogDirsResponse(throttle_time_ms=0, error_code=refused, results=[])
    wanted: set[TopicPartition] | None = None
    if request.message.topics is not None:
        wanted = set()
        for each in request.message.topics:
            wanted.update(TopicPartition(each.topic, number) for number in each.partitions)
            yield
    results = []
    for directory in (yield from broker.replicas.log_dirs()):
        results.append((yield from _describe(directory, wanted)))
    return DescribeLogDirsResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, results=results)


def _describe(directory: DirectoryUse, wanted: set[TopicPartition] | None) -> Steps[_Result]:
    uses: defaultdict[str, dict[int, LogUse]] = defaultdict(dict)
    for tp, use in directory.partitions.items():
        if wanted is None or tp in wanted:
            uses[tp.topic][tp.partition] = use
        yield
    topics = []
    for name in sorted(uses):
        partitions = yield from each_of(_partition, sorted(uses[name].items()))
        topics.append(_Topic(name=name, partitions=partitions))
    return _Result(
        error_code=ErrorCode.NONE if directory.failure is None else ErrorCode.KAFKA_STORAGE_ERROR,
        log_dir=str(directory.path.absolute()),
        topics=topics,
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
    )


def _partition(numbered: tuple[int, LogUse]) -> _Topic.DescribeLogDirsPartition:
    number, use = numbered
    return _Topic.DescribeLogDirsPartition(
        partition_index=number, partition_size=use.size, offset_lag=use.lag, is_future_key=use.is_future
    )
