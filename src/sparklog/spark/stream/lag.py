"""The lag of streaming queries: for each partition, in records, bytes and seconds.

A program only adds ``watch(spark)``. Spark lets no Python source report metrics of its own, so a listener computes them
from each query's progress, which has the offsets that the query has reached and those at which the log ended. A query
with nothing to read makes no progress, but Spark reports that it is idle, at once and then every ten seconds
(``spark.sql.streaming.noDataProgressEventInterval``); then the listener asks the query itself for both offsets.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryListener

from sparklog.client.cluster.config import ClientConfig
from sparklog.client.cluster.metadata import ClusterMetadata
from sparklog.spark.options.raw import RawOptions
from sparklog.spark.read.offsets import Offsets
from sparklog.spark.read.sizes import PartitionSizes
from sparklog.spark.stream.offset import StreamOffset
from sparklog.structs import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_log = logging.getLogger(__name__)
_SAMPLES = 1000
"""Ends of a partition to remember, one for each trigger, to tell since when a query is behind."""


@dataclass(frozen=True)
class PartitionLag:
    """The records not yet read (as offsets), their bytes if sizes are known, and how many seconds they have waited.

    The seconds count from when the listener first saw that end of the log; an older backlog counts from then too.
    """

    records: int
    bytes: int | None
    seconds: float


@dataclass(frozen=True)
class QueryLag:
    """The lag of one query after one batch. The three figures have the names of those of Spark's Kafka source."""

    query_id: str
    name: str | None
    batch_id: int
    partitions: Mapping[TopicPartition, PartitionLag]

    @property
    def minOffsetsBehindLatest(self) -> int:  # noqa: N802
        return min(each.records for each in self.partitions.values())

    @property
    def maxOffsetsBehindLatest(self) -> int:  # noqa: N802
        return max(each.records for each in self.partitions.values())

    @property
    def avgOffsetsBehindLatest(self) -> float:  # noqa: N802
        return sum(each.records for each in self.partitions.values()) / len(self.partitions)


def watch(
    spark: SparkSession,
    options: Mapping[str, str] | None = None,
    on_lag: Callable[[QueryLag], object] | None = None,
) -> LagListener:
    """Follow every query of the session. Each lag is kept for ``lag``, passed to ``on_lag``, and logged.

    ``options`` are those of the source (``kafka.bootstrap.servers`` and others); with them the lag has bytes too. Stop
    with ``spark.streams.removeListener``.
    """
    listener = LagListener(options, on_lag, spark)
    spark.streams.addListener(listener)
    return listener


class _Trigger(NamedTuple):
    query_id: str
    name: str | None
    batch_id: int
    timestamp: str


class LagListener(StreamingQueryListener):  # type: ignore[misc]
    """Computes the lag of each query when it makes progress or is idle. ``watch`` creates one and adds it.

    Without ``spark`` it ignores idle queries.
    """

    def __init__(
        self,
        options: Mapping[str, str] | None = None,
        on_lag: Callable[[QueryLag], object] | None = None,
        spark: SparkSession | None = None,
    ) -> None:
        config = ClientConfig.from_properties(RawOptions(options).kafka()) if options else None
        self._sizes = PartitionSizes(ClusterMetadata(config)) if config else None
        self._on_lag = on_lag
        self._spark = spark
        self._lock = threading.Lock()
        self._lags: dict[str, QueryLag] = {}
        self._ends: dict[tuple[str, TopicPartition], deque[tuple[float, int]]] = {}

    def lag(self, query_id: str) -> QueryLag | None:
        """The last lag of a query, by its id; None before its first batch and before its first idle event."""
        with self._lock:
            return self._lags.get(str(query_id))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        positions = [(_offsets(each.endOffset), _offsets(each.latestOffset)) for each in progress.sources]
        self._report(_Trigger(str(progress.id), progress.name, progress.batchId, progress.timestamp), positions)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        query = self._spark.streams.get(str(event.id)) if self._spark is not None else None
        if query is None:
            return
        running = query._jsq.streamingQuery()
        positions = [(_all_offsets(running.committedOffsets(), min), _all_offsets(running.latestOffsets(), max))]
        batch_id = running.getLatestExecutionContext().batchId() - 1
        self._report(_Trigger(str(event.id), query.name, batch_id, event.timestamp), positions)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        with self._lock:
            for key in [key for key in self._ends if key[0] == str(event.id)]:
                del self._ends[key]

    def _report(self, trigger: _Trigger, positions: Iterable[tuple[Offsets, Offsets]]) -> None:
        """Compute the lag from each source's (reached, latest) offsets, keep it, and pass it on."""
        behind = self._behind(trigger, positions)
        if not behind:
            return
        weights = self._weights(behind)
        lags = {
            tp: PartitionLag(records, round(records * weights[tp]) if tp in weights else None, seconds)
            for tp, (records, seconds) in behind.items()
        }
        found = QueryLag(trigger.query_id, trigger.name, trigger.batch_id, lags)
        with self._lock:
            self._lags[found.query_id] = found
        _log.info(
            "query %s, batch %d: at most %d records behind", found.name, found.batch_id, found.maxOffsetsBehindLatest
        )
        if self._on_lag is not None:
            self._on_lag(found)

    def _behind(
        self, trigger: _Trigger, positions: Iterable[tuple[Offsets, Offsets]]
    ) -> dict[TopicPartition, tuple[int, float]]:
        """The records and seconds by which each partition with a known end is behind.

        If several sources read a partition, the slowest counts.
        """
        now = datetime.fromisoformat(trigger.timestamp).timestamp()
        slowest: Offsets = {}
        ends: Offsets = {}
        for reached, latest in positions:
            _merge(slowest, {tp: reached.get(tp, 0) for tp in latest}, min)
            _merge(ends, latest, max)
        behind: dict[TopicPartition, tuple[int, float]] = {}
        for tp, end in ends.items():
            waits = self._waiting_since(trigger.query_id, tp, now, slowest[tp], end)
            behind[tp] = max(end - slowest[tp], 0), max(now - waits, 0)
        return behind

    def _waiting_since(self, query_id: str, tp: TopicPartition, now: float, reached: int, end: int) -> float:
        """When the listener first saw the next record to read in the log (seconds); ``now`` if there is none."""
        seen = self._ends.setdefault((query_id, tp), deque(maxlen=_SAMPLES))
        while seen and seen[-1][1] > end:  # the log was cut off, or is another one by now
            seen.pop()
        if not seen or seen[-1][1] != end:
            seen.append((now, end))
        while seen and seen[0][1] <= reached:
            seen.popleft()
        return seen[0][0] if seen else now

    def _weights(self, partitions: Mapping[TopicPartition, object]) -> Mapping[TopicPartition, float]:
        return {} if self._sizes is None else self._sizes.bytes_per_offset(list(partitions))


def _offsets(text: str | None) -> Offsets:
    """The offsets in a source's progress; none if the source is of another format."""
    try:
        return StreamOffset.from_json(json.loads(text or "{}")).offsets
    except (AttributeError, TypeError, ValueError):
        return {}


def _all_offsets(by_source: Any, choose: Callable[[int, int], int]) -> Offsets:
    """The offsets of all sources of a query, from a map in the JVM. ``choose`` merges those of the same partition."""
    found: Offsets = {}
    each = by_source.valuesIterator()
    while each.hasNext():
        _merge(found, _offsets(each.next().json()), choose)
    return found


def _merge(into: Offsets, offsets: Offsets, choose: Callable[[int, int], int]) -> None:
    for tp, offset in offsets.items():
        into[tp] = choose(into[tp], offset) if tp in into else offset
