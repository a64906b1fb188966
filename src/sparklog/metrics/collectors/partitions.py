"""The partitions that this broker holds: how many, how they are, and the log of each up to a limit."""

from __future__ import annotations

from collections.abc import Sequence
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
_ZEROS: Final = tuple((family, f"{family.name} 0\n") for family in _LACKING)
"""A series of no partition in each of these: without any a sum over partitions, all of which are well, is no number."""
_LABELS: Final = ("topic", "partition")
_SINGLE: Final = (1, 1, 1)
"""How a partition stands that has one replica: it is in sync, for it leads."""
_Four = tuple[str, str, str, str]


class _Lines:
    """The series of each log as text, written anew where something about the log has changed."""

    def __init__(self) -> None:
        self._known: dict[TopicPartition, tuple[_Four, tuple[int, int, int, int], _Four]] = {}
        """The names with their labels and the space before the value; the values; the lines."""

    def of(self, partition: Partition) -> _Four:
        """Its size, start, end and segments, a line each."""
        tp, extent = partition.tp, partition.extent
        known = self._known.get(tp)
        if known is not None and known[1] == extent:
            return known[2]
        of_size, of_start, of_end, of_count = names = known[0] if known is not None else _names(tp)
        size, start, end, count = extent
        lines = (f"{of_size}{size}\n", f"{of_start}{start}\n", f"{of_end}{end}\n", f"{of_count}{count}\n")
        self._known[tp] = (names, extent, lines)
        return lines

    def keep(self, held: int, replicas: ReplicaManager) -> None:
        """Forget those that are here no longer, where they are as many as the ``held``."""
        if len(self._known) > 2 * held:
            self._known = {tp: known for tp, known in self._known.items() if replicas.holds(tp)}


def _names(tp: TopicPartition) -> _Four:
    labels = label_text(_LABELS, (tp.topic, str(tp.partition)))
    size, start, end, segments = (f"{family.name}{labels} " for family in _OF_LOG)
    return size, start, end, segments


class _Health:
    """How many partitions are in which state."""

    def __init__(self) -> None:
        self.leaders = self.under_replicated = self.under_min_isr = self.at_min_isr = 0
        self.single = 0
        """Leaders beside these that have one replica, in sync: nothing more is to be said of them."""
        self.lags: dict[int, int] = {}
        """The largest of each follower."""


class PartitionCollector:
    """Kafka's ``ReplicaManager`` and ``Log``; ``most`` partitions have series of their own."""

    def __init__(self, replicas: ReplicaManager, most: int) -> None:
        self._replicas = replicas
        self._most = most
        self._lines = _Lines()

    def collect(self, page: Exposition) -> Steps[None]:
        served, health = self._replicas.served, _Health()
        for family in _OF_LOG:
            page.lines(family)
        for family, zero in _ZEROS:
            page.lines(family).append(zero)
        for first in range(0, len(served), _PARTITIONS_A_STEP):
            some = served[first : first + _PARTITIONS_A_STEP]
            for number, partition in enumerate(some, first):
                if partition.is_leader:
                    standing = partition.standing
                    if standing == _SINGLE:
                        health.single += 1
                        continue
                    lacks = _count_leader(health, partition, standing)
                    if lacks and number < self._most:
                        _name(page, partition.tp, lacks)
            self._tell_logs(page, some[: max(self._most - first, 0)])
            yield
        self._lines.keep(len(served), self._replicas)
        self._sums(page, len(served), health)

    def _tell_logs(self, page: Exposition, partitions: list[Partition]) -> None:
        sizes, starts, ends, counts = (page.lines(family) for family in _OF_LOG)
        for partition in partitions:
            size, start, end, count = self._lines.of(partition)
            sizes.append(size)
            starts.append(start)
            ends.append(end)
            counts.append(count)

    def _sums(self, page: Exposition, held: int, health: _Health) -> None:
        replicas = self._replicas
        page.add(families.PARTITIONS, held)
        page.add(families.LEADERS, health.leaders + health.single)
        page.add(families.UNDER_REPLICATED, health.under_replicated)
        page.add(families.UNDER_MIN_ISR, health.under_min_isr)
        page.add(families.AT_MIN_ISR, health.at_min_isr + health.single)
        page.add(families.OFFLINE_REPLICAS, replicas.offline_count)
        page.add(families.ISR_SHRINKS, replicas.isr_shrinks)
        page.add(families.ISR_EXPANDS, replicas.isr_expands)
        page.add(families.ISR_REFUSALS, replicas.isr_refusals)
        page.lines(families.FOLLOWER_LAG)
        for follower, lag in sorted(health.lags.items()):
            page.add(families.FOLLOWER_LAG, lag, str(follower))
        page.add(families.PARTITIONS_LEFT_OUT, max(held - self._most, 0))


def _name(page: Exposition, tp: TopicPartition, lacks: Sequence[Family]) -> None:
    for family in lacks:
        page.add(family, 1, tp.topic, str(tp.partition))


def _count_leader(health: _Health, partition: Partition, standing: tuple[int, int, int]) -> Sequence[Family]:
    """Of which families the partition has a series, for what it lacks."""
    lacks: list[Family] = []
    health.leaders += 1
    in_sync, needed, replicas = standing
    if in_sync < replicas:
        health.under_replicated += 1
        lacks.append(families.PARTITION_UNDER_REPLICATED)
    if in_sync < needed:
        health.under_min_isr += 1
        lacks.append(families.PARTITION_UNDER_MIN_ISR)
    health.at_min_isr += in_sync == needed
    if replicas > 1:
        if in_sync == needed:
            lacks.append(families.PARTITION_AT_MIN_ISR)
        for follower, lag in partition.follower_lags():
            health.lags[follower] = max(health.lags.get(follower, 0), lag)
    return lacks
