"""Offsets committed inside transactions that have not ended: one partition's, by producer.

They are records of the partition already, and become the groups' offsets with the commit marker behind them, or nothing
with the abort marker. While the partition is being loaded its log is still being read: an end that comes meanwhile is
kept, and done once what was open is known.
"""

from __future__ import annotations

from typing import NamedTuple

from sparklog.group.classic.group import CommittedOffset
from sparklog.group.offsets import OffsetKey
from sparklog.structs import TopicPartition


class PlacedOffset(NamedTuple):
    """A committed offset and the place of its own record in the log, not of a marker: the higher, the later.

    Places are a partition's, and hold while one coordinator leads it. The place 0 is before all others.
    """

    place: int
    committed: CommittedOffset


OpenOffsets = dict[int, dict[OffsetKey, PlacedOffset]]
"""Producer id → what it has committed in the transaction that it has open."""
GroupOffsets = dict[str, dict[TopicPartition, PlacedOffset]]
"""By group."""


class PendingOffsets:
    """Begins as that of a partition that is being loaded."""

    def __init__(self) -> None:
        self._open: OpenOffsets = {}
        self._ended_meanwhile: dict[int, bool] = {}
        self._is_loading = True

    def loaded(self, found: OpenOffsets) -> list[GroupOffsets]:
        """What the log leaves open. Returns what was committed while it was read, in the order of the commits."""
        self._open, self._is_loading = found, False
        ended, self._ended_meanwhile = self._ended_meanwhile, {}
        return [self.end(producer_id, commit=commit) for producer_id, commit in ended.items()]

    def add(self, producer_id: int, group_id: str, offsets: dict[TopicPartition, PlacedOffset]) -> list[TopicPartition]:
        """Returns those that the producer had not committed before."""
        opened = self._open.setdefault(producer_id, {})
        new = [tp for tp in offsets if OffsetKey(group_id, tp) not in opened]
        opened.update({OffsetKey(group_id, tp): each for tp, each in offsets.items()})
        return new

    def drop(
        self, producer_id: int, group_id: str, offsets: dict[TopicPartition, PlacedOffset]
    ) -> list[TopicPartition]:
        """They could not be written. Returns those that are not pending any more."""
        opened = self._open.get(producer_id, {})
        gone = [tp for tp, each in offsets.items() if opened.get(OffsetKey(group_id, tp)) is each]
        for tp in gone:
            del opened[OffsetKey(group_id, tp)]
        return gone

    def forget(self, key: OffsetKey) -> list[TopicPartition]:
        """Whatever ends, this offset does not count. Returns its partition, once for each producer."""
        return [key.tp for opened in self._open.values() if opened.pop(key, None) is not None]

    def end(self, producer_id: int, *, commit: bool) -> GroupOffsets:
        """The producer's marker is in the log: what counts from now on."""
        if self._is_loading:
            self._ended_meanwhile.setdefault(producer_id, commit)  # nothing was committed here after the first
            return {}
        ended: GroupOffsets = {}
        for (group_id, tp), each in self._open.pop(producer_id, {}).items():
            if commit:
                ended.setdefault(group_id, {})[tp] = each
        return ended

    def of_producer(self, producer_id: int) -> list[OffsetKey]:
        """What its end would settle."""
        return [*self._open.get(producer_id, ())]

    def all_keys(self) -> list[OffsetKey]:
        """The offsets that may change when a transaction ends, once for each producer."""
        return [key for opened in self._open.values() for key in opened]
