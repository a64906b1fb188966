"""How many bytes an offset takes, partition by partition: the size of its log over the offsets that it holds.

Bytes are those in the log, compressed as they are. An estimate: records that were deleted but not yet their segment,
and gaps that compaction left, are in it, and old records may differ from new ones.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Protocol

from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import earliest_offsets, latest_offsets
from sparklog.errors import SparklogError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeLogDirsRequest, Message
from sparklog.structs import TopicPartition, by_topic

_log = logging.getLogger(__name__)
_GUESS = 1024.0
"""Bytes an offset, where a log is empty or its broker does not tell."""
_GOOD_FOR_S = 30.0

Weights = Mapping[TopicPartition, float]


class Sizes(Protocol):
    """Who knows how heavy partitions are."""

    def bytes_per_offset(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, float]:
        """Of each partition, on average."""


class PartitionSizes:
    """Bytes per offset, asked of the leaders at most every thirty seconds; new partitions are asked for at once."""

    def __init__(self, cluster: ClusterMetadata) -> None:
        self._cluster = cluster
        self._known: dict[TopicPartition, float] = {}
        self._asked_at = float("-inf")

    def bytes_per_offset(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, float]:
        """Of each partition; a guess for those that nothing is known of."""
        now = self._cluster.clock.monotonic()
        if now - self._asked_at >= _GOOD_FOR_S or not self._known.keys() >= set(partitions):
            self._asked_at = now
            self._refresh(partitions)
        return {tp: self._known[tp] for tp in partitions}

    def _refresh(self, partitions: Collection[TopicPartition]) -> None:
        try:
            sizes = log_sizes(self._cluster, partitions)
            first, last = earliest_offsets(self._cluster, partitions), latest_offsets(self._cluster, partitions)
        except SparklogError as error:
            _log.warning("the sizes of partitions are not known, and taken to be %d bytes an offset: %s", _GUESS, error)
            self._known = {tp: self._known.get(tp, _GUESS) for tp in partitions}
            return
        held = {tp: last[tp] - first[tp] for tp in partitions}
        self._known = {
            tp: max(sizes[tp] / held[tp], 1.0) if held[tp] > 0 and sizes.get(tp) else self._known.get(tp, _GUESS)
            for tp in partitions
        }


def log_sizes(cluster: ClusterMetadata, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """The bytes of each partition's log at its leader; not those that the leader does not tell."""
    found: dict[TopicPartition, int] = {}
    for endpoint, led in cluster.by_leader(partitions).items():
        answer = cluster.request(endpoint, ApiKey.DESCRIBE_LOG_DIRS, lambda version, led=led: _request(version, led))  # type: ignore[misc]
        for directory in answer.results:
            for topic in directory.topics:
                for each in topic.partitions:
                    if not each.is_future_key:
                        found[TopicPartition(topic.name, each.partition_index)] = int(each.partition_size)
    return found


def _request(version: int, partitions: Collection[TopicPartition]) -> Message:
    topics = [
        DescribeLogDirsRequest.DescribableLogDirTopic(topic=topic, partitions=numbers)
        for topic, numbers in by_topic(partitions).items()
    ]
    return DescribeLogDirsRequest(version=version, topics=topics)
