"""What retention holds back until it is offloaded, by topic, and where policies give up nothing."""

from __future__ import annotations

from itertools import islice

from sparklog.metrics import families
from sparklog.metrics.exposition import Exposition
from sparklog.protocol.slices import Steps
from sparklog.replica.retention import Holding, Retention

_PARTITIONS_A_STEP = 500
_OF_TOPICS = (
    families.OFFLOAD_HELD_BYTES,
    families.OFFLOAD_HELD_RECORDS,
    families.OFFLOAD_LIMIT_USED,
    families.OFFLOAD_LOST_RECORDS,
)


class OffloadCollector:
    """Of the partitions led here, as of their last round of retention; ``most`` topics have series."""

    def __init__(self, retention: Retention, most: int) -> None:
        self._retention = retention
        self._most = most

    def collect(self, page: Exposition) -> Steps[None]:
        topics: dict[str, list[Holding]] = {}
        for number, (tp, holding) in enumerate(list(self._retention.holdings.items())):
            topics.setdefault(tp.topic, []).append(holding)
            if number % _PARTITIONS_A_STEP == _PARTITIONS_A_STEP - 1:
                yield
        page.add(families.OFFLOAD_PARTITIONS, len(self._retention.holdings))
        page.add(families.RETENTION_REFUSALS, len(self._retention.refusals))
        for family in _OF_TOPICS:
            page.lines(family)
        for topic, held in islice(topics.items(), self._most):
            page.add(families.OFFLOAD_HELD_BYTES, sum(each.bytes for each in held), topic)
            page.add(families.OFFLOAD_HELD_RECORDS, sum(each.records for each in held), topic)
            page.add(families.OFFLOAD_LIMIT_USED, max(_share(each) for each in held), topic)
            page.add(families.OFFLOAD_LOST_RECORDS, sum(each.lost_records for each in held), topic)
        yield


def _share(holding: Holding) -> float:
    """Of the limit; 0 where nothing may be held, or anything."""
    return holding.bytes / holding.limit_bytes if holding.limit_bytes > 0 else 0.0
