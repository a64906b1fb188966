"""The first half of a cleaning: the keys of the dirty section, by version of all before it too, are put into a map."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sparklog.compaction.stats import CleanerStats
from sparklog.compaction.task import CleaningTask
from sparklog.compaction.transactions import CleanedTransactions
from sparklog.compaction.walk import SegmentWalk, segments_between
from sparklog.errors import CorruptRecord
from sparklog.log.files import LOG_SUFFIX, segment_path
from sparklog.log.indexes.transaction_index import AbortedTransaction
from sparklog.log.segment import SegmentFacts
from sparklog.record.batch import RecordBatch
from sparklog.record.compacting import OffsetMap, index_batch


class KeyIndexing:
    """Fills ``keys``, a map of all keys or of a part of them."""

    def __init__(
        self, task: CleaningTask, walk: SegmentWalk, keys: OffsetMap, aborted: Iterable[AbortedTransaction]
    ) -> None:
        """``aborted`` are those that the log's transaction indexes list."""
        self._task = task
        self._walk = walk
        self._keys = keys
        self._transactions = CleanedTransactions(each for each in aborted if each.last_offset >= task.index_start)
        self._passed = 0

    def run(self, stats: CleanerStats) -> None:
        """Index what is to be, or as much of it as the map takes: ``stats.end_offset`` says up to where.

        Raises CorruptRecord, OSError; MemoryError where the map takes no key.
        """
        keys, task = self._keys, self._task
        for segment, next_base in segments_between(task, task.index_start, task.first_uncleanable):
            self._index(segment)
            if keys.latest_offset >= next_base:  # no CRC covers the offsets of a batch
                path = segment_path(Path(task.directory), segment.base_offset, LOG_SUFFIX)
                raise CorruptRecord(f"{path}: a batch has offsets beyond {next_base}, where the next segment begins")
            if keys.is_full:
                break
            keys.advance(next_base - 1)
        stats.end_offset = keys.latest_offset + 1
        if keys.most == 0 or (task.versions is None and stats.end_offset <= task.first_dirty):
            raise MemoryError("the map of keys has no room for one: log.cleaner.dedupe.buffer.size is too small")
        stats.map_messages_read += keys.messages + self._passed
        stats.keys = keys.size
        stats.buffer_utilization = keys.size / max(keys.slots, 1)
        stats.map_bytes_read = self._walk.take_read()

    def _index(self, segment: SegmentFacts) -> None:
        keys, start = self._keys, self._task.index_start

        def take(view: memoryview) -> int:
            return keys.index_batches(view, start)

        def visit(batch: RecordBatch) -> bool:
            if batch.is_control:
                self._transactions.is_last_trace(batch)
                self._passed += 1
            elif self._transactions.is_aborted(batch):
                self._passed += batch.record_count
            else:
                index_batch(keys, batch, start)
                return not keys.is_full
            if batch.last_offset >= start:
                keys.advance(batch.last_offset)
            return True

        self._walk.walk(segment, take, visit)
