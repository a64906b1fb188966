"""How far streaming queries are behind: partition by partition, in records, bytes and seconds.

``watch(spark)`` is all that is to be added to a program. Spark lets no Python source report metrics of its own, so a
listener computes them from what each query's progress says: where it has come, and where the log ended then. A query
that finds nothing to read makes no progress, but Spark says that it is idle, at once and then every ten seconds
(``spark.sql.streaming.noDataProgressEventInterval``); then the query itself is asked for the same two.
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
from sparklog.spark.raw_options import RawOptions
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
"""Ends of a partition that are remembered to tell since when a query is behind: as many triggers."""


@dataclass(frozen=True)
class PartitionLag:
    """Records not yet read, as offsets; their bytes, where sizes are known; for how many seconds they have waited.

    The seconds count from when the listener first saw the log that far; a backlog from before it counts from then.
    """

    records: int
    bytes: int | None
    seconds: float


@dataclass(frozen=True)
class QueryLag:
    """The lag of one query after one batch. The three figures are those of Spark's Kafka source, by its names."""

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
    """Follow every query of the session; what was found is at ``lag``, goes to ``on_lag``, and to the log.

    ``options`` are those of the source (``kafka.bootstrap.servers`` and others); with them the lag is told in bytes
    too. Stop with ``spark.streams.removeListener``.
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
    """Computes the lag of each query when it makes progress or is idle. ``watch`` makes one and adds it.

    Without ``spark`` nothing is known of a query that is idle.
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
        """What was found last of a query, by its id, as text; None until it has read a batch, or found none to read."""
        with self._lock:
            return self._lags.get(str(query_id))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        told = [(_offsets(each.endOffset), _offsets(each.latestOffset)) for each in progress.sources]
        self._tell(_Trigger(str(progress.id), progress.name, progress.batchId, progress.timestamp), told)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        query = self._spark.streams.get(str(event.id)) if self._spark is not None else None
        if query is None:
            return
        running = query._jsq.streamingQuery()
        told = [(_all_offsets(running.committedOffsets(), min), _all_offsets(running.latestOffsets(), max))]
        batch_id = running.getLatestExecutionContext().batchId() - 1
        self._tell(_Trigger(str(event.id), query.name, batch_id, event.timestamp), told)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        with self._lock:
            for key in [key for key in self._ends if key[0] == str(event.id)]:
                del self._ends[key]

    def _tell(self, trigger: _Trigger, told: Iterable[tuple[Offsets, Offsets]]) -> None:
        """Compute the lag from where each source has come, and where its log ends; keep it, and tell of it."""
        behind = self._behind(trigger, told)
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
        self, trigger: _Trigger, told: Iterable[tuple[Offsets, Offsets]]
    ) -> dict[TopicPartition, tuple[int, float]]:
        """Records and seconds of each partition of which an end is known.

        Where several sources read it, the slowest of them counts.
        """
        now = datetime.fromisoformat(trigger.timestamp).timestamp()
        slowest: Offsets = {}
        ends: Offsets = {}
        for reached, latest in told:
            _merge(slowest, {tp: reached.get(tp, 0) for tp in latest}, min)
            _merge(ends, latest, max)
        behind: dict[TopicPartition, tuple[int, float]] = {}
        for tp, end in ends.items():
            waits = self._waiting_since(trigger.query_id, tp, now, slowest[tp], end)
            behind[tp] = max(end - slowest[tp], 0), max(now - waits, 0)
        return behind

    def _waiting_since(self, query_id: str, tp: TopicPartition, now: float, reached: int, end: int) -> float:
        """When the log was first seen to hold the next record to read; ``now`` where there is none."""
        seen = self._ends.setdefault((query_id, tp), deque(maxlen=_SAMPLES))
        if not seen or seen[-1][1] != end:
            seen.append((now, end))
        while seen and seen[0][1] <= reached:
            seen.popleft()
        return seen[0][0] if seen else now

    def _weights(self, partitions: Mapping[TopicPartition, object]) -> Mapping[TopicPartition, float]:
        return {} if self._sizes is None else self._sizes.bytes_per_offset(list(partitions))


def _offsets(text: str | None) -> Offsets:
    """The offsets in a source's progress; none if the source is of another kind."""
    try:
        return StreamOffset.from_json(json.loads(text or "{}")).offsets
    except (AttributeError, TypeError, ValueError):
        return {}


def _all_offsets(by_source: Any, choose: Callable[[int, int], int]) -> Offsets:
    """The offsets of all sources of a query, which are a map in the JVM; ``choose``: of a partition of several."""
    found: Offsets = {}
    each = by_source.valuesIterator()
    while each.hasNext():
        _merge(found, _offsets(each.next().json()), choose)
    return found


def _merge(into: Offsets, offsets: Offsets, choose: Callable[[int, int], int]) -> None:
    for tp, offset in offsets.items():
        into[tp] = choose(into[tp], offset) if tp in into else offset
