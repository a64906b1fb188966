"""DescribeLag, as clients and brokers ask for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from sparklog.protocol.messages import DescribeLagRequest, DescribeLagResponse
from sparklog.structs import TopicPartition

_Topic = DescribeLagRequest.LagTopic


class Lag(NamedTuple):
    """From ``offset`` to the high watermark ``end`` of a partition there are so many bytes."""

    tp: TopicPartition
    offset: int
    end: int
    bytes: int


def lag_request(offsets: Mapping[TopicPartition, Sequence[int]]) -> DescribeLagRequest:
    """The request for all these offsets of each partition."""
    topics: defaultdict[str, list[_Topic.LagPartition]] = defaultdict(list)
    for tp, wanted in offsets.items():
        topics[tp.topic] += [_Topic.LagPartition(partition_index=tp.partition, offset=each) for each in wanted]
    return DescribeLagRequest(topics=[_Topic(name=name, partitions=some) for name, some in topics.items()])


def described_lags(answer: DescribeLagResponse) -> Iterator[Lag]:
    """What the leader has told; partitions with an error are left out."""
    for topic in answer.topics:
        for each in topic.partitions:
            if each.error_code == 0:
                tp = TopicPartition(topic.name, each.partition_index)
                yield Lag(tp, each.offset, each.high_watermark, each.bytes)
