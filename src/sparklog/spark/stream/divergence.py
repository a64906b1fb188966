"""Whether the log still holds what a query has read of it, as far as leader epochs tell.

A log that was cut off below an offset and has grown past it again looks like any other. But whoever leads after such a
loss (an unclean election) begins an epoch of its own there: the epochs up to that in which an offset was an end of the
log now end before it.
"""

from __future__ import annotations

from sparklog.client.cluster.epochs import UNKNOWN, ends_of_epochs
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.spark.stream.offset import Epochs, StreamOffset
from sparklog.structs import TopicPartition


class Cuts:
    """Asks the leaders, and of a partition again only when a leader of a later epoch has come."""

    def __init__(self, cluster: ClusterMetadata) -> None:
        self._cluster = cluster
        self._ends: dict[TopicPartition, tuple[tuple[object, ...], int]] = {}

    def below(self, read: StreamOffset, now: Epochs) -> dict[TopicPartition, int]:
        """The partitions that leaders up to the epochs ``now`` have cut off below the offsets of ``read``, and where.

        What stands there now has not been read. Partitions without an epoch in either are not judged.
        """
        keys = {
            tp: (read.topic_ids.get(tp.topic), read.epochs[tp], now[tp])
            for tp in read.offsets.keys() & read.epochs.keys() & now.keys()
            if read.epochs[tp] < now[tp]
        }
        unasked = {tp: read.epochs[tp] for tp, key in keys.items() if self._ends.get(tp, ((), 0))[0] != key}
        if unasked:
            for tp, end in ends_of_epochs(self._cluster, unasked).items():
                self._ends[tp] = keys[tp], end
        ends = {tp: self._ends[tp][1] for tp in keys}
        return {tp: end for tp, end in ends.items() if end != UNKNOWN and end < read.offsets[tp]}
