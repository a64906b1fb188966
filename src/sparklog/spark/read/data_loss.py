"""Data loss: records that a query has to read and that are gone; the kind of loss, and where the read continues.

Offsets without records, which compaction and transaction markers leave, are no loss: the log still has the offsets.
"""

from __future__ import annotations

import logging
from enum import Enum

from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import earliest_offsets, latest_offsets
from sparklog.cluster.info import TopicInfo
from sparklog.errors import ApiError, DataSourceError, ErrorCode
from sparklog.protocol.wire import ZERO_UUID
from sparklog.spark.read.offsets import OffsetRange
from sparklog.structs import IsolationLevel, TopicPartition

_log = logging.getLogger(__name__)
_ADVICE = "to read on with what there is, set the option failOnDataLoss to false (an offload: --accept-loss)"
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_LOSS_CODES = (*_UNKNOWN, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.REQUEST_TIMED_OUT)


class DataLoss(Enum):
    """Why records are gone; the value is the code in the message."""

    EXPIRED = "SPARKLOG_DATA_LOSS_EXPIRED"
    """Retention or DeleteRecords removed them: the partition now begins later."""
    TRUNCATED = "SPARKLOG_DATA_LOSS_TRUNCATED"
    """The log was truncated (an unclean election), and may have grown again; or the offsets never existed."""
    RECREATED = "SPARKLOG_DATA_LOSS_RECREATED"
    """The topic was deleted, and another has its name now."""
    DELETED = "SPARKLOG_DATA_LOSS_DELETED"
    """The topic, or the partition, does not exist any more."""


class DataLossReporter:
    """Raises an error for each loss, or logs and counts it with ``failOnDataLoss=false`` (``fail`` is false)."""

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail
        self.count = 0
        """Losses that were logged and did not fail the query."""

    def report(self, kind: DataLoss, message: str) -> None:
        """Raise DataSourceError with the code of this kind, or log it as a warning."""
        if self._fail:
            raise DataSourceError(kind.value, f"{message}; {_ADVICE}")
        self.count += 1
        _log.warning("[%s] %s; read on all the same (loss %d of this query or task)", kind.value, message, self.count)


def offset_after_loss(
    cluster: ClusterMetadata, wanted: OffsetRange, position: int, error: ApiError, reporter: DataLossReporter
) -> int:
    """The offset at which a read of ``wanted``, which failed at ``position``, continues after a loss.

    It is the first offset of the range that still exists, or the end of the range. Raises ``error`` if no record is
    lost, and DataSourceError as ``reporter`` does.
    """
    if error.code not in _LOSS_CODES:
        raise error
    tp = wanted.tp
    topic = _existing_topic(cluster, tp)
    missing = f"offsets {position} to {wanted.end} of partition {tp} were to be read"
    if topic is None:
        reporter.report(DataLoss.DELETED, f"{missing}, which does not exist any more")
        return wanted.end
    if wanted.topic_id not in (None, ZERO_UUID, topic.topic_id):
        reporter.report(
            DataLoss.RECREATED, f"{missing}, but topic {tp.topic!r} was deleted and created again meanwhile"
        )
        return wanted.end
    first = earliest_offsets(cluster, [tp])[tp]
    last = latest_offsets(cluster, [tp], IsolationLevel.READ_UNCOMMITTED)[tp]  # what is not committed yet is not lost
    if first > position:
        reporter.report(
            DataLoss.EXPIRED, f"{missing}, but the partition now begins at {first}: older records are deleted"
        )
        return min(first, wanted.end)
    if last < wanted.end:
        reporter.report(
            DataLoss.TRUNCATED, f"{missing}, but the partition ends at {last}: it was cut off, or never so long"
        )
        return wanted.end
    raise error


def _existing_topic(cluster: ClusterMetadata, tp: TopicPartition) -> TopicInfo | None:
    answer = cluster.fetch([tp.topic])
    answer.raise_refusal([tp.topic])
    topic = answer.topics.get(tp.topic)
    return topic if topic and any(each.partition == tp.partition for each in topic.partitions) else None
