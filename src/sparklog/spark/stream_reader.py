"""Streaming: where the next micro-batch ends, decided on the driver.

One instance lives in a driver process for as long as the query runs and alone talks to the brokers there; another is
pickled to the executors for ``read``, so connections are made at first use. Ends never go back: a partition whose
high watermark is behind what was read (a leader change, for a moment) stays where it is. What a partition was found
to start from, and which topic (by id) it belongs to, is remembered for the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from sparklog.client.metadata import ClusterMetadata
from sparklog.clock import Clock, SystemClock
from sparklog.spark.failures import report_data_loss, translated
from sparklog.spark.offsets import OffsetRange, Offsets, from_json, limited, to_json
from sparklog.spark.options import ReadOptions
from sparklog.spark.reader import RangesPartition, plan_tasks
from sparklog.spark.resolver import OffsetResolver
from sparklog.spark.schema import check_read_schema
from sparklog.structs import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class SparklogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Micro-batches of what the options select."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_read_schema(schema)
        self._options = options
        self._schema = schema
        self._driver: _Driver | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        with translated():
            return to_json(self._planner().initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        with translated():
            unlimited = isinstance(limit, ReadAllAvailable)
            return to_json(self._planner().end_of_batch(from_json(start), unlimited=unlimited))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with translated():
            self._planner().freeze()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        latest = self._driver.latest if self._driver else None
        return to_json(latest) if latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangesPartition]:
        with translated():
            ranges = self._planner().ranges(from_json(start), from_json(end))
            return plan_tasks(self._options, ranges)

    def read(self, partition: RangesPartition) -> Iterator[pa.RecordBatch]:
        from sparklog.spark.columns import read_ranges

        return read_ranges(self._options, self._schema, partition.ranges)

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None

    def _planner(self) -> _Driver:
        if self._driver is None:
            self._driver = _Driver(self._options)
        return self._driver


class _Driver:
    """The state of one run of a query."""

    def __init__(self, options: ReadOptions, clock: Clock | None = None) -> None:
        self.latest: Offsets | None = None
        self._options = options
        self._clock: Clock = clock or SystemClock()
        self._cluster = ClusterMetadata(options.client, self._clock)
        self._resolver = OffsetResolver(self._cluster, options)
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        self._topic_ids: dict[str, UUID] = {}
        self._first_offsets: Offsets = {}
        self._last_trigger = self._clock.monotonic()
        self._behind_since: float | None = None

    def close(self) -> None:
        self._cluster.close()

    def initial(self) -> Offsets:
        """Where a query without a checkpoint begins. Spark asks twice; the second answer must be the first."""
        if self._initial is None:
            self._initial = self._resolver.starting()
        return self._initial

    def freeze(self) -> None:
        """For AvailableNow: what there is now is all that this run reads."""
        self._target = self._resolver.latest(self._resolver.partitions())

    def end_of_batch(self, start: Offsets, *, unlimited: bool) -> Offsets:
        """Up to where the next micro-batch reads."""
        available = self._available(start)
        self.latest = available
        if unlimited:
            return available
        begin = {**self._begin_of_new(start, available), **start}
        if self._should_wait(begin, available):
            return start
        most = self._options.max_offsets_per_trigger
        return available if most is None else limited(begin, available, most)

    def ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """What lies between two offsets of the query."""
        begin = {**self._begin_of_new(start, end), **start}
        return [OffsetRange(tp, begin[tp], last, self._topic_ids.get(tp.topic)) for tp, last in end.items()]

    def _available(self, start: Offsets) -> Offsets:
        """The end of each partition, never before its start; partitions that have gone are data loss."""
        ids = self._resolver.partitions()
        self._watch_topics(ids)
        if self._target is not None:
            known = {tp: end for tp, end in self._target.items() if tp in ids}
        else:
            known = self._resolver.latest(ids)
        gone = sorted(start.keys() - ids.keys())
        if gone:
            names = ", ".join(str(tp) for tp in gone)
            report_data_loss(f"partitions {names} do not exist any more", fail=self._options.fail_on_data_loss)
        ahead = {tp: start[tp] for tp in known if start.get(tp, 0) > known[tp]}
        if self._target is None:
            self._check_behind(ahead, known)
        kept = {tp: start[tp] for tp in start.keys() & ids.keys()}
        return {**kept, **known, **ahead}

    def _watch_topics(self, ids: dict[TopicPartition, UUID]) -> None:
        """A topic that was deleted and created again has other records under the same offsets."""
        for tp, topic_id in ids.items():
            before = self._topic_ids.setdefault(tp.topic, topic_id)
            if before != topic_id:
                self._topic_ids[tp.topic] = topic_id
                report_data_loss(
                    f"topic {tp.topic!r} was deleted and created again since it was last read",
                    fail=self._options.fail_on_data_loss,
                )

    def _check_behind(self, ahead: Offsets, known: Offsets) -> None:
        """A high watermark may lag for a moment behind what was read; for long, it means that records are lost."""
        if not ahead:
            self._behind_since = None
            return
        now = self._clock.monotonic()
        if self._behind_since is None:
            self._behind_since = now
        patience = self._options.offset_retries * self._options.offset_retry_interval_ms / 1000
        if now - self._behind_since >= patience:
            self._behind_since = now
            tp = min(ahead)
            report_data_loss(
                f"partition {tp} ends at offset {known[tp]}, before {ahead[tp]}, up to where it was read already",
                fail=self._options.fail_on_data_loss,
            )

    def _begin_of_new(self, start: Offsets, end: Offsets) -> Offsets:
        """Partitions that appeared since the query began are read from their first offset, which should be 0."""
        new = sorted(end.keys() - start.keys())
        unasked = [tp for tp in new if tp not in self._first_offsets]
        if unasked:
            found = self._resolver.earliest(unasked)
            for tp, first in found.items():
                if first > 0:
                    report_data_loss(
                        f"the new partition {tp} begins at offset {first}, not at 0",
                        fail=self._options.fail_on_data_loss,
                    )
            self._first_offsets.update(found)
        return {tp: self._first_offsets[tp] for tp in new}

    def _should_wait(self, begin: Offsets, available: Offsets) -> bool:
        """Whether there is less than ``minOffsetsPerTrigger``, and ``maxTriggerDelay`` has not passed."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None:
            return False
        waiting = sum(available[tp] - begin[tp] for tp in available)
        now = self._clock.monotonic()
        if waiting < least and now - self._last_trigger < self._options.max_trigger_delay_ms / 1000:
            return True
        self._last_trigger = now
        return False
