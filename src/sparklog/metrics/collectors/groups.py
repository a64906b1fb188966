"""The groups that this broker coordinates, and how far behind they are.

The end of a partition is its high watermark, as ListOffsets tells it: of one that is led or followed here as it is
known here, of another as its leader told last (``metrics/ends.py``). Of one whose end is not known there is no lag.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

from sparklog.group.classic.group import GroupState
from sparklog.group.hosted import Hosted
from sparklog.group.runtime import GroupCoordinator
from sparklog.metrics import families
from sparklog.metrics.exposition import Exposition, label_text
from sparklog.protocol.slices import Steps
from sparklog.structs import TopicPartition

_OFFSETS_A_STEP = 100
_OF_OFFSET = (families.GROUP_OFFSET, families.GROUP_LAG, families.GROUP_LAG_SECONDS, families.GROUP_LAG_BYTES)
_OF_EACH = (*_OF_OFFSET, families.GROUP_MEMBERS)
_LABELS = families.GROUP_OFFSET.labels
_OFFSET, _LAG, _LAG_SECONDS, _LAG_BYTES = (family.name for family in _OF_OFFSET)
"""All four have the same labels."""


class Ends(Protocol):
    """Where partitions end."""

    def end(self, tp: TopicPartition) -> int | None:
        """The high watermark; None if it is not known."""
        ...

    def behind_s(self, tp: TopicPartition, offset: int, end: int) -> float:
        """For how long at least there has been a record at ``offset``, which lies before ``end``."""
        ...

    def bytes_behind(self, group: str, tp: TopicPartition, offset: int, end: int) -> int | None:
        """Bytes from ``offset`` to ``end``, which lies behind it; None if it is not known."""
        ...


class GroupCollector:
    """Kafka's ``GroupMetadataManager``; ``most`` groups, and as many of their offsets, have series of their own."""

    def __init__(self, groups: GroupCoordinator, ends: Ends, most: int) -> None:
        self._groups = groups
        self._ends = ends
        self._most = most

    def collect(self, page: Exposition) -> Steps[None]:
        for family in _OF_EACH:
            page.lines(family)
        columns = [page.lines(family) for family in _OF_OFFSET]
        states: Counter[tuple[str, str]] = Counter()
        told = offsets = 0
        for hosted in self._groups.each():
            states[_kind_of(hosted)] += 1
            name = hosted.group.group_id
            if states.total() <= self._most:
                members = hosted.group.members if hosted.consumer is None else hosted.consumer.members
                page.add(families.GROUP_MEMBERS, len(members), name)
            offsets += len(hosted.group.offsets)
            yield
            for tp, committed in list(islice(hosted.group.offsets.items(), max(self._most - told, 0))):
                self._tell(columns, name, tp, committed.offset)
                told += 1
                if told % _OFFSETS_A_STEP == 0:
                    yield
        self._sums(page, states, offsets)
        page.add(families.OFFSETS_LEFT_OUT, max(offsets - told, 0))

    def _tell(self, columns: Sequence[list[str]], group: str, tp: TopicPartition, offset: int) -> None:
        labels = label_text(_LABELS, (group, tp.topic, str(tp.partition)))
        offsets, lags, times, sizes = columns
        offsets.append(f"{_OFFSET}{labels} {offset}\n")
        end = self._ends.end(tp)
        if end is not None:
            lags.append(f"{_LAG}{labels} {max(end - offset, 0)}\n")
            seconds = self._ends.behind_s(tp, offset, end) if offset < end else 0.0
            times.append(f"{_LAG_SECONDS}{labels} {round(seconds, 3)}\n")
            size = self._ends.bytes_behind(group, tp, offset, end) if offset < end else 0
            if size is not None:
                sizes.append(f"{_LAG_BYTES}{labels} {size}\n")

    @staticmethod
    def _sums(page: Exposition, states: Counter[tuple[str, str]], offsets: int) -> None:
        page.add(families.GROUPS, sum(states.values()))
        page.add(families.GROUP_OFFSETS, offsets)
        for state in GroupState:
            page.add(families.GROUP_STATES[state.value], states["classic", state.value])
        page.lines(families.CONSUMER_GROUPS)
        for (protocol, named), count in sorted(states.items()):
            page.add(families.CONSUMER_GROUPS, count, protocol, named)


def _kind_of(hosted: Hosted) -> tuple[str, str]:
    if hosted.consumer is None:
        return "classic", hosted.group.state.value
    return "consumer", hosted.consumer.state.value
