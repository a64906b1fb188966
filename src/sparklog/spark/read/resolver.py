"""Resolves options to offsets: which partitions a query reads, and where it starts and ends in each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from uuid import UUID

from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.client.cluster.offsets import (
    LATEST,
    OffsetAndTimestamp,
    earliest_offsets,
    latest_offsets,
    list_offsets,
    plain_offsets,
)
from sparklog.cluster.info import TopicInfo
from sparklog.errors import ApiError, DataSourceError, ErrorCode
from sparklog.spark.options.limits import Edge, GlobalTimestamp, Limit, SpecificTimestamps
from sparklog.spark.options.selection import Assign, Subscribe, SubscribePattern
from sparklog.spark.read.data_loss import DataLoss, DataLossReporter
from sparklog.spark.read.offsets import OffsetRange, Offsets
from sparklog.spark.read.options import ReadOptions
from sparklog.structs import DECISIONS_TOPIC, NO_EPOCH, IsolationLevel, LeaderEpoch, TopicPartition

TopicIds = dict[TopicPartition, UUID]


class Resolver(ABC):
    """Resolves the options. A subclass answers the four abstract questions, for a cluster or for directories."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._data_loss = DataLossReporter(fail=options.fail_on_data_loss)

    @abstractmethod
    def partitions(self, read_before: Collection[TopicPartition] | None = ()) -> TopicIds:
        """The selected partitions, each with its topic's id.

        A topic or partition that the options name must exist, or ApiError is raised. Those in ``read_before``, of this
        call or an earlier one, and their topics may be gone: then they are left out. With None, what was read before is
        not known yet, and everything that is gone is left out. A pattern matches no internal topic of the cluster or of
        the sink.
        """

    @abstractmethod
    def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """The first offset of each partition."""

    @abstractmethod
    def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        """The offset after the last visible record of each partition."""

    @abstractmethod
    def by_time(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition at or after its timestamp (ms)."""

    def batch_ranges(self) -> list[OffsetRange]:
        """The ranges that a batch query reads."""
        ids = self.partitions()
        earliest, latest = self.earliest(ids), self.latest(ids)
        start = self._resolve("startingOffsets", self._options.starting, earliest, latest)
        end = self._resolve("endingOffsets", self._options.ending, earliest, latest)
        ranges = []
        for tp, topic_id in ids.items():
            if start[tp] > end[tp] and self._is_by_time():
                end[tp] = start[tp]
            low, high = self._within(tp, start[tp], end[tp], earliest[tp], latest[tp])
            ranges.append(OffsetRange(tp, low, high, topic_id))
        return ranges

    def starting(self) -> Offsets:
        """Where a streaming query without a checkpoint starts."""
        ids = self.partitions()
        earliest, latest = self.earliest(ids), self.latest(ids)
        start = self._resolve("startingOffsets", self._options.starting, earliest, latest)
        return {tp: self._within(tp, start[tp], start[tp], earliest[tp], latest[tp])[0] for tp in ids}

    def _is_by_time(self) -> bool:
        by_time = GlobalTimestamp | SpecificTimestamps
        return isinstance(self._options.starting, by_time) or isinstance(self._options.ending, by_time)

    def _within(self, tp: TopicPartition, start: int, end: int, earliest: int, latest: int) -> tuple[int, int]:
        """The part of a range that the partition holds. Reports a loss if that is not all.

        A range can only end before it starts if one of the two is an edge of the log: that is a loss too. What is not
        committed yet is no loss.
        """
        if earliest <= start <= end <= latest:
            return start, end
        last = max(start, end) if end == latest else end
        if earliest <= start <= last and latest < last <= self._written(tp, latest):
            return start, last
        self._data_loss.report(
            DataLoss.EXPIRED if min(start, end) < earliest else DataLoss.TRUNCATED,
            f"partition {tp} holds the offsets {earliest} to {latest}{self._where(tp)}, but was to be"
            f" read from {start} to {end}",
        )
        start = min(max(start, earliest), latest)
        return start, min(max(end, start), latest)

    def _written(self, tp: TopicPartition, latest: int) -> int:  # noqa: ARG002 (a subclass asks of the partition)
        """The offset after the last record that may become visible, ``latest`` where that is all."""
        return latest

    def _where(self, tp: TopicPartition) -> str:  # noqa: ARG002 (a subclass knows of places)
        """Text that says which offsets are where, if there is more than one place."""
        return ""

    def _resolve(self, option: str, limit: Limit, earliest: Offsets, latest: Offsets) -> Offsets:
        if isinstance(limit, Edge):
            wanted: Mapping[TopicPartition, int] = dict.fromkeys(latest, limit.value)
        elif isinstance(limit, GlobalTimestamp):
            wanted = dict.fromkeys(latest, limit.timestamp)
        elif isinstance(limit, SpecificTimestamps):
            _check_covers(f"{option}ByTimestamp", limit.timestamps, latest)
            wanted = limit.timestamps
        else:
            _check_covers(option, limit.offsets, latest)
            wanted = limit.offsets
        edges = {Edge.EARLIEST.value: earliest, Edge.LATEST.value: latest}
        at_edges = {tp: edges[each][tp] for tp, each in wanted.items() if each in edges}
        others = {tp: each for tp, each in wanted.items() if each not in edges}
        if isinstance(limit, GlobalTimestamp | SpecificTimestamps):
            others = self._by_time(option, others, latest)
        return at_edges | others

    def _by_time(self, option: str, wanted: Mapping[TopicPartition, int], latest: Offsets) -> Offsets:
        starting = option == "startingOffsets"
        resolved = {}
        for tp, each in self.by_time(wanted).items():
            if each is None and starting and not self._options.latest_if_no_match:
                raise DataSourceError(
                    "SPARKLOG_NO_OFFSET_FOR_TIMESTAMP",
                    f"partition {tp} has no record at or after timestamp {wanted[tp]}; set the option"
                    " startingOffsetsByTimestampStrategy to latest to start such partitions at their end",
                )
            resolved[tp] = latest[tp] if each is None else min(each.offset, latest[tp])
        return resolved


class OffsetResolver(Resolver):
    """Resolves offsets by requests to the cluster. Ends are high watermarks, or last stable offsets."""

    def __init__(self, cluster: ClusterMetadata, options: ReadOptions) -> None:
        super().__init__(options)
        self._cluster = cluster
        self._gone: set[str] = set()
        self._read_before: set[TopicPartition] = set()

    def partitions(self, read_before: Collection[TopicPartition] | None = ()) -> TopicIds:
        # A broker that has just started does not know every topic, so a missing one is requested again for a moment.
        selection = self._options.selection
        may_be_gone = self._named() if read_before is None else {tp.topic for tp in read_before}
        if isinstance(selection, SubscribePattern):
            found = self._cluster.fetch(None).topics
            chosen = {
                name: topic
                for name, topic in found.items()
                if selection.pattern.search(name) and not topic.internal and name != DECISIONS_TOPIC
            }
            missing = {name for name in may_be_gone if selection.pattern.search(name)} - chosen.keys()
            return _with_ids([*chosen.values(), *self._described(sorted(missing), missing)])
        if isinstance(selection, Subscribe):
            return _with_ids(self._described(selection.topics, may_be_gone))
        described = _with_ids(self._described(sorted(self._named()), may_be_gone))
        if read_before is not None:
            self._read_before.update(read_before)
            self._check_assigned(selection, described)
        return {tp: described[tp] for tp in selection.partitions if tp in described}

    def _check_assigned(self, selection: Assign, described: TopicIds) -> None:
        """Raises ApiError for a partition that its topic does not have, unless an earlier topic of that name had it."""
        topics = {tp.topic for tp in described}
        for tp in selection.partitions:
            if tp.topic in topics and tp not in described and tp not in self._read_before:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {tp.topic!r} has no partition {tp}")

    def _described(self, names: Sequence[str], may_be_gone: Collection[str]) -> list[TopicInfo]:
        if not names:
            return []
        answer = self._cluster.fetch(names)
        found = dict(answer.topics)
        for name in names:
            if name in found or (name in self._gone and name in may_be_gone):
                continue
            try:
                found |= self._cluster.describe([name])
            except ApiError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                if name not in may_be_gone:
                    raise ApiError(error.code, f"{error}{self._cluster.suggestion(name)}") from error
                self._gone.add(name)
        self._gone -= found.keys()
        return [found[name] for name in names if name in found]

    def existing(self, topics: Collection[str]) -> TopicIds:
        """The partitions of those topics that exist, whether the options select them or not."""
        return _with_ids(self._described(sorted(topics), topics))

    def _named(self) -> set[str]:
        """The topics that the options name; none for a pattern."""
        selection = self._options.selection
        if isinstance(selection, SubscribePattern):
            return set()
        return set(selection.topics) if isinstance(selection, Subscribe) else {tp.topic for tp in selection.partitions}

    def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        return earliest_offsets(self._cluster, partitions)

    def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        return self.ends_and_epochs(partitions)[0]

    def ends_and_epochs(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[Offsets, dict[TopicPartition, LeaderEpoch]]:
        """``latest``, and the leader epoch of each partition whose leader tells it."""
        found = list_offsets(self._cluster, dict.fromkeys(partitions, LATEST))
        epochs = {tp: each.leader_epoch for tp, each in found.items() if each and each.leader_epoch != NO_EPOCH}
        return plain_offsets(found), epochs

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> Offsets:
        """The offset after the last record of each partition's log, committed or not."""
        return latest_offsets(self._cluster, partitions, IsolationLevel.READ_UNCOMMITTED)

    def _written(self, tp: TopicPartition, latest: int) -> int:
        if self._options.client.isolation_level is IsolationLevel.READ_UNCOMMITTED:
            return latest
        return self.high_watermarks([tp])[tp]

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
