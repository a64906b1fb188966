"""Where in the segment files a range of offsets lies, and reading it there without the log that wrote it.

An extent is whole batches, one after another, in one ``.log`` file. Files are read with ``pread`` into one buffer that
is used again and again, never mapped: a file that is cut while it is mapped would kill the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sparklog.errors import CorruptRecord
from sparklog.log.file_records import BatchPosition
from sparklog.log.lease import Lease, is_giving_way
from sparklog.log.segment import LogSegment
from sparklog.log.segments import LogSegments
from sparklog.record import layout
from sparklog.record.batch import RecordBatch
from sparklog.record.records import iter_batches

_BLOCK = 1 << 20


class Extent(NamedTuple):
    """Bytes ``start`` ≤ b < ``end`` of a file, and what tells that file and its first batch from any other."""

    path: Path
    device: int
    inode: int
    start: int
    end: int
    first_offset: int
    first_crc: int


class Extents(NamedTuple):
    """What holds the offsets of a range up to ``end_offset``; the first and last batch may hold others besides."""

    files: list[Extent]
    end_offset: int


def find_extents(
    segments: LogSegments, start: int, end: int, most: int | None = None, lease: Lease | None = None
) -> Extents:
    """The extents of ``start`` ≤ o < ``end``, at most ``most`` files; ``lease`` keeps their segments from going. What
    is leased ends before a segment that is about to give way to another.
    """
    found: list[Extent] = []
    held = segments.from_offset(start)
    nexts = [*(each.base_offset for each in held[1:]), layout.MAX_INT64]
    for segment, next_base in zip(held, nexts, strict=True):
        if segment.base_offset >= end:
            break
        is_going = lease is not None and is_giving_way(segment.leases)
        if is_going or (most is not None and len(found) >= most):
            return Extents(found, max(segment.base_offset, start))
        extent = _extent(segment, start, end, is_whole=next_base <= end)
        if extent is not None:
            found.append(extent)
            if lease is not None:
                lease.hold(segment.leases)
    return Extents(found, end)


def _extent(segment: LogSegment, start: int, end: int, *, is_whole: bool) -> Extent | None:
    first = segment.find(start)
    if first is None or first.base_offset >= end:
        return None
    position = segment.size if is_whole else _end_position(segment, segment.find(end - 1), end)
    status = os.fstat(segment.log.fileno())
    head = segment.log.read(first.position, layout.HEADER_SIZE)
    return Extent(
        segment.log.path.absolute(),
        status.st_dev,
        status.st_ino,
        first.position,
        position,
        first.base_offset,
        layout.UINT32.unpack_from(head, layout.CRC)[0],
    )


def _end_position(segment: LogSegment, last: BatchPosition | None, end: int) -> int:
    """Where the last batch with an offset before ``end`` ends; ``last`` holds ``end - 1`` or follows it."""
    if last is None:
        return segment.size
    return last.end if last.base_offset < end else last.position


class ExtentReader:
    """Reads extents, one at a time, all into one buffer."""

    def __init__(self, block: int = _BLOCK) -> None:
        self._buffer = bytearray(block)

    def batches(self, fd: int, start: int, end: int) -> Iterator[RecordBatch]:
        """The batches in the bytes ``start`` to ``end`` of a file; each is good until the next is asked for.

        Raises CorruptRecord where the file ends before, or bytes are not a whole batch; CRCs are the caller's to check.
        """
        position = start
        while position < end:
            view = memoryview(self._buffer)[: end - position]
            view = view[: os.preadv(fd, (view,), position)]
            taken = 0
            for batch in iter_batches(view):
                yield batch
                taken += batch.size_in_bytes
            if not taken:
                self._grow(view, position, end)
            position += taken

    def _grow(self, view: memoryview, position: int, end: int) -> None:
        """Make room for the one batch that is larger than the buffer."""
        size = 0
        if len(view) >= layout.LOG_OVERHEAD:
            size = layout.OFFSET_AND_LENGTH.unpack_from(view)[1] + layout.LOG_OVERHEAD
        if not len(self._buffer) < size <= end - position:
            raise CorruptRecord(f"no whole batch at position {position}, where {end - position} bytes should follow")
        self._buffer = bytearray(size)
