"""Plans micro-batches: where the next one ends, and which ranges each reads.

The ranges of a batch follow from its two offsets alone, which include the topics' ids, so a batch that is run again
after a restart reads the same. (Those of a query's first batch follow from its end: Spark does not keep its start.)
Ends never go back: a partition whose high watermark is behind its start (for a moment, after a change of leader) keeps
its offset until that has lasted so long that it must be data loss. The one exception is a truncated log
(``truncation``): its new records are read from the offset at which it was truncated.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.clock import Clock, SystemClock
from sparklog.errors import ApiError, ErrorCode
from sparklog.spark.options.limits import Edge
from sparklog.spark.read.data_loss import DataLoss, DataLossReporter
from sparklog.spark.read.offsets import OffsetRange, Offsets, limited
from sparklog.spark.read.options import ReadOptions
from sparklog.spark.read.resolver import OffsetResolver, TopicIds
from sparklog.spark.read.sizes import PartitionSizes, SizeEstimator
from sparklog.spark.stream.group_progress import GroupProgress
from sparklog.spark.stream.offset import Epochs, StreamOffset
from sparklog.spark.stream.truncation import TruncationDetector
from sparklog.structs import IsolationLevel, TopicPartition

Sources = Callable[[ClusterMetadata, ReadOptions], tuple[OffsetResolver, SizeEstimator]]


def of_the_log(cluster: ClusterMetadata, options: ReadOptions) -> tuple[OffsetResolver, SizeEstimator]:
    """What is asked of a cluster for the offsets of a query, and for their sizes."""
    return OffsetResolver(cluster, options), PartitionSizes(cluster)


class StreamPlanner:
    """Plans the micro-batches of one run of a query, on the driver. Close it."""

    def __init__(self, options: ReadOptions, clock: Clock | None = None, sources: Sources = of_the_log) -> None:
        self.latest: Offsets | None = None
        self._options = options
        self._clock: Clock = clock or SystemClock()
        self._cluster = ClusterMetadata(options.client, self._clock)
        self._resolver, self.sizes = sources(self._cluster, options)
        self._data_loss = DataLossReporter(fail=options.fail_on_data_loss)
        group = options.commit_to_group
        self._group = GroupProgress(options.client, group, self._clock) if group else None
        self._truncation = TruncationDetector(self._cluster)
        self._planned: Offsets | None = None
        self._initial: StreamOffset | None = None
        self._has_begun = False
        self._target: StreamOffset | None = None
        self._first_offsets: dict[tuple[TopicPartition, UUID | None], int] = {}
        self._gone: set[TopicPartition] = set()
        self._told: set[str] = set()
        self._last_trigger = float("-inf")
        self._behind_since: dict[TopicPartition, float] = {}

    def close(self) -> None:
        self._cluster.close()
        if self._group is not None:
            self._group.close()

    def initial(self) -> StreamOffset:
        """Where a query without a checkpoint starts. Spark asks twice and must get the same answer."""
        if self._initial is None:
            ids = self._resolver.partitions()
            offsets = self._resolver.starting()
            found = StreamOffset(offsets, _by_topic(ids), self._resolver.ends_and_epochs(ids)[1])
            self._initial = StreamOffset.from_json(found.to_json())  # as Spark will give it back
        return self._initial

    def freeze(self) -> None:
        """Fix the present ends as those of this whole run, for the trigger AvailableNow."""
        ids = self._resolver.partitions(None)
        self._target = self._ends(ids)

    def end_of_batch(self, start: StreamOffset, *, unlimited: bool) -> StreamOffset:
        """The end of the next micro-batch. Spark asks for it when all batches before ``start`` are committed."""
        available = self._available(start)
        self.latest = {tp: end for tp, end in available.offsets.items() if tp not in self._gone}
        if self._group is not None:
            there = {tp: each for tp, each in start.offsets.items() if tp not in self._gone}
            self._group.commit({tp: at for tp, at in there.items() if start.is_same_topic(tp.topic, available)})
        begin = self._begin(start, available)
        end = available
        if not unlimited:
            if self._should_wait(begin, available.offsets):
                return start
            end = available._replace(offsets=self._limited(begin, available.offsets))
        self._planned = end.offsets
        end = end._replace(epochs=_epochs(start, begin, end))
        if start == self._initial and not self._has_begun:
            return end._replace(begins=begin)
        is_same = start.begins and end.to_json() == start._replace(begins={}).to_json()
        return start if is_same else end

    def ranges(self, start: StreamOffset, end: StreamOffset) -> list[OffsetRange]:
        """The ranges between two offsets of the query."""
        self._has_begun = True
        if start == self._initial and end.begins:
            start = StreamOffset(dict(end.begins), end.topic_ids)
        begin = self._begin(start, end)
        ends = {**end.offsets, **self._truncated_since(end)}
        return [
            OffsetRange(tp, begin[tp], last, end.topic_ids.get(tp.topic))
            for tp, last in ends.items()
            if begin[tp] < last
        ]

    def _truncated_since(self, end: StreamOffset) -> Offsets:
        """Where partitions were truncated below an end that an earlier run planned."""
        if end.offsets == self._planned:
            return {}
        now = self._ends(self._resolver.partitions(end.offsets))
        same = {tp: each for tp, each in end.offsets.items() if end.is_same_topic(tp.topic, now)}
        return self._reported_truncations(end._replace(offsets=same), now)

    def _reported_truncations(self, read: StreamOffset, now: StreamOffset) -> Offsets:
        truncated = self._truncation.truncated(read, now.epochs)
        for tp in sorted(truncated):
            self._report_once(
                DataLoss.TRUNCATED,
                f"partition {tp} was cut off at offset {truncated[tp]}, before {read.offsets[tp]}, up to where it was"
                f" read, when its leader epoch was {read.epochs[tp]}; it is {now.epochs[tp]} now, and the partition"
                f" ends at offset {now.offsets.get(tp)}: a replica without the records between took the lead",
            )
        return truncated

    def _ends(self, ids: dict[TopicPartition, UUID]) -> StreamOffset:
        offsets, epochs = self._resolver.ends_and_epochs(ids)
        return StreamOffset(offsets, _by_topic(ids), epochs)

    def _available(self, start: StreamOffset) -> StreamOffset:
        """The end of each partition. It is before the start only if records are lost and the options accept that.

        Partitions that are gone keep their offsets, in the checkpoint too.
        """
        ids = self._complete(lambda: self._resolver.partitions(start.offsets), start)
        now = self._known(ids)
        created_again = self._created_again(start, now)
        self._check_gone({tp: each for tp, each in start.offsets.items() if tp not in ids}, created_again)
        kept = {tp: each for tp, each in start.offsets.items() if tp.topic not in created_again}
        kept |= self._reported_truncations(start._replace(offsets=kept), now)
        ahead = {tp: each for tp, each in kept.items() if each > now.offsets.get(tp, each)}
        lost = self._lost_records(ahead, now.offsets)
        offsets = {**kept, **now.offsets, **{tp: ahead[tp] for tp in ahead.keys() - lost}}
        return StreamOffset(offsets, {**start.topic_ids, **now.topic_ids}, now.epochs)

    def _complete(self, ask: Callable[[], TopicIds], read: StreamOffset) -> TopicIds:
        """What ``ask`` finds. A topic loses no partition while it exists: a broker that knows fewer than were ``read``
        has old metadata, and is asked again for a moment.
        """
        backoff = self._cluster.backoff()
        while True:
            found = ask()
            late = self._not_known_yet(read, [tp for tp in read.offsets if tp not in found and tp not in self._gone])
            if late is None:
                return found
            try:
                backoff.wait(ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the broker does not know {late}"))
            except ApiError:
                return found

    def _not_known_yet(self, read: StreamOffset, missing: list[TopicPartition]) -> TopicPartition | None:
        """One of ``missing`` whose topic is there without it; None too where it may not be asked about any more."""
        try:
            there = self._resolver.existing({tp.topic for tp in missing}) if missing else {}
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            return None
        topics = StreamOffset({}, _by_topic(there))
        return next(
            (
                tp
                for tp in missing
                if tp not in there and tp.topic in topics.topic_ids and read.is_same_topic(tp.topic, topics)
            ),
            None,
        )

    def _check_gone(self, gone: Offsets, created_again: set[str]) -> None:
        self._gone &= gone.keys()
        for tp in sorted(gone.keys() - self._gone):
            if tp.topic not in created_again:
                self._data_loss.report(
                    DataLoss.DELETED,
                    f"partition {tp}, read up to offset {gone[tp]}, does not exist any more, or the query does not"
                    " subscribe to its topic any more",
                )
                self._gone.add(tp)

    def _known(self, ids: dict[TopicPartition, UUID]) -> StreamOffset:
        if self._target is None:
            return self._ends(ids)
        target = self._target
        there = {tp: end for tp, end in target.offsets.items() if ids.get(tp) == target.topic_ids.get(tp.topic)}
        return StreamOffset(there, _by_topic(ids), {tp: each for tp, each in target.epochs.items() if tp in there})

    def _created_again(self, start: StreamOffset, now: StreamOffset) -> set[str]:
        """Topics that replace one of the same name that was read. They are read from their beginning."""
        topics = {tp.topic for tp in start.offsets if not start.is_same_topic(tp.topic, now)}
        for topic in sorted(topics):
            read = {tp.partition: each for tp, each in start.offsets.items() if tp.topic == topic}
            self._report_once(
                DataLoss.RECREATED,
                f"topic {topic!r}, read up to {read} (offsets by partition), was deleted and created again: its id was"
                f" {start.topic_ids[topic]} and is {now.topic_ids[topic]}",
            )
        return topics

    def _lost_records(self, ahead: Offsets, known: Offsets) -> set[TopicPartition]:
        """The partitions of ``ahead``, which were read beyond their end, that have lost records.

        A high watermark lags only for a moment: after ``fetchOffset`` retries and intervals it is a loss. Each
        partition has that time for itself. A run that ends at a fixed target waits for it here.
        """
        if self._target is not None and ahead:
            known = self._resolver.latest(ahead)
            ahead = {tp: each for tp, each in ahead.items() if each > known[tp]}
        now = self._clock.monotonic()
        self._behind_since = {tp: self._behind_since.get(tp, now) for tp in ahead}
        patience = self._options.offset_retries * self._options.offset_retry_interval_ms / 1000
        waits = [patience - (now - since) for since in self._behind_since.values()]
        if self._target is not None and max(waits, default=0.0) > 0:
            self._clock.sleep(max(waits))
            return self._lost_records(ahead, known)
        lost = {tp for tp, wait in zip(ahead, waits, strict=True) if wait <= 0}
        for tp in lost:
            del self._behind_since[tp]
        lost = self._not_in_the_log(lost, ahead)
        for tp in sorted(lost):
            self._report_once(
                DataLoss.TRUNCATED,
                f"partition {tp} ends at offset {known[tp]}, before {ahead[tp]}, up to where it was read already",
            )
        return lost

    def _not_in_the_log(self, partitions: set[TopicPartition], read: Offsets) -> set[TopicPartition]:
        """Those whose log ends before where they were read. In others a transaction is open there: an earlier run was
        not to read committed records alone.
        """
        if not partitions or self._options.client.isolation_level is IsolationLevel.READ_UNCOMMITTED:
            return partitions
        ends = self._resolver.high_watermarks(partitions)
        return {tp for tp in partitions if ends[tp] < read[tp]}

    def _report_once(self, kind: DataLoss, message: str) -> None:
        """A query that waits for more records meets the same loss at each trigger."""
        if message not in self._told:
            self._data_loss.report(kind, message)
            self._told.add(message)

    def _begin(self, start: StreamOffset, end: StreamOffset) -> Offsets:
        """Where a batch starts in each partition of its end. A new partition starts at its first offset, normally 0.

        A partition that the options no longer select is included: a batch that an earlier run planned reads all of it.
        The exception is the first batch of a query that did not start at the first offset: its start is not known.
        """
        begin = {tp: each for tp, each in start.offsets.items() if start.is_same_topic(tp.topic, end)}
        begin |= self._truncation.truncated(start._replace(offsets=begin), end.epochs)
        new = sorted(end.offsets.keys() - begin.keys())
        keys = {tp: (tp, end.topic_ids.get(tp.topic)) for tp in new}
        unknown = [tp for tp in new if keys[tp] not in self._first_offsets]
        if unknown:
            topics = {tp.topic for tp in unknown}
            starts_at_first = self._options.starting is Edge.EARLIEST or start != self._initial
            there = self._complete(
                lambda: self._resolver.existing(topics) if starts_at_first else self._resolver.partitions(end.offsets),
                end._replace(offsets={tp: end.offsets[tp] for tp in unknown}),
            )
            found = self._resolver.earliest([tp for tp in unknown if tp in there])
            for tp in unknown:
                self._first_offsets[keys[tp]] = self._first(tp, found, end)
        return {**begin, **{tp: self._first_offsets[keys[tp]] for tp in new}}

    def _first(self, tp: TopicPartition, found: Offsets, end: StreamOffset) -> int:
        if tp not in found:
            self._data_loss.report(DataLoss.DELETED, f"the new partition {tp} does not exist any more")
            return end.offsets[tp]
        if found[tp] > 0:
            self._data_loss.report(DataLoss.EXPIRED, f"the new partition {tp} begins at offset {found[tp]}, not at 0")
        return found[tp]

    def _limited(self, begin: Offsets, available: Offsets) -> Offsets:
        options = self._options
        if options.max_offsets_per_trigger is not None:
            available = limited(begin, available, options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            weights = self.sizes.bytes_per_offset(available, begin)
            available = limited(begin, available, options.max_bytes_per_trigger, weights)
        return available

    def _should_wait(self, begin: Offsets, available: Offsets) -> bool:
        """Whether fewer offsets than ``minOffsetsPerTrigger`` wait, and ``maxTriggerDelay`` has not passed.

        The first batch of a run never waits.
        """
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None:
            return False
        waiting = sum(available[tp] - begin[tp] for tp in available)
        now = self._clock.monotonic()
        if waiting < least and now - self._last_trigger < self._options.max_trigger_delay_ms / 1000:
            return True
        self._last_trigger = now
        return False


def _epochs(start: StreamOffset, begin: Offsets, end: StreamOffset) -> Epochs:
    """The leader epochs of an end. Without records to read a partition keeps its epoch, else Spark starts a batch."""
    epochs = {}
    for tp, offset in end.offsets.items():
        before = start.epochs.get(tp) if start.is_same_topic(tp.topic, end) else None
        now = end.epochs.get(tp)
        if start.offsets.get(tp) == begin[tp] == offset and start.is_same_topic(tp.topic, end):
            now = before
        if now is not None:
            epochs[tp] = now if before is None else max(before, now)
    return epochs


def _by_topic(ids: dict[TopicPartition, UUID]) -> dict[str, UUID]:
    return {tp.topic: topic_id for tp, topic_id in ids.items()}
