"""Log truncation detection by leader epochs, as in KIP-320: does the log still hold the records that a query has read?

A log that was truncated below an offset and has grown past it again has the same offsets as before. But the leader that
is elected after such a loss (an unclean election) starts a new epoch at the truncation. So the epoch in which the
offset was an end of the log now ends before that offset.
"""

from __future__ import annotations

from sparklog.client.cluster.epochs import UNKNOWN, ends_of_epochs
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.spark.stream.offset import Epochs, StreamOffset
from sparklog.structs import TopicPartition


class TruncationDetector:
    """Asks leaders where epochs end; about a partition again only when it has a later epoch."""

    def __init__(self, cluster: ClusterMetadata) -> None:
        self._cluster = cluster
        self._ends: dict[TopicPartition, tuple[tuple[object, ...], int]] = {}

    def truncated(self, read: StreamOffset, now: Epochs) -> dict[TopicPartition, int]:
        """Partition → offset at which it was truncated, below its offset in ``read`` and before its epoch in ``now``.

        The query has not read what the log holds there now. Partitions without an epoch in either argument are left
        out.
        """
        keys = {
            tp: (read.topic_ids.get(tp.topic), read.epochs[tp], now[tp])
            for tp in read.offsets.keys() & read.epochs.keys() & now.keys()
            if read.epochs[tp] < now[tp]
        }
        unknown = {tp: read.epochs[tp] for tp, key in keys.items() if self._ends.get(tp, ((), 0))[0] != key}
        if unknown:
            for tp, end in ends_of_epochs(self._cluster, unknown).items():
                self._ends[tp] = keys[tp], end
        ends = {tp: self._ends[tp][1] for tp in keys}
        return {tp: end for tp, end in ends.items() if end != UNKNOWN and end < read.offsets[tp]}
