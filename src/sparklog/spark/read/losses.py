"""Records that a query was to read and that are gone: which kind of loss, told apart, and where a read goes on.

Offsets that compaction or the markers of transactions left empty are no loss: the log still answers for them.
"""

from __future__ import annotations

import logging
from enum import Enum

from sparklog.client.cluster.info import TopicInfo
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import earliest_offsets, latest_offsets
from sparklog.errors import ApiError, DataSourceError, ErrorCode
from sparklog.protocol.wire import ZERO_UUID
from sparklog.spark.read.offsets import OffsetRange
from sparklog.structs import TopicPartition

_log = logging.getLogger(__name__)
_ADVICE = "set the option failOnDataLoss to false to read on with what there is"
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_SIGNS = (*_UNKNOWN, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.REQUEST_TIMED_OUT)


class Loss(Enum):
    """Why records are gone; the value is the code in the message."""

    EXPIRED = "SPARKLOG_DATA_LOSS_EXPIRED"
    """Retention, or DeleteRecords: the partition now begins later."""
    TRUNCATED = "SPARKLOG_DATA_LOSS_TRUNCATED"
    """The partition was cut off, and may have grown again: an unclean election. Or the offsets never were."""
    RECREATED = "SPARKLOG_DATA_LOSS_RECREATED"
    """The topic was deleted, and another has its name."""
    DELETED = "SPARKLOG_DATA_LOSS_DELETED"
    """The topic, or the partition, does not exist any more."""


class Losses:
    """Raises each loss, or with failOnDataLoss=false logs and counts it."""

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail
        self.count = 0
        """Losses that were passed over."""

    def report(self, kind: Loss, message: str) -> None:
        """Raise DataSourceError under the kind's code, or warn."""
        if self._fail:
            raise DataSourceError(kind.value, f"{message}; {_ADVICE}")
        self.count += 1
        _log.warning("[%s] %s; read on all the same (loss %d of this query or task)", kind.value, message, self.count)


def after_loss(cluster: ClusterMetadata, wanted: OffsetRange, position: int, error: ApiError, losses: Losses) -> int:
    """Where a read of ``wanted`` that failed at ``position`` goes on, if records are lost; raises ``error`` if not.

    That is the first offset that is left, or the end of the range, where nothing of it is.
    """
    if error.code not in _SIGNS:
        raise error
    tp = wanted.tp
    topic = _still_there(cluster, tp)
    missing = f"offsets {position} to {wanted.end} of partition {tp} were to be read"
    if topic is None:
        losses.report(Loss.DELETED, f"{missing}, which does not exist any more")
        return wanted.end
    if wanted.topic_id not in (None, ZERO_UUID, topic.topic_id):
        losses.report(Loss.RECREATED, f"{missing}, but topic {tp.topic!r} was deleted and created again meanwhile")
        return wanted.end
    first, last = earliest_offsets(cluster, [tp])[tp], latest_offsets(cluster, [tp])[tp]
    if first > position:
        losses.report(Loss.EXPIRED, f"{missing}, but the partition now begins at {first}: older records are deleted")
        return min(first, wanted.end)
    if last < wanted.end:
        losses.report(Loss.TRUNCATED, f"{missing}, but the partition ends at {last}: it was cut off, or never so long")
        return wanted.end
    raise error


def _still_there(cluster: ClusterMetadata, tp: TopicPartition) -> TopicInfo | None:
    answer = cluster.fetch([tp.topic])
    answer.raise_refusal([tp.topic])
    topic = answer.topics.get(tp.topic)
    return topic if topic and any(each.partition == tp.partition for each in topic.partitions) else None
