"""Estimates how many bytes an offset takes in each partition: the size of its log divided by the offsets in it.

The bytes are those of the log, so compressed. The estimate counts deleted records whose segment still exists and the
gaps that compaction leaves, and old records may be larger or smaller than new ones.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Protocol

from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import earliest_offsets, latest_offsets
from sparklog.errors import SparklogError
from sparklog.protocol.api_key import ApiKey
from sparklog.protocol.messages import DescribeLogDirsRequest
from sparklog.structs import TopicPartition, by_topic

_log = logging.getLogger(__name__)
_DEFAULT_BYTES_PER_OFFSET = 1024.0
"""Assumed if a log is empty, or its broker does not tell the size."""
_MAX_AGE_S = 30.0

Weights = Mapping[TopicPartition, float]


class SizeEstimator(Protocol):
    """Estimates the size of records."""

    def bytes_per_offset(
        self, partitions: Collection[TopicPartition], starts: Mapping[TopicPartition, int] | None = None
    ) -> dict[TopicPartition, float]:
        """The average bytes of an offset, for each partition; from this offset on, if that is told."""


class PartitionSizes:
    """Estimates by the leaders' log sizes. Asks them every thirty seconds at most, and for a new partition at once."""

    def __init__(self, cluster: ClusterMetadata) -> None:
        self._cluster = cluster
        self._known: dict[TopicPartition, float] = {}
        self._asked_at = float("-inf")

    def bytes_per_offset(
        self,
        partitions: Collection[TopicPartition],
        starts: Mapping[TopicPartition, int] | None = None,  # noqa: ARG002 (it has one figure for the whole log)
    ) -> dict[TopicPartition, float]:
        """The average bytes of an offset, for each partition; a default for those of which nothing is known."""
        now = self._cluster.clock.monotonic()
        if now - self._asked_at >= _MAX_AGE_S or not self._known.keys() >= set(partitions):
            self._asked_at = now
            self._refresh(partitions)
        return {tp: self._known[tp] for tp in partitions}

    def _refresh(self, partitions: Collection[TopicPartition]) -> None:
        try:
            sizes = log_sizes(self._cluster, partitions)
            first, last = earliest_offsets(self._cluster, partitions), latest_offsets(self._cluster, partitions)
        except SparklogError as error:
            _log.warning(
                "the sizes of partitions are not known, and taken to be %d bytes an offset: %s",
                _DEFAULT_BYTES_PER_OFFSET,
                error,
            )
            self._known = {tp: self._known.get(tp, _DEFAULT_BYTES_PER_OFFSET) for tp in partitions}
            return
        held = {tp: last[tp] - first[tp] for tp in partitions}
        self._known = {
            tp: max(sizes[tp] / held[tp], 1.0)
            if held[tp] > 0 and sizes.get(tp)
            else self._known.get(tp, _DEFAULT_BYTES_PER_OFFSET)
            for tp in partitions
        }


def log_sizes(cluster: ClusterMetadata, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """The bytes of each partition's log at its leader. Partitions that the leader does not report are left out."""
    found: dict[TopicPartition, int] = {}
    for endpoint, led in cluster.by_leader(partitions).items():
        answer = cluster.request(endpoint, ApiKey.DESCRIBE_LOG_DIRS, lambda version, led=led: _request(version, led))  # type: ignore[misc]
        for directory in answer.results:
            for topic in directory.topics:
                for each in topic.partitions:
                    if not each.is_future_key:
                        found[TopicPartition(topic.name, each.partition_index)] = int(each.partition_size)
    return found


def _request(version: int, partitions: Collection[TopicPartition]) -> DescribeLogDirsRequest:
    topics = [
        DescribeLogDirsRequest.DescribableLogDirTopic(topic=topic, partitions=numbers)
        for topic, numbers in by_topic(partitions).items()
    ]
    return DescribeLogDirsRequest(version=version, topics=topics)
