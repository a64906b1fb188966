"""Reading the segments of a log, batch by batch, as a cleaning does: at its rate, as long as it is wanted.

A segment is opened by its name. Where the files' numbers were told, it is read only if it is the one that was meant.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from sparklog.clock import Clock
from sparklog.compaction.task import CleaningTask
from sparklog.errors import CorruptRecord
from sparklog.log.file_records import FileRecords
from sparklog.log.files import LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, segment_path
from sparklog.log.indexes.transaction_index import AbortedTransaction, read_aborted
from sparklog.log.segment import SegmentFacts
from sparklog.rate_limit import ByteRate
from sparklog.record import layout
from sparklog.record.batch import RecordBatch

Take = Callable[[memoryview], int]
Visit = Callable[[RecordBatch], bool]


class FileNumber(NamedTuple):
    """What tells a file from any other of its name."""

    device: int
    inode: int


def number_of(file: Path | int) -> FileNumber:
    """Of a path or a descriptor. Raises OSError."""
    status = os.stat(file)
    return FileNumber(status.st_dev, status.st_ino)


def segments_between(task: CleaningTask, start: int, end: int) -> Iterator[tuple[SegmentFacts, int]]:
    """Those that hold offsets in ``start`` to ``end``, each with the base of the next one; the active one never."""
    for segment, after in pairwise(task.segments):
        if segment.base_offset < end and after.base_offset > start:
            yield segment, after.base_offset


def aborted_transactions(task: CleaningTask) -> list[AbortedTransaction]:
    """Those of all segments: what was aborted in one has its marker in that or in a later one.

    Also those before the start of the log: a crash may take a start back that no checkpoint has yet, and their records
    would count as committed then.
    """
    found: list[AbortedTransaction] = []
    for segment in task.segments:
        with suppress(FileNotFoundError):
            path = segment_path(Path(task.directory), segment.base_offset, TRANSACTION_INDEX_SUFFIX)
            found += read_aborted(path)
    return found


class SegmentWalk:
    """Reads segments of one log, one after another."""

    def __init__(
        self,
        task: CleaningTask,
        clock: Clock,
        is_wanted: Callable[[], None] = lambda: None,
        numbers: Mapping[int, FileNumber] | None = None,
        rate: ByteRate | None = None,
    ) -> None:
        """``is_wanted`` is asked often, and raises what ends the pass. ``numbers`` are those of the segments' ``.log``
        files by base offset, if they are to be checked. ``rate`` is kept instead of the worker's own.
        """
        self._directory = Path(task.directory)
        self._clock = clock
        self._is_wanted = is_wanted
        self._numbers = numbers
        self._buffer = bytearray(max(task.buffers.read_bytes, layout.HEADER_SIZE))
        self._rate = rate or ByteRate(clock, task.buffers.bytes_per_second)
        self.read = 0
        """Bytes that were walked past."""

    def take_read(self) -> int:
        """Bytes that were walked past since the last call."""
        read, self.read = self.read, 0
        return read

    def pay(self, size: int) -> None:
        """Wait until ``size`` bytes more may have been read or written."""
        wait_s = self._rate.owe(size)
        if wait_s > 0:
            self._clock.sleep(wait_s)

    def walk(self, segment: SegmentFacts, take: Take, visit: Visit) -> None:
        """Have ``take`` take batches as far as it can; ``visit`` is shown each at which it stops; false ends it.

        Raises CorruptRecord, which names the file and where in it; OSError.
        """
        log = self._open(segment.base_offset)
        position = 0
        while position < segment.size:
            self._is_wanted()
            view = log.read_into(self._buffer, position)[: segment.size - position]
            try:
                at, goes_on = self._walk_block(view, take, visit)
            except CorruptRecord as error:
                raise CorruptRecord(f"{log.path}, at byte {position} or soon behind it: {error}") from error
            self.read += at
            self.pay(at)
            if not goes_on:
                return
            if not at:
                self._grow(log, view, segment.size - position)
            position += at

    def _open(self, base_offset: int) -> FileRecords:
        """Raises FileNotFoundError if the file is not there, or not the one that was meant."""
        path = segment_path(self._directory, base_offset, LOG_SUFFIX)
        log = FileRecords(path, writable=False)
        if self._numbers is not None and number_of(log.fileno()) != self._numbers.get(base_offset):
            raise FileNotFoundError(errno.ENOENT, "the file of this name is another one by now", str(path))
        return log

    @staticmethod
    def _walk_block(view: memoryview, take: Take, visit: Visit) -> tuple[int, bool]:
        """How many bytes of whole batches were taken, and whether to go on."""
        at = 0
        while at < len(view):
            at += take(view[at:])
            batch = _whole_batch(view[at:])
            if batch is None:
                break
            if not visit(batch):
                return at, False
            at += batch.size_in_bytes
        return at, True

    def _grow(self, log: FileRecords, view: memoryview, left: int) -> None:
        """Make room for one batch that is larger than the buffer; ``left`` bytes of the segment are not read yet."""
        size = 0
        if len(view) >= layout.LOG_OVERHEAD:
            size = layout.OFFSET_AND_LENGTH.unpack_from(view)[1] + layout.LOG_OVERHEAD
        if not len(self._buffer) < size <= left:
            raise CorruptRecord(f"{log.path}: {left} bytes at the end hold no whole batch")
        self._buffer = bytearray(size)


def _whole_batch(view: memoryview) -> RecordBatch | None:
    """The batch at the beginning of ``view``, checked; None if it is cut short. Raises CorruptRecord."""
    if len(view) < layout.LOG_OVERHEAD:
        return None
    size = layout.OFFSET_AND_LENGTH.unpack_from(view)[1] + layout.LOG_OVERHEAD
    if size >= layout.HEADER_SIZE and size > len(view):
        return None
    batch = RecordBatch(view)
    batch.validate()
    return batch
