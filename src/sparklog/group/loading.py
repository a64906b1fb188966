"""A partition of ``__consumer_offsets``, read back into groups.

The last record of a key counts. So the records are kept as bytes by key, and only what is left at the end is parsed:
a log that compaction has not reached yet may hold a thousand commits of the same offset. Offsets committed in a
transaction count from its commit marker on, each in the place of its own record; those of an aborted or an open one do
not. A place is the number of a batch in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sparklog.errors import CorruptRecord
from sparklog.group.consumer.group import ConsumerGroup
from sparklog.group.consumer.records import ConsumerKey, read_consumer_group, read_consumer_key
from sparklog.group.offsets import GroupKey, OffsetKey, read_group, read_key, read_offset
from sparklog.group.pending import OpenOffsets, PlacedOffset
from sparklog.group.state import Group
from sparklog.record.batch import RecordBatch
from sparklog.record.control import ControlType, read_marker
from sparklog.record.records import iter_batches, iter_records

_LOG = logging.getLogger(__name__)
_Placed = tuple[int, bytes]


class GroupLoader:
    """Takes the log in order through ``add``; ``finish`` gives the groups that it describes."""

    def __init__(self) -> None:
        self.last_place = 0
        self._latest: dict[bytes, _Placed] = {}
        self._open_transactions: dict[int, dict[bytes, _Placed]] = {}

    def add(self, batches: memoryview) -> None:
        """Whole batches, the next of the log."""
        for batch in iter_batches(batches):
            self.last_place += 1
            if batch.is_control:
                self._end_transaction(batch)
            else:
                self._add_records(batch)

    def _add_records(self, batch: RecordBatch) -> None:
        latest = self._latest
        if batch.is_transactional:
            latest = self._open_transactions.setdefault(batch.producer_id, {})
        for each in iter_records(batch):
            if each.key is not None and each.value is not None:
                latest[each.key] = (self.last_place, each.value)
            elif each.key is not None:
                self._take_back(each.key)

    def _end_transaction(self, batch: RecordBatch) -> None:
        records = self._open_transactions.pop(batch.producer_id, {})
        if read_marker(batch).type is ControlType.COMMIT:
            self._latest.update((key, each) for key, each in records.items() if not self._is_overtaken(key, each[0]))

    def _is_overtaken(self, key: bytes, place: int) -> bool:
        """Whether what counts for the key stands later in the log."""
        return key in self._latest and self._latest[key][0] > place

    def _take_back(self, key: bytes) -> None:
        """Also from open transactions: the coordinator that wrote the tombstone did not let them count any more."""
        self._latest.pop(key, None)
        for records in self._open_transactions.values():
            records.pop(key, None)

    def open_offsets(self) -> OpenOffsets:
        """By producer id, the offsets committed in transactions that the log does not end.

        One that will not count even then, because a later one does, has the place 0.
        """
        found: OpenOffsets = {}
        for producer_id, records in self._open_transactions.items():
            for key, (place, value) in records.items():
                with _skipping_corrupt():
                    described = read_key(key)
                    if isinstance(described, OffsetKey):
                        place = 0 if self._is_overtaken(key, place) else place
                        found.setdefault(producer_id, {})[described] = PlacedOffset(place, read_offset(value))
        return found

    def finish(self) -> dict[str, Group]:
        """The groups by id. A record that cannot be read is logged and left out: one must not cost all groups."""
        groups: dict[str, Group] = {}
        offsets: list[tuple[OffsetKey, bytes]] = []
        for key, (_, value) in self._latest.items():
            with _skipping_corrupt():
                described = read_key(key)
                if isinstance(described, GroupKey):
                    groups[described.group_id] = read_group(described.group_id, value)
                elif isinstance(described, OffsetKey):
                    offsets.append((described, value))
        for group_id_and_tp, value in offsets:
            with _skipping_corrupt():
                group_id, tp = group_id_and_tp
                committed = read_offset(value)
                groups.setdefault(group_id, Group(group_id)).offsets[tp] = committed
        return groups

    def consumer_groups(self) -> dict[str, ConsumerGroup]:
        """Those of the consumer protocol, likewise."""
        values: dict[str, dict[ConsumerKey, bytes]] = {}
        for key, (_, value) in self._latest.items():
            with _skipping_corrupt():
                described = read_consumer_key(key)
                if described is not None:
                    values.setdefault(described.group_id, {})[described] = value
        groups: dict[str, ConsumerGroup] = {}
        for group_id, found in values.items():
            with _skipping_corrupt():
                groups[group_id] = read_consumer_group(group_id, found)
        return groups


@contextmanager
def _skipping_corrupt() -> Iterator[None]:
    try:
        yield
    except CorruptRecord as error:
        _LOG.error("skipping a record of __consumer_offsets: %s", error)
