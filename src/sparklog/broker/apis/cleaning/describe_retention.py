"""DescribeRetention: what partitions of this broker hold back for their offload, and where retention deletes nothing.

A leader tells of each of its partitions that waits, as of its last round of retention; every replica tells why its
policies give up nothing. Other partitions are left out.
"""

from __future__ import annotations

from sparklog.broker.context import ApiRequest, BrokerContext
from sparklog.broker.handling.authorization import Described
from sparklog.cluster.offload_group import group_of
from sparklog.errors import ApiError, ErrorCode
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeRetentionRequest, DescribeRetentionResponse
from sparklog.protocol.slices import Steps
from sparklog.replica.partition import Partition
from sparklog.replica.retention import waits

API = ApiKey.DESCRIBE_RETENTION
VERSIONS = range(0, 1)
_NOT_YET = -1
_Topic = DescribeRetentionResponse.DescribedTopic
_Partition = _Topic.DescribedPartition


def handle(broker: BrokerContext, request: ApiRequest[DescribeRetentionRequest]) -> Steps[DescribeRetentionResponse]:
    wanted = Described(broker, request, request.message.topics)
    try:
        yield from wanted.check()
    except ApiError as refused:
        return DescribeRetentionResponse(throttle_time_ms=0, error_code=refused.code, topics=[])
    topics: dict[str, _Topic] = {}
    for each in broker.replicas.served:
        if each.tp.topic in wanted:
            told = _told(broker, each)
            if told is not None:
                topic = topics.setdefault(each.tp.topic, _Topic(name=each.tp.topic, partitions=[]))
                topic.partitions.append(told)
        yield
    return DescribeRetentionResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, topics=[*topics.values()])


def _told(broker: BrokerContext, partition: Partition) -> _Partition | None:
    tp, retention = partition.tp, broker.replicas.retention
    refusal, is_waiting = retention.refusals.get(tp), partition.is_leader and waits(partition)
    if refusal is None and not is_waiting:
        return None
    holding = retention.holdings.get(tp) if is_waiting else None
    return _Partition(
        partition_index=tp.partition,
        offload_group=group_of(tp.topic, partition.config.offload_group) if is_waiting else None,
        offloaded_offset=_NOT_YET if holding is None else holding.offloaded,
        held_bytes=_NOT_YET if holding is None else holding.bytes,
        held_records=_NOT_YET if holding is None else holding.records,
        limit_bytes=partition.config.offload_max_bytes,
        lost_records=_NOT_YET if holding is None else holding.lost_records,
        lost_until=_NOT_YET if holding is None else holding.lost_until,
        checked_ms=_NOT_YET if holding is None else holding.checked_ms,
        refusal=refusal,
    )
