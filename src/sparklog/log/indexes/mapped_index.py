"""What the two indexes of a segment share: a memory-mapped file of fixed-size entries, sorted, append-only.

The file of the active segment is grown (sparsely) to its largest size, so that it is mapped once; it is cut to its
entries when the segment is rolled or the log closed. There is no checksum: an index that does not hold
together is rebuilt from the log. Source: Kafka 3.9, ``AbstractIndex``.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Any

from sparklog.errors import CorruptRecord
from sparklog.log.files import sync_descriptor, sync_file, write_all


class MappedIndex:
    """Entries of ``FORM``, sorted by their first field. Not durable until ``flush``."""

    FORM: Struct

    def __init__(self, path: Path, base_offset: int, max_size: int, *, writable: bool) -> None:
        self.path = path
        self.base_offset = base_offset
        entry = self.FORM.size
        self._max_entries = max_size // entry
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        size = os.fstat(self._fd).st_size
        self._odd_bytes = size % entry
        self.entries = size // entry
        self._map: mmap.mmap | None = None
        if writable:
            self.make_writable()
        else:
            if size:
                self._map = mmap.mmap(self._fd, size)
            self._close_file()

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            self._close_file()

    def _close_file(self) -> None:
        """Only an index that grows needs its file: a mapping stays, and a log may have thousands of segments."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def make_writable(self) -> None:
        """Map the largest size, so that entries can be appended; those there are kept. A refusal changes nothing."""
        fd = self._fd if self._fd >= 0 else os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        size = max(self._max_entries, self.entries, 1) * self.FORM.size
        try:
            os.ftruncate(fd, size)
            mapped = mmap.mmap(fd, size)
        except OSError:
            if fd != self._fd:
                os.close(fd)
            raise
        self._fd = fd
        self._replace_map(mapped)

    def _replace_map(self, mapped: mmap.mmap | None) -> None:
        before, self._map = self._map, mapped
        if before is not None:
            before.close()

    @property
    def is_full(self) -> bool:
        return self.entries >= self._max_entries

    @property
    def max_entries(self) -> int:
        """As many as the largest size holds."""
        return self._max_entries

    @property
    def size_in_bytes(self) -> int:
        return self.entries * self.FORM.size

    def _entry(self, number: int) -> tuple[Any, ...]:
        assert self._map is not None
        return self.FORM.unpack_from(self._map, number * self.FORM.size)

    def _append(self, *fields: int) -> None:
        if self._fd < 0:  # it was sealed, and there was no descriptor left to open it again
            self.make_writable()
        # Not a store into the mapping: on a full disk that is a SIGBUS, this an OSError.
        write_all(self._fd, self.FORM.pack(*fields), self.entries * self.FORM.size)
        self.entries += 1

    def _last_at_most(self, target: int, column: int = 0) -> int:
        """Number of the last entry whose ``column`` is at most ``target``, -1 if there is none."""
        low, high = 0, self.entries
        while low < high:
            middle = (low + high) // 2
            if self._entry(middle)[column] <= target:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def truncate_entries(self, entries: int) -> None:
        """Keep that many."""
        self.entries = min(entries, self.entries)

    def sanity_check(self) -> None:
        """Raises CorruptRecord if the entries cannot be those of this segment."""
        if self._odd_bytes:
            raise CorruptRecord(f"{self.path} ends in the middle of an entry")
        previous = None
        for number in (0, self.entries - 1) if self.entries else ():
            entry = self._entry(number)
            if min(entry) < 0 or (previous is not None and entry < previous):
                raise CorruptRecord(f"{self.path}: entry {number} is {entry}")
            previous = entry
        if self.entries > 1 and self._entry(self.entries - 1) <= self._entry(0):
            raise CorruptRecord(f"{self.path} does not increase; a crash left its unused tail")

    def replace(self, entries: bytes) -> None:
        """Hold these packed entries and no others, ready for more; what does not fit the largest size is left out."""
        self.make_writable()
        self._odd_bytes = self.entries = 0  # what the file has not cannot be read through the mapping
        os.ftruncate(self._fd, 0)
        count = min(len(entries) // self.FORM.size, self._max_entries)
        write_all(self._fd, entries[: count * self.FORM.size], 0)
        self.entries = count
        self.make_writable()

    def flush(self) -> None:
        """All entries are on the disk when this returns. (Nothing is stored through the mapping.)"""
        if self._fd >= 0:
            sync_descriptor(self._fd)
        else:
            with suppress(FileNotFoundError):  # deleted meanwhile
                sync_file(self.path)

    def cut(self) -> None:
        """Cut the file to its entries; it can still be appended to."""
        os.ftruncate(self._fd, self.size_in_bytes)

    def trim(self) -> None:
        """Cut the file to its entries and grow no more; the index can still be read."""
        if self._fd < 0:
            return
        self.cut()
        self._replace_map(mmap.mmap(self._fd, self.size_in_bytes) if self.entries else None)
        self._close_file()

    def close(self) -> None:
        """Cut the file to its entries and let go of it. Closing twice is closing once."""
        self.trim()
        self.release()

    def release(self) -> None:
        """Let go of the file as it is: it is to be deleted."""
        self._close_file()
        self._replace_map(None)
