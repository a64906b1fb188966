"""Cleaning one log: its keys are put into a map, then its segments are written anew without what the map outdates.

Nothing that is there is changed. Each group of segments becomes one under the suffix ``.cleaned``, complete and synced
when it is handed out; whoever owns the log puts it in the group's place, or removes it. The rules are those of Kafka
3.9's ``Cleaner``:

- A record stays if no record of its key with a greater offset is known, and it has a value. Behind the last offset in
  the map every record stays. A record without a key goes.
- With another ``compaction.strategy`` a record stays if none of its key with a greater version is known, or with as
  great a one and a greater offset (KIP-280).
- A tombstone stays until the delete horizon of its batch. The horizon is set by the first cleaning that meets the
  tombstone as the last of its key: ``delete.retention.ms`` from then (attribute bit 6; the base timestamp holds it).
- Records of aborted transactions go. A marker stays until none of its transaction's batches is left, and then until its
  own delete horizon.
- The last batch of each producer that is remembered stays, without records if need be, for its sequence numbers.
- Order, offsets, timestamps, headers, epochs, compression and a batch's last offset stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sparklog.clock import Clock
from sparklog.compaction.indexing import KeyIndexing
from sparklog.compaction.key_parts import KeyParts
from sparklog.compaction.rewriting import CleanedGroup, GroupRewriting, groups_of
from sparklog.compaction.stats import CleanerStats
from sparklog.compaction.task import CleaningTask
from sparklog.compaction.transactions import CleanedTransactions
from sparklog.compaction.walk import SegmentWalk, aborted_transactions
from sparklog.log.indexes.transaction_index import AbortedTransaction
from sparklog.record.compacting import OffsetMap, make_offset_map


class LogCleaning:
    """One pass over one log, in one process."""

    def __init__(self, task: CleaningTask, clock: Clock, seed: bytes, is_wanted: Callable[[], None] = lambda: None):
        """``seed``, 16 bytes, is of the keys' hashes. ``is_wanted`` is asked often, and raises what ends the pass."""
        self._task = task
        self._clock = clock
        self._seed = seed
        self._walk = SegmentWalk(task, clock, is_wanted)
        self.stats = CleanerStats(first_offset=task.first_dirty)

    def run(self) -> Iterator[CleanedGroup]:
        """Clean the log, a group a step: it is in the place of the old segments, or not wanted, before the next.

        Raises CorruptRecord where a segment cannot be read, DiskFull where there is no room for a group, OSError if the
        disk refuses.
        """
        started = self._clock.monotonic()
        aborted = aborted_transactions(self._task)
        keys = self._index(aborted)
        self.stats.index_seconds = self._clock.monotonic() - started
        rewriting = GroupRewriting(self._task, self._walk, keys, CleanedTransactions(aborted))
        for bases in groups_of(self._task, self.stats.end_offset):
            yield rewriting.rewrite(bases, self.stats)
            self.stats.seconds = self._clock.monotonic() - started

    def _index(self, aborted: list[AbortedTransaction]) -> OffsetMap:
        task, buffers = self._task, self._task.buffers
        if task.versions is not None:
            return KeyParts(task, self._walk, aborted, self._seed, buffers.map_bytes, self.stats).index()
        keys = make_offset_map(buffers.map_bytes, buffers.load_factor, self._seed)
        KeyIndexing(task, self._walk, keys, aborted).run(self.stats)
        return keys
