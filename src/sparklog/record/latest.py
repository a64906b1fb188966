"""LatestRecords: what a log that is keyed says in the end, as compaction would leave it.

The last record of a key counts, and one without a value takes the key back. The records of a transaction count from its
commit marker on, each in the place of its own offset; those of an aborted or an open one do not. What takes a key back
takes it from open transactions too: the coordinator that wrote it did not let them count any more.

Nothing is parsed but batches and records, and no Python object outlives the next record of its key, so that a log
costs little more than reading it, however often it says the same.

Damage costs what it holds: a batch that cannot be read is left out, as a whole, and told of.
"""

from __future__ import annotations

from collections.abc import Callable

from sparklog.errors import CorruptRecord
from sparklog.record import _impl
from sparklog.record._impl.abc import Latest
from sparklog.record.batch import RecordBatch
from sparklog.record.control import ControlType, read_marker
from sparklog.record.records import iter_records

__all__ = ["Latest", "LatestRecords"]


class LatestRecords:
    """Takes the log in order. ``on_damage`` is told the offset at which a batch begins that is left out, and why.

    ``latest`` is what counts; ``undecided``, by producer id, what would if the producer's open transaction committed.
    """

    def __init__(self, on_damage: Callable[[int, CorruptRecord], None]) -> None:
        self.latest: Latest = {}
        self.undecided: dict[int, Latest] = {}
        self._on_damage = on_damage

    def add(self, batches: memoryview) -> None:
        """Whole batches whose CRCs are right, the next of the log."""
        position = 0
        while position < len(batches):
            position += _impl.codec.take_latest(batches[position:], self.latest, self.undecided)
            if position < len(batches):
                batch = RecordBatch(batches, position)
                try:
                    self._take(batch)
                except CorruptRecord as error:
                    self._on_damage(batch.base_offset, error)
                position += batch.size_in_bytes

    def is_overtaken(self, key: bytes, offset: int) -> bool:
        """Whether what counts for the key stands later in the log."""
        return key in self.latest and self.latest[key][0] > offset

    def _take(self, batch: RecordBatch) -> None:
        if batch.is_control:
            self._end_transaction(batch)
            return
        records = list(iter_records(batch))
        into = self.undecided.setdefault(batch.producer_id, {}) if batch.is_transactional else self.latest
        for each in records:
            if each.key is None:
                continue
            if each.value is not None:
                into[each.key] = (each.offset, each.value)
                continue
            for kept in (self.latest, *self.undecided.values()):
                kept.pop(each.key, None)

    def _end_transaction(self, batch: RecordBatch) -> None:
        """A marker that compaction has emptied ends a transaction of which nothing is left."""
        commits = batch.record_count > 0 and read_marker(batch).type is ControlType.COMMIT
        records = self.undecided.pop(batch.producer_id, {})
        if commits:
            self.latest.update({key: each for key, each in records.items() if not self.is_overtaken(key, each[0])})
