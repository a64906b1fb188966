"""What the two indexes of a segment share: a file of fixed-size entries, sorted, append-only.

The file is read and written with system calls, not mapped into memory: a mapping of Python's holds a descriptor beside
the one that writes, a process has a limited number of mappings, and a page that the disk cannot give ends the process.
A search reads the block of entries where the one it seeks would be if they were evenly spread, as they mostly are, and
halves what is left from there on. The last entry is remembered, for readers at the end of a log ask for it. An index
without entries keeps no descriptor, so that a partition with few records costs one, its ``.log`` file's.

There is no checksum: an index that does not hold together is rebuilt from the log. Kafka's own, of a broker that was
killed, may end in unused entries, for it makes the active segment's as large as they may become. Source: Kafka 3.9,
``AbstractIndex``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Any

from sparklog.errors import CorruptRecord
from sparklog.log.files import OpenFile, sync_descriptor, sync_file, write_all

_BLOCK = 256
"""Entries that are read at once: to look into so many takes no longer than to read a few."""
_NONE: tuple[int, tuple[Any, ...]] = (-1, ())


class IndexFile:
    """Entries of ``FORM``, sorted by their first field. Not durable until ``flush``.

    One thread appends and truncates; any may read and flush.
    """

    FORM: Struct

    def __init__(self, path: Path, base_offset: int, max_size: int) -> None:
        self.path = path
        self.base_offset = base_offset
        entry = self.FORM.size
        self._max_entries = max_size // entry
        file = OpenFile(path, os.O_RDWR | os.O_CREAT)
        size = os.fstat(file.fileno()).st_size
        self._file = file if size else None
        self._odd_bytes = size % entry
        self.entries = size // entry
        self._last: tuple[Any, ...] | None = None  # set by the thread that appends alone: a reader's may be outdated

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

    def _read(self, first: int, count: int) -> bytes:
        """The entries from number ``first`` on. Raises CorruptRecord if somebody has cut the file."""
        file, size = self._file, count * self.FORM.size
        found = os.pread(file.fileno(), size, first * self.FORM.size) if file is not None else b""
        if len(found) != size:
            raise CorruptRecord(f"{self.path} has lost entries: {count} from number {first} on are not all there")
        return found

    def _entry(self, number: int) -> tuple[Any, ...]:
        return self.FORM.unpack(self._read(number, 1))

    def _entries(self) -> Iterator[tuple[Any, ...]]:
        return self.FORM.iter_unpack(self._read(0, self.entries) if self.entries else b"")

    def _last_entry(self) -> tuple[Any, ...]:
        """Of an index that has one."""
        return self._last or self._entry(self.entries - 1)

    def _append(self, *fields: int) -> None:
        write_all(self._opened().fileno(), self.FORM.pack(*fields), self.entries * self.FORM.size)
        self._last = fields
        self.entries += 1

    def _opened(self) -> OpenFile:
        if self._file is None:
            self._file = OpenFile(self.path, os.O_RDWR | os.O_CREAT)
        return self._file

    def _last_at_most(self, target: int, column: int = 0) -> tuple[int, tuple[Any, ...]]:
        """Number of the last entry whose ``column`` is at most ``target``, and that entry; -1 if there is none."""
        low, high, found = 0, self.entries, _NONE
        if not high:
            return found
        last = self._last or self._entry(high - 1)
        if last[column] <= target:
            return high - 1, last
        around = high * max(target, 0) // max(last[column], 1)  # where it is if the entries are evenly spread
        while low < high:
            start = max(min(around, high) - _BLOCK // 2, low)
            block = self._read(start, min(_BLOCK, high - start))
            end = start + len(block) // self.FORM.size
            number, entry = self._last_in(block, target, column)
            if number < 0:
                high = start
            else:
                found = start + number, entry
                low = end if start + number + 1 == end else high
            around = (low + high) // 2
        return found

    def _last_in(self, block: bytes, target: int, column: int) -> tuple[int, tuple[Any, ...]]:
        """The same, in these packed entries."""
        low, high = 0, len(block) // self.FORM.size
        found: tuple[Any, ...] = ()
        while low < high:
            middle = (low + high) // 2
            entry = self.FORM.unpack_from(block, middle * self.FORM.size)
            if entry[column] <= target:
                low, found = middle + 1, entry
            else:
                high = middle
        return low - 1, found

    def truncate_entries(self, entries: int) -> None:
        """Keep that many."""
        if entries < self.entries:
            self._last = None
            self.entries = entries

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
        self._last = previous

    def replace(self, entries: bytes) -> None:
        """Hold these packed entries and no others, ready for more; what does not fit the largest size is left out."""
        file = self._opened()
        self._odd_bytes = 0
        self.truncate_entries(0)
        os.ftruncate(file.fileno(), 0)
        count = min(len(entries) // self.FORM.size, self._max_entries)
        write_all(file.fileno(), entries[: count * self.FORM.size], 0)
        self.entries = count

    def flush(self) -> None:
        """All entries are on the disk when this returns."""
        file = self._file
        if file is not None:
            sync_descriptor(file.fileno())
        else:
            with suppress(FileNotFoundError):  # deleted meanwhile
                sync_file(self.path)

    def cut(self) -> None:
        """Cut the file to its entries: a failed append may have left a part of one, a truncation whole ones."""
        if self._file is not None:
            os.ftruncate(self._file.fileno(), self.size_in_bytes)
            if not self.entries:
                self._file = None

    def close(self) -> None:
        """Cut the file to its entries and let go of it. Closing twice is closing once."""
        self.cut()
        self.release()

    def release(self) -> None:
        """Let go of the file as it is: it is to be deleted."""
        self._file = None
