"""A reader at the end of a partition: as long as that holds, there is nothing to read and nothing new to be told.

A session of thousands of partitions, of which few move, is served by a look at each, not by a read of each.
"""

from __future__ import annotations

from sparklog.log.segments import LogPosition
from sparklog.replica.in_sync import FollowerProgress
from sparklog.replica.partition import Partition


class CaughtUpState:
    """How a partition stood when a consumer or a follower was told all that there was.

    Everything that decides what a reader is told is compared: whether the partition is here, who leads it under which
    epoch, the end of the log, the high watermark (with them the last stable offset), the start of the log, and for a
    follower who is in sync. A follower of which it ``holds`` when it asks has caught up at that moment, as if the
    partition had been read.
    """

    def __init__(self, partition: Partition, bound: LogPosition, progress: FollowerProgress | None = None) -> None:
        """``bound``: how far the reader could see; ``progress`` of the follower that reads."""
        self.bound = bound
        self._partition = partition
        self._progress = progress
        self._leader = partition.leader
        self._leader_epoch = partition.leader_epoch
        self._isr = partition.isr
        self._log_end_offset = partition.log_end_offset
        self._log_start_offset = partition.log_start_offset
        self._high_watermark = partition.high_watermark.offset
        self._broker_epoch = -1 if progress is None else progress.broker_epoch

    def holds(self) -> bool:
        """Whether all is as it was."""
        partition = self._partition
        return (
            partition.is_here
            and partition.log.log_end_offset == self._log_end_offset
            and partition.high_watermark.offset == self._high_watermark
            and partition.leader_epoch == self._leader_epoch
            and partition.leader == self._leader
            and partition.log.log_start_offset == self._log_start_offset
            and (self._progress is None or partition.isr is self._isr)
        )

    def holds_for_request(self, now_ms: int) -> bool:
        """As ``holds``, for a request of the same reader that has just come."""
        if not self.holds():
            return False
        progress = self._progress
        if progress is not None:
            if progress.broker_epoch != self._broker_epoch:
                return False
            progress.has_still_all(now_ms)
        return True
