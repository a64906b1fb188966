"""From options to offsets: which partitions there are, and where a query starts and ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from sparklog.client.cluster_info import TopicInfo
from sparklog.client.metadata import ClusterMetadata
from sparklog.client.offsets import OffsetAndTimestamp, earliest_offsets, latest_offsets, list_offsets
from sparklog.errors import ApiError, DataSourceError, ErrorCode
from sparklog.spark.decisions import DECISIONS_TOPIC
from sparklog.spark.failures import report_data_loss
from sparklog.spark.offsets import OffsetRange, Offsets
from sparklog.spark.options import (
    Assign,
    Edge,
    GlobalTimestamp,
    Limit,
    ReadOptions,
    SpecificOffsets,
    SpecificTimestamps,
    SubscribePattern,
)
from sparklog.structs import TopicPartition

TopicIds = dict[TopicPartition, UUID]


class Resolver(ABC):
    """Where partitions start and end; whoever knows it fills in the four questions."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    @abstractmethod
    def partitions(self) -> TopicIds:
        """The partitions selected, each with its topic's id. A topic that is named must exist.

        A pattern matches none of those that the cluster, or our own sink, keeps for itself.
        """

    @abstractmethod
    def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """The first offset of each."""

    @abstractmethod
    def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """The end of what may be read of each."""

    @abstractmethod
    def by_time(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each no earlier than a timestamp (ms)."""

    def batch_ranges(self) -> list[OffsetRange]:
        """What a batch query reads."""
        ids = self.partitions()
        earliest, latest = self.earliest(ids), self.latest(ids)
        start = self._resolve("startingOffsets", self._options.starting, earliest, latest)
        end = self._resolve("endingOffsets", self._options.ending, earliest, latest)
        ranges = []
        for tp, topic_id in ids.items():
            if start[tp] > end[tp]:
                if not self._is_by_time():
                    raise _not_a_range(tp, start[tp], end[tp])
                end[tp] = start[tp]
            low, high = self._within(tp, start[tp], end[tp], earliest[tp], latest[tp])
            ranges.append(OffsetRange(tp, low, high, topic_id))
        return ranges

    def starting(self) -> Offsets:
        """Where a streaming query begins; asked once, when it has no checkpoint."""
        ids = self.partitions()
        earliest, latest = self.earliest(ids), self.latest(ids)
        start = self._resolve("startingOffsets", self._options.starting, earliest, latest)
        return {tp: self._within(tp, start[tp], start[tp], earliest[tp], latest[tp])[0] for tp in ids}

    def _is_by_time(self) -> bool:
        by_time = GlobalTimestamp | SpecificTimestamps
        return isinstance(self._options.starting, by_time) or isinstance(self._options.ending, by_time)

    def _within(self, tp: TopicPartition, start: int, end: int, earliest: int, latest: int) -> tuple[int, int]:
        if earliest <= start and end <= latest:
            return start, end
        report_data_loss(
            f"partition {tp} holds the offsets {earliest} to {latest}, not all of {start} to {end}",
            fail=self._options.fail_on_data_loss,
        )
        start = min(max(start, earliest), latest)
        return start, min(max(end, start), latest)

    def _resolve(self, option: str, limit: Limit, earliest: Offsets, latest: Offsets) -> Offsets:
        if isinstance(limit, Edge):
            return dict(earliest if limit is Edge.EARLIEST else latest)
        if isinstance(limit, SpecificOffsets):
            _check_covers(option, limit.offsets, latest)
            edges = {Edge.EARLIEST.value: earliest, Edge.LATEST.value: latest}
            return {tp: edges[offset][tp] if offset in edges else offset for tp, offset in limit.offsets.items()}
        if isinstance(limit, GlobalTimestamp):
            wanted: Mapping[TopicPartition, int] = dict.fromkeys(latest, limit.timestamp)
        else:
            _check_covers(f"{option}ByTimestamp", limit.timestamps, latest)
            wanted = limit.timestamps
        return self._by_time(option, wanted, latest)

    def _by_time(self, option: str, wanted: Mapping[TopicPartition, int], latest: Offsets) -> Offsets:
        """A negative timestamp means an edge to ListOffsets, so it is asked as 0: before any record."""
        found = self.by_time({tp: max(timestamp, 0) for tp, timestamp in wanted.items()})
        starting = option == "startingOffsets"
        resolved = {}
        for tp, each in found.items():
            if each is None and starting and not self._options.latest_if_no_match:
                raise DataSourceError(
                    "SPARKLOG_NO_OFFSET_FOR_TIMESTAMP",
                    f"partition {tp} has no record at or after timestamp {wanted[tp]}; set the option"
                    " startingOffsetsByTimestampStrategy to latest to start such partitions at their end",
                )
            resolved[tp] = latest[tp] if each is None else min(each.offset, latest[tp])
        return resolved


class OffsetResolver(Resolver):
    """Asks the cluster; ends are high watermarks, or last stable offsets."""

    def __init__(self, cluster: ClusterMetadata, options: ReadOptions) -> None:
        super().__init__(options)
        self._cluster = cluster

    def partitions(self) -> TopicIds:
        selection = self._options.selection
        if isinstance(selection, SubscribePattern):
            topics = self._cluster.fetch(None).topics
            chosen = [topic for name, topic in topics.items() if selection.pattern.fullmatch(name)]
            return _with_ids(topic for topic in chosen if not topic.internal and topic.name != DECISIONS_TOPIC)
        if isinstance(selection, Assign):
            described = _with_ids(self._cluster.describe(sorted({tp.topic for tp in selection.partitions})).values())
            for tp in selection.partitions:
                if tp not in described:
                    raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {tp.topic!r} has no partition {tp}")
            return {tp: described[tp] for tp in selection.partitions}
        return _with_ids(self._cluster.describe(selection.topics).values())

    def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        return earliest_offsets(self._cluster, partitions)

    def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        return latest_offsets(self._cluster, partitions)

    def by_time(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return list_offsets(self._cluster, wanted)


def _with_ids(topics: Iterable[TopicInfo]) -> TopicIds:
    return {TopicPartition(topic.name, each.partition): topic.topic_id for topic in topics for each in topic.partitions}


def _check_covers(option: str, given: Mapping[TopicPartition, int], existing: Mapping[TopicPartition, int]) -> None:
    if given.keys() != existing.keys():
        missing = ", ".join(str(tp) for tp in sorted(existing.keys() - given.keys())) or "none"
        extra = ", ".join(str(tp) for tp in sorted(given.keys() - existing.keys())) or "none"
        raise DataSourceError(
            "SPARKLOG_INVALID_OPTION",
            f"option '{option}' must name every partition that is read (-1 is latest, -2 earliest);"
            f" missing: {missing}; not read: {extra}",
        )


def _not_a_range(tp: TopicPartition, start: int, end: int) -> DataSourceError:
    return DataSourceError(
        "SPARKLOG_INVALID_OPTION", f"partition {tp} would be read from offset {start} to {end}, which lies before it"
    )
