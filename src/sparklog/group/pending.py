"""Offsets committed inside transactions that have not ended: one partition's, by producer.

They are records of the partition already, and become the groups' offsets with the commit marker behind them, or nothing
with the abort marker. While the partition is being loaded its log is still being read: an end that comes meanwhile is
kept, and done once what was open is known.
"""

from __future__ import annotations

from collections.abc import Set
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


GroupOffsets = dict[str, dict[TopicPartition, PlacedOffset]]
"""By group."""
OpenOffsets = dict[int, GroupOffsets]
"""Producer id → what it has committed in the transaction that it has open."""


class PendingOffsets:
    """Begins as that of a partition that is being loaded.

    A producer that has offsets of a group open is in that group's set of ``_producers``, so that to forget them no
    other producer need be looked at.
    """

    def __init__(self) -> None:
        self._open: OpenOffsets = {}
        self._producers: dict[str, set[int]] = {}
        self._ended_meanwhile: dict[int, bool] = {}
        self._is_loading = True

    def loaded(self, found: OpenOffsets) -> list[GroupOffsets]:
        """What the log leaves open. Returns what was committed while it was read, in the order of the commits."""
        self._open, self._is_loading = found, False
        for producer_id, opened in found.items():
            for group_id in opened:
                self._producers.setdefault(group_id, set()).add(producer_id)
        ended, self._ended_meanwhile = self._ended_meanwhile, {}
        return [self.end(producer_id, commit=commit) for producer_id, commit in ended.items()]

    def add(self, producer_id: int, group_id: str, offsets: dict[TopicPartition, PlacedOffset]) -> list[TopicPartition]:
        """Returns those that the producer had not committed before."""
        opened = self._open.setdefault(producer_id, {}).setdefault(group_id, {})
        self._producers.setdefault(group_id, set()).add(producer_id)
        new = [tp for tp in offsets if tp not in opened]
        opened.update(offsets)
        return new

    def drop(
        self, producer_id: int, group_id: str, offsets: dict[TopicPartition, PlacedOffset]
    ) -> list[TopicPartition]:
        """They could not be written. Returns those that are not pending any more."""
        opened = self._open.get(producer_id, {}).get(group_id, {})
        gone = [tp for tp, each in offsets.items() if opened.get(tp) is each]
        for tp in gone:
            del opened[tp]
        return gone

    def forget(self, group_id: str, partitions: Set[TopicPartition]) -> list[TopicPartition]:
        """Whatever ends, these offsets do not count. Returns their partitions, each once for each producer."""
        forgotten: list[TopicPartition] = []
        for producer_id in self._producers.get(group_id, ()):
            opened = self._open[producer_id][group_id]
            gone = opened.keys() & partitions
            for tp in gone:
                del opened[tp]
            forgotten += gone
        return forgotten

    def forget_group(self, group_id: str) -> None:
        """Whatever ends, no offset of the group counts."""
        for producer_id in self._producers.pop(group_id, ()):
            del self._open[producer_id][group_id]

    def end(self, producer_id: int, *, commit: bool) -> GroupOffsets:
        """The producer's marker is in the log: what counts from now on."""
        if self._is_loading:
            self._ended_meanwhile.setdefault(producer_id, commit)  # nothing was committed here after the first
            return {}
        ended = self._open.pop(producer_id, {})
        for group_id in ended:
            producers = self._producers[group_id]
            producers.remove(producer_id)
            if not producers:
                del self._producers[group_id]
        return {group_id: offsets for group_id, offsets in ended.items() if offsets} if commit else {}

    def of_producer(self, producer_id: int) -> dict[str, list[TopicPartition]]:
        """What its end would settle, by group."""
        opened = self._open.get(producer_id, {})
        return {group_id: [*offsets] for group_id, offsets in opened.items() if offsets}

    def all_keys(self) -> list[OffsetKey]:
        """The offsets that may change when a transaction ends, once for each producer."""
        return [
            OffsetKey(group_id, tp)
            for opened in self._open.values()
            for group_id, offsets in opened.items()
            for tp in offsets
        ]
