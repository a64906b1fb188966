"""A partition of ``__consumer_offsets``, read back into groups.

``LatestRecords`` keeps as bytes what counts in the end, and only that is parsed: a log that compaction has not reached
yet may hold a thousand commits of the same offset. The place of an offset is one more than the offset of its record.

Damage costs what it holds. A batch or a record that cannot be read is left out and named in the broker's log, and what
it spoke of is as it was before: one must not cost all groups. Records of kinds that are not known are left alone.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Set
from contextlib import contextmanager

from sparklog.errors import CorruptRecord
from sparklog.group.classic.group import CommittedOffset, Group
from sparklog.group.consumer.group import ConsumerGroup
from sparklog.group.consumer.records import ConsumerKey, read_consumer_group, read_consumer_key
from sparklog.group.offsets import GroupKey, OffsetKey, offset_key, read_group, read_key, read_offset
from sparklog.group.pending import OpenOffsets, PlacedOffset
from sparklog.group.removal import in_question, in_steps
from sparklog.record.latest import LatestRecords
from sparklog.structs import TopicPartition

_LOG = logging.getLogger(__name__)
_SLICE = 200
"""How many records are parsed, or groups made of them, in one turn of the loop."""
_NOWHERE = 0
"""The place before all others."""


class GroupLoader:
    """Takes the log in order through ``add``; after ``parse`` it has the groups that the log describes.

    ``where`` is the partition's name. ``open_offsets`` are those committed in transactions that the log does not end,
    by producer id; one that will not count even then, because a later one does, has the place 0.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._records = LatestRecords(self._left_out)
        self._offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._consumer_values: dict[str, dict[ConsumerKey, bytes]] = {}
        self._unknown: Counter[int] = Counter()
        self.last_place = _NOWHERE
        self.groups: dict[str, Group] = {}
        self.consumers: dict[str, ConsumerGroup] = {}
        self.open_offsets: OpenOffsets = {}

    def add(self, batches: memoryview) -> None:
        """Whole batches, the next of the log."""
        self._records.add(batches)

    def parse(self) -> Iterator[None]:
        """To be run to its end once the log is taken; stops wherever others may have the loop."""
        for number, (key, (offset, value)) in enumerate(self._records.latest.items()):
            with self._leaving_out(offset):
                self._parse(key, offset, value)
            if number % _SLICE == _SLICE - 1:
                yield
        for producer_id, records in self._records.undecided.items():
            for key, (offset, value) in records.items():
                with self._leaving_out(offset):
                    self._parse_open(producer_id, key, offset, value)
            yield
        for number, (group_id, offsets) in enumerate(self._offsets.items()):
            self.groups.setdefault(group_id, Group(group_id)).offsets = offsets
            if number % _SLICE == _SLICE - 1:
                yield
        for group_id, values in self._consumer_values.items():
            try:
                self.consumers[group_id] = read_consumer_group(group_id, values)
            except CorruptRecord as error:
                _LOG.error("%s: leaving out what is known of the members of a group: %s", self._where, error)
            yield
        for version, count in self._unknown.items():
            _LOG.warning("%s: %d records of an unknown kind (%d) are left alone", self._where, count, version)

    def forget(self, partitions: Set[TopicPartition]) -> Iterator[list[bytes]]:
        """Once all is parsed: leave out the offsets in these. Yields the keys that must go from the log, some at a
        time, wherever others may have the loop.
        """
        listed = [*partitions]
        for step in in_steps((group, in_question(group, listed)) for group in self.groups.values()):
            yield [
                offset_key(group.group_id, tp)
                for group, some in step
                for tp in some
                if tp in partitions and group.offsets.pop(tp, None) is not None
            ]
        opened = ((group_id, each) for groups in self.open_offsets.values() for group_id, each in groups.items())
        for open_step in in_steps(((group_id, offsets), [*offsets]) for group_id, offsets in opened):
            yield [
                offset_key(group_id, tp)
                for (group_id, offsets), some in open_step
                for tp in some
                if tp in partitions and offsets.pop(tp, None) is not None
            ]

    def _parse(self, key: bytes, offset: int, value: bytes) -> None:
        self.last_place = max(self.last_place, offset + 1)
        described = read_key(key)
        if isinstance(described, OffsetKey):
            group_id, tp = described
            committed = read_offset(value)
            self._offsets.setdefault(group_id, {})[tp] = committed
        elif isinstance(described, GroupKey):
            self.groups[described.group_id] = read_group(described.group_id, value)
        elif (of_consumers := read_consumer_key(key)) is not None:
            self._consumer_values.setdefault(of_consumers.group_id, {})[of_consumers] = value
        else:
            self._unknown[int.from_bytes(key[:2], signed=True)] += 1

    def _parse_open(self, producer_id: int, key: bytes, offset: int, value: bytes) -> None:
        self.last_place = max(self.last_place, offset + 1)
        described = read_key(key)
        if isinstance(described, OffsetKey):
            place = _NOWHERE if self._records.is_overtaken(key, offset) else offset + 1
            placed = PlacedOffset(place, read_offset(value))
            self.open_offsets.setdefault(producer_id, {}).setdefault(described.group_id, {})[described.tp] = placed

    @contextmanager
    def _leaving_out(self, offset: int) -> Iterator[None]:
        try:
            yield
        except CorruptRecord as error:
            self._left_out(offset, error)

    def _left_out(self, offset: int, error: CorruptRecord) -> None:
        _LOG.error(
            "%s: what lies at offset %d cannot be read and is left out: %s. Groups may go back to offsets that they "
            "committed before; 'sparklog log dump' shows whose they were",
            *(self._where, offset, error),
        )
