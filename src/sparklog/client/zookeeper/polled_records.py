"""``PolledRecords``: the records of one poll, until the user has done with them."""

from __future__ import annotations

from collections.abc import Sequence

from sparklog.client.consumer.record import ConsumerRecord
from sparklog.structs import TopicPartition


class PolledRecords:
    """Where each partition begins in the records, and up to where they were given. Offsets; values only."""

    def __init__(self, records: Sequence[ConsumerRecord], since: float) -> None:
        self.since = since
        """When they were given; seconds of a monotonic clock."""
        self.first: dict[TopicPartition, int] = {}
        """The offset of the first record of each partition."""
        self._next: dict[TopicPartition, int] = {}
        for record in records:
            self.first.setdefault(record.tp, record.offset)
            self._next[record.tp] = record.offset + 1
        self._given = dict(self._next)

    def hold_back(self) -> None:
        """Nothing is given yet: it will be, one by one."""
        self._given = {}

    def give(self, record: ConsumerRecord) -> None:
        """The user gets this one, which comes next."""
        self._given[record.tp] = record.offset + 1

    @property
    def given(self) -> dict[TopicPartition, int]:
        """The offset behind the last record of each partition that the user got."""
        return dict(self._given)

    @property
    def rest(self) -> dict[TopicPartition, int]:
        """Where to read on for what the user did not get, by partition."""
        return {tp: self._given.get(tp, self.first[tp]) for tp, end in self._next.items() if self._given.get(tp) != end}

    def drop(self, tp: TopicPartition) -> None:
        """Of this partition nothing is in hand any more."""
        for table in (self.first, self._next, self._given):
            table.pop(tp, None)
