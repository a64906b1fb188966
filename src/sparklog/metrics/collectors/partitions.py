"""The partitions that this broker holds: how many, how they are, and the log of each up to a limit."""

from __future__ import annotations

from typing import Final

from sparklog.metrics import families
from sparklog.metrics.exposition import Exposition, Family, label_text
from sparklog.protocol.slices import Steps
from sparklog.replica.manager import ReplicaManager
from sparklog.replica.partition import Partition
from sparklog.structs import TopicPartition

_PARTITIONS_A_STEP = 100
_OF_LOG: Final = (families.LOG_SIZE, families.LOG_START, families.LOG_END, families.LOG_SEGMENTS)
_LACKING: Final = (
    families.PARTITION_UNDER_REPLICATED,
    families.PARTITION_UNDER_MIN_ISR,
    families.PARTITION_AT_MIN_ISR,
)
_LABELS: Final = ("topic", "partition")


class _Names:
    """The names and labels of a log's series, with the space before the value: written once for each partition."""

    def __init__(self) -> None:
        self._known: dict[TopicPartition, tuple[str, str, str, str]] = {}

    def of(self, tp: TopicPartition) -> tuple[str, str, str, str]:
        found = self._known.get(tp)
        if found is None:
            labels = label_text(_LABELS, (tp.topic, str(tp.partition)))
            size, start, end, segments = (f"{family.name}{labels} " for family in _OF_LOG)
            found = self._known[tp] = (size, start, end, segments)
        return found

    def keep(self, held: int, replicas: ReplicaManager) -> None:
        """Forget those that are here no longer, where they are as many as the ``held``."""
        if len(self._known) > 2 * held:
            self._known = {tp: names for tp, names in self._known.items() if replicas.holds(tp)}


class _Health:
    """How many partitions are in which state."""

    def __init__(self) -> None:
        self.leaders = self.under_replicated = self.under_min_isr = self.at_min_isr = 0
        self.lags: dict[int, int] = {}
        """The largest of each follower."""


class PartitionCollector:
    """Kafka's ``ReplicaManager`` and ``Log``; ``most`` partitions have series of their own."""

    def __init__(self, replicas: ReplicaManager, most: int) -> None:
        self._replicas = replicas
        self._most = most
        self._names = _Names()

    def collect(self, page: Exposition) -> Steps[None]:
        served, health = self._replicas.served, _Health()
        for family in (*_OF_LOG, *_LACKING):
            page.lines(family)
        for first in range(0, len(served), _PARTITIONS_A_STEP):
            some = served[first : first + _PARTITIONS_A_STEP]
            for number, partition in enumerate(some, first):
                if partition.is_leader:
                    lacks = _count_leader(health, partition)
                    if lacks and number < self._most:
                        _name(page, partition.tp, lacks)
            self._tell_logs(page, some[: max(self._most - first, 0)])
            yield
        self._names.keep(len(served), self._replicas)
        self._sums(page, len(served), health)

    def _tell_logs(self, page: Exposition, partitions: list[Partition]) -> None:
        sizes, starts, ends, counts = (page.lines(family) for family in _OF_LOG)
        names = self._names.of
        for partition in partitions:
            of_size, of_start, of_end, of_count = names(partition.tp)
            size, start, end, count = partition.extent
            sizes.append(f"{of_size}{size}\n")
            starts.append(f"{of_start}{start}\n")
            ends.append(f"{of_end}{end}\n")
            counts.append(f"{of_count}{count}\n")

    def _sums(self, page: Exposition, held: int, health: _Health) -> None:
        replicas = self._replicas
        page.add(families.PARTITIONS, held)
        page.add(families.LEADERS, health.leaders)
        page.add(families.UNDER_REPLICATED, health.under_replicated)
        page.add(families.UNDER_MIN_ISR, health.under_min_isr)
        page.add(families.AT_MIN_ISR, health.at_min_isr)
        page.add(families.OFFLINE_REPLICAS, replicas.offline_count)
        page.add(families.ISR_SHRINKS, replicas.isr_shrinks)
        page.add(families.ISR_EXPANDS, replicas.isr_expands)
        page.add(families.ISR_REFUSALS, replicas.isr_refusals)
        page.lines(families.FOLLOWER_LAG)
        for follower, lag in sorted(health.lags.items()):
            page.add(families.FOLLOWER_LAG, lag, str(follower))
        page.add(families.PARTITIONS_LEFT_OUT, max(held - self._most, 0))


def _name(page: Exposition, tp: TopicPartition, lacks: list[Family]) -> None:
    for family in lacks:
        page.add(family, 1, tp.topic, str(tp.partition))


def _count_leader(health: _Health, partition: Partition) -> list[Family]:
    """Of which families the partition has a series, for what it lacks."""
    lacks: list[Family] = []
    health.leaders += 1
    in_sync, needed = len(partition.isr), partition.min_in_sync
    if in_sync < len(partition.replicas):
        health.under_replicated += 1
        lacks.append(families.PARTITION_UNDER_REPLICATED)
    if in_sync < needed:
        health.under_min_isr += 1
        lacks.append(families.PARTITION_UNDER_MIN_ISR)
    health.at_min_isr += in_sync == needed
    if len(partition.replicas) > 1:
        if in_sync == needed:
            lacks.append(families.PARTITION_AT_MIN_ISR)
        for follower, lag in partition.follower_lags():
            health.lags[follower] = max(health.lags.get(follower, 0), lag)
    return lacks
