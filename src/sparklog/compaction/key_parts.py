"""The map of a log whose records are compared by version: of all its keys, in as many parts as memory needs.

By version a record of the clean section may beat those of the dirty one. So the map is of the whole log up to where
that may be cleaned, and a map that is full cannot end a pass: the next one would begin at the start again. Instead the
keys are divided by hash. Each part is put into a map of its own, which goes to a file; then all of them are looked up
at once. A part that is still too large for a map is divided further, and no other is begun anew.

The files are drafts (``log/files.py``): a start removes them, and so does whoever cleans the log next. Their names go
as soon as they are open.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from sparklog.compaction.indexing import KeyIndexing
from sparklog.compaction.room import NO_LIMIT, SpillRoom, check_room, dumped_size
from sparklog.compaction.stats import CleanerStats
from sparklog.compaction.task import CleaningTask
from sparklog.compaction.walk import SegmentWalk, segments_between
from sparklog.log.files import draft_suffix
from sparklog.log.indexes.transaction_index import AbortedTransaction
from sparklog.record.compacting import OffsetMap, make_offset_map, map_file_size, open_offset_map

Part = tuple[int, int]
"""(i, n): the i-th of n parts of all keys."""
ALL_KEYS: Part = (0, 1)
_MOST_PARTS = 1 << 32


class KeyParts:
    """Indexes the keys of one log, or of one part of them, once; what becomes files is removed by whoever has them."""

    def __init__(
        self,
        task: CleaningTask,
        walk: SegmentWalk,
        aborted: Sequence[AbortedTransaction],
        seed: bytes,
        map_bytes: int,
        stats: CleanerStats,
        spill_bytes: int = NO_LIMIT,
    ) -> None:
        """``map_bytes`` may be in memory at a time, ``spill_bytes`` in files. ``stats`` get what all parts together
        come to.
        """
        self._task = task
        self._directory = Path(task.directory)
        self._room = SpillRoom(self._directory, spill_bytes)
        self._walk = walk
        self._aborted = aborted
        self._seed = seed
        self._map_bytes = map_bytes
        self._stats = stats
        self._log_bytes = sum(
            segment.size for segment, _ in segments_between(task, task.index_start, task.first_uncleanable)
        )

    def index(self) -> OffsetMap:
        """The map of all keys: in memory if it fits, else in files whose names are gone by then.

        Raises CorruptRecord, DiskFull, OSError; MemoryError where the map takes no key.
        """
        keys, read = self._fill(ALL_KEYS)
        if not keys.is_full:
            self._count(keys)
            return keys
        parts = self._divided(ALL_KEYS, keys, read)
        del keys  # its memory is for those of the parts
        paths: list[Path] = []
        try:
            self._spill(parts, paths)
            return open_offset_map(paths)
        finally:
            _remove(paths)

    def spill(self, part: Part) -> list[Path]:
        """The files of a part of the keys, or of the parts that it was divided into. Raises as ``index``."""
        paths: list[Path] = []
        try:
            self._spill([part], paths)
        except BaseException:
            _remove(paths)
            raise
        return paths

    def _spill(self, parts: list[Part], paths: list[Path]) -> None:
        while parts:
            parts[:0] = self._spill_one(parts.pop(0), paths)

    def _spill_one(self, part: Part, paths: list[Path]) -> list[Part]:
        """Put one part into a file; the parts that are to be tried instead, where it is too large for a map."""
        keys, read = self._fill(part)
        if keys.is_full:
            return self._divided(part, keys, read)
        path = self._directory / f"keys-{part[0]}-of-{part[1]}{draft_suffix(uuid4().hex)}"
        self._room.take(dumped_size(keys))
        paths.append(path)
        keys.dump(path)
        self._count(keys)
        return []

    def _fill(self, part: Part) -> tuple[OffsetMap, int]:
        """A map of the part, or of what it takes of that, and how much of the log it holds, in bytes."""
        task, stats = self._task, CleanerStats()
        keys = make_offset_map(self._map_bytes, task.buffers.load_factor, self._seed, part, task.versions)
        KeyIndexing(task, self._walk, keys, self._aborted).run(stats)
        self._stats.map_bytes_read += stats.map_bytes_read
        self._stats.map_messages_read, self._stats.end_offset = stats.map_messages_read, stats.end_offset
        self._stats.buffer_utilization = max(self._stats.buffer_utilization, stats.buffer_utilization)
        return keys, stats.map_bytes_read

    def _divided(self, part: Part, keys: OffsetMap, read: int) -> list[Part]:
        """As many parts of the part as maps are needed if the rest of the log has new keys as often; a power of two.

        ``keys`` became full after ``read`` bytes of the log.

        Raises DiskFull where there is no room for as many files, MemoryError where there is no end to dividing.
        """
        share = self._log_bytes / max(read, 1)
        count = 2
        while count < share:
            count *= 2
        number, of = part
        if of * count > _MOST_PARTS:
            raise MemoryError("the map of keys takes next to none: log.cleaner.dedupe.buffer.size is too small")
        size = int(share * map_file_size(keys.slots))
        check_room(
            self._directory, size, "the map of its keys, which memory cannot hold (log.cleaner.dedupe.buffer.size),"
        )
        return [(number * count + each, of * count) for each in range(count)]

    def _count(self, keys: OffsetMap) -> None:
        self._stats.keys += keys.size


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
