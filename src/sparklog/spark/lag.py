"""How far streaming queries are behind: partition by partition, in records, bytes and seconds.

``watch(spark)`` is all that is to be added to a program. Spark lets no Python source report metrics of its own, so a
listener computes them from what each query's progress says: where it has come, and where the log ended then.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from sparklog.client.config import ClientConfig
from sparklog.client.metadata import ClusterMetadata
from sparklog.spark.given import GivenOptions
from sparklog.spark.sizes import PartitionSizes
from sparklog.spark.stream_offset import StreamOffset
from sparklog.structs import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
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
    listener = LagListener(options, on_lag)
    spark.streams.addListener(listener)
    return listener


class LagListener(StreamingQueryListener):  # type: ignore[misc]
    """Computes the lag of each query when it makes progress. ``watch`` makes one and adds it."""

    def __init__(
        self, options: Mapping[str, str] | None = None, on_lag: Callable[[QueryLag], object] | None = None
    ) -> None:
        config = ClientConfig.from_properties(GivenOptions(options).kafka()) if options else None
        self._sizes = PartitionSizes(ClusterMetadata(config)) if config else None
        self._on_lag = on_lag
        self._lock = threading.Lock()
        self._lags: dict[str, QueryLag] = {}
        self._ends: dict[tuple[str, TopicPartition], deque[tuple[float, int]]] = {}

    def lag(self, query_id: str) -> QueryLag | None:
        """What was found last of a query, by its id, as text; None as long as there was no batch."""
        with self._lock:
            return self._lags.get(str(query_id))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        found = self._computed(event.progress)
        if found is None:
            return
        with self._lock:
            self._lags[found.query_id] = found
        _log.info(
            "query %s, batch %d: at most %d records behind", found.name, found.batch_id, found.maxOffsetsBehindLatest
        )
        if self._on_lag is not None:
            self._on_lag(found)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        with self._lock:
            for key in [key for key in self._ends if key[0] == str(event.id)]:
                del self._ends[key]

    def _computed(self, progress: StreamingQueryProgress) -> QueryLag | None:
        query_id = str(progress.id)
        now = datetime.fromisoformat(progress.timestamp).timestamp()
        behind: dict[TopicPartition, tuple[int, float]] = {}
        for source in progress.sources:
            reached, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
            for tp, end in latest.items():
                waits = self._waiting_since(query_id, tp, now, reached.get(tp, 0), end)
                behind[tp] = max(end - reached.get(tp, 0), 0), max(now - waits, 0)
        if not behind:
            return None
        weights = self._weights(behind)
        lags = {
            tp: PartitionLag(records, round(records * weights[tp]) if tp in weights else None, seconds)
            for tp, (records, seconds) in behind.items()
        }
        return QueryLag(query_id, progress.name, progress.batchId, lags)

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


def _offsets(text: str | None) -> Mapping[TopicPartition, int]:
    """The offsets in a source's progress; none if the source is of another kind."""
    try:
        return StreamOffset.from_json(json.loads(text or "{}")).offsets
    except (AttributeError, TypeError, ValueError):
        return {}
