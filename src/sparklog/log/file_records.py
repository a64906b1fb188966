"""The ``.log`` file of a segment: batches end to end, read by position."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sparklog.errors import CorruptRecord, LogError
from sparklog.log.files import base_offset_of, write_all
from sparklog.record import layout
from sparklog.structs import FileSlice

_HEADERS_AT_ONCE = 4096 * layout.HEADER_SIZE
_LENGTH_OF_EMPTY = layout.INT32.pack(layout.HEADER_SIZE - layout.LOG_OVERHEAD)


class BatchPosition(NamedTuple):
    """The part of a batch header that finding and indexing need, and where the batch lies."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    max_timestamp: int
    producer_id: int

    @property
    def end(self) -> int:
        return self.position + self.size


def end_offset(path: Path, *, damaged: bool = False) -> int:
    """One past the last offset of a ``.log`` file.

    Raises CorruptRecord where it cannot be read; of a ``damaged`` one what comes before that counts.
    """
    end = base_offset_of(path)
    try:
        for batch in FileRecords(path).batches():
            end = batch.last_offset + 1
    except CorruptRecord:
        if not damaged:
            raise
    return end


class FileRecords:
    """An open ``.log`` file. One thread appends and truncates; any may read and flush.

    There is no ``close``: the descriptor lives as long as this object or any slice of it does, so that a segment may be
    deleted while it is still being sent.

    Raises OSError; FileExistsError if it is to be made and has bytes already.
    """

    def __init__(self, path: Path, *, create: bool = False, writable: bool = True) -> None:
        self.path = path
        access = os.O_RDWR if writable else os.O_RDONLY
        self._fd = os.open(path, access | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)
        self.size = os.fstat(self._fd).st_size
        self._is_ragged = False
        self._changing = threading.Lock()  # or a flush would cut off what is being written behind the rags
        if create and self.size:  # an empty one is what a roll left that the disk cut short
            raise FileExistsError(f"{path} has {self.size} bytes already")

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            os.close(self._fd)

    def fileno(self) -> int:
        return self._fd

    def append(self, data: memoryview) -> int:
        """Write ``data`` at the end and return where it begins. A failed write leaves the file as it was."""
        with self._changing:
            self._cut_rags()
            position = self.size
            try:
                write_all(self.fileno(), data, position)
            except OSError:
                self._is_ragged = True
                self._cut_rags()
                raise
            self.size = position + len(data)
        return position

    def _cut_rags(self) -> None:
        """The bytes behind ``size`` go, if the disk refused to cut them off when they became none of ours.

        Only with ``_changing`` held: the file may have bytes behind ``size`` that are being appended.
        """
        if self._is_ragged:
            os.ftruncate(self.fileno(), self.size)
            self._is_ragged = False

    def slice(self, position: int, size: int) -> FileSlice:
        """``size`` bytes from ``position``, to be sent and not read."""
        return FileSlice(self, position, size)

    def read(self, position: int, size: int) -> memoryview:
        """At most ``size`` bytes from ``position``."""
        return memoryview(os.pread(self.fileno(), size, position))

    def read_into(self, buffer: bytearray, position: int) -> memoryview:
        """As many bytes from ``position`` as ``buffer`` holds, in that buffer: good until it is read into again."""
        return memoryview(buffer)[: os.preadv(self.fileno(), (buffer,), position)]

    def batch_at(self, position: int) -> BatchPosition | None:
        """The batch that begins at ``position``; None at the end of the file.

        Raises CorruptRecord if what lies there is not a whole batch of format v2.
        """
        if position >= self.size:
            return None
        header = os.pread(self.fileno(), layout.HEADER_SIZE, position)
        if len(header) < layout.HEADER_SIZE:
            raise CorruptRecord(f"{self.path}: {len(header)} bytes at position {position} are no batch header")
        base, length, epoch, magic, _, _, delta, _, max_timestamp, producer_id, *_ = layout.HEADER.unpack(header)
        size = length + layout.LOG_OVERHEAD
        if magic != layout.MAGIC_V2 or size < layout.HEADER_SIZE or position + size > self.size or delta < 0:
            raise CorruptRecord(f"{self.path}: no whole batch at position {position} (magic {magic}, size {size})")
        return BatchPosition(position, size, base, base + delta, epoch, max_timestamp, producer_id)

    def batches(self, position: int = 0) -> Iterator[BatchPosition]:
        """Every batch from ``position`` on."""
        while (batch := self.batch_at(position)) is not None:
            yield batch
            position = batch.end

    def skip_empty(self, position: int, end: int, most: int) -> int:
        """Where the first batch begins that has records, from ``position`` on, at which one without begins.

        That is of the batches before ``end``, their last if none has any. At most ``most`` bytes are looked at.
        """
        limit = min(end, position + most)
        while position + layout.HEADER_SIZE <= limit:
            data = os.pread(self.fileno(), min(_HEADERS_AT_ONCE, limit - position), position)
            count = _leading_empty(data)
            position += count * layout.HEADER_SIZE
            if count < max(len(data) // layout.HEADER_SIZE, 1):
                break
        return position if position < end else position - layout.HEADER_SIZE

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes; durable after ``flush``.

        If the disk refuses, the bytes behind count as gone all the same, and go before anything else is written. Raises
        LogError for a size that is negative or larger than the file, OSError.
        """
        if not 0 <= size <= self.size:
            raise LogError(f"{self.path}: cannot truncate {self.size} bytes to {size}")
        with self._changing:
            self.size = size
            self._is_ragged = True
            self._cut_rags()

    def flush(self) -> None:
        """All bytes are on the disk when this returns."""
        if self._is_ragged:
            with self._changing:
                self._cut_rags()
        os.fdatasync(self.fileno())


def _leading_empty(data: bytes) -> int:
    """How many batches without records ``data`` begins with: they are headers alone, one as long as another."""
    count = len(data) // layout.HEADER_SIZE
    for number in range(len(_LENGTH_OF_EMPTY)):
        column = data[layout.LENGTH + number :: layout.HEADER_SIZE][:count]
        count -= len(column.lstrip(_LENGTH_OF_EMPTY[number : number + 1]))
    return count
