"""The ``.txnindex`` file: the aborted transactions whose markers lie in the segment.

Entries of 34 bytes, big-endian: version 0 (2), producer id (8), first offset of the transaction (8), offset of its
marker (8), last stable offset once it had ended (8); in the order of the markers. Committed transactions are not
listed. The file is made with the first entry: a segment without aborted transactions has none. There is no checksum:
it is made again when the segment is recovered. Source: Kafka 3.9, ``TransactionIndex``, ``AbortedTxn``.

Markers rise from entry to entry, so a fetch looks for its first one by halves and reads on from there, a few entries at
a time, until one says that no later entry can matter: its cost grows with what it finds, not with the file.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from sparklog.errors import CorruptRecord, LogError
from sparklog.log.files import sync_descriptor, write_all

_ENTRY = Struct(">hqqqq")
_VERSION = 0
_A_READ = 64
"""Entries."""


class AbortedTransaction(NamedTuple):
    """One aborted transaction of one partition."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker that ended it."""
    last_stable_offset: int
    """No transaction that begins before this offset was undecided when this one had ended."""


def read_aborted(path: Path) -> list[AbortedTransaction]:
    """The entries of a ``.txnindex`` file, which is only read. Raises CorruptRecord if it does not hold together."""
    return parse_aborted(path.read_bytes(), path)


def parse_aborted(data: bytes, path: Path) -> list[AbortedTransaction]:
    """The entries in ``data``. Raises CorruptRecord if they do not hold together; it names ``path``."""
    if len(data) % _ENTRY.size:
        raise CorruptRecord(f"{path} ends in the middle of an entry")
    entries: list[AbortedTransaction] = []
    previous = -1
    for version, producer_id, first, last, stable in _ENTRY.iter_unpack(data):
        entry = AbortedTransaction(producer_id, first, last, stable)
        if version != _VERSION or not 0 <= first <= last or last <= previous:
            raise CorruptRecord(f"{path}: entry {len(entries)} is {entry}, version {version}")
        previous = last
        entries.append(entry)
    return entries


class TransactionIndex:
    """Appended to by the log's writer, read by anyone. Not durable until ``flush``."""

    def __init__(self, path: Path, base_offset: int) -> None:
        self.path = path
        self._base_offset = base_offset
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC) if path.exists() else -1
        self._size = os.fstat(self._fd).st_size if self._fd >= 0 else 0
        self._is_ragged = False
        self._changing = threading.Lock()  # or a flush would cut off what is being written behind the rags

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)

    def entries(self) -> list[AbortedTransaction]:
        """Every entry. Raises CorruptRecord if the file does not hold together."""
        return parse_aborted(os.pread(self._fd, self._size, 0), self.path) if self._size else []

    def append(self, entry: AbortedTransaction) -> None:
        """Raises LogError if the entry's marker does not lie beyond the last one's, OSError if the disk refuses.

        Nothing has changed then.
        """
        last = self._read(self._count - 1, 1) if self._count else []
        if last and entry.last_offset <= last[0].last_offset:
            raise LogError(f"{self.path}: marker {entry.last_offset} after {last[0].last_offset}")
        if self._fd < 0:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        with self._changing:
            self._cut_rags()
            try:
                write_all(self._fd, _ENTRY.pack(_VERSION, *entry), self._size)
            except OSError:
                self._is_ragged = True
                self._cut_rags()
                raise
            self._size += _ENTRY.size

    def overlapping(self, start: int, end: int) -> tuple[list[AbortedTransaction], bool]:
        """The transactions that have records in ``start <= offset < end``; and whether later segments can have none.

        Raises CorruptRecord if what is read does not hold together.
        """
        found = []
        for entry in self._entries_from(self._first_ended_at(start)):
            if entry.first_offset < end:
                found.append(entry)
            if entry.last_stable_offset >= end:
                return found, True
        return found, False

    def marker_behind(self, offset: int, count: int) -> int | None:
        """The offset of the marker that comes ``count`` markers behind the first one at or beyond ``offset``; None if
        there is none.
        """
        number = self._first_ended_at(offset) + count
        return self._read(number, 1)[0].last_offset if number < self._count else None

    def _first_ended_at(self, offset: int) -> int:
        """The number of the first entry whose marker is at or beyond ``offset``."""
        return bisect_left(range(self._count), offset, key=lambda number: self._read(number, 1)[0].last_offset)

    @property
    def _count(self) -> int:
        if self._size % _ENTRY.size:
            raise CorruptRecord(f"{self.path} ends in the middle of an entry")
        return self._size // _ENTRY.size

    def _read(self, number: int, count: int) -> list[AbortedTransaction]:
        found = parse_aborted(os.pread(self._fd, count * _ENTRY.size, number * _ENTRY.size), self.path)
        if len(found) < count:
            raise CorruptRecord(f"{self.path} ends before its entry {number + count - 1}")
        return found

    def _entries_from(self, number: int) -> Iterator[AbortedTransaction]:
        previous = -1
        while number < self._count:
            for entry in self._read(number, min(_A_READ, self._count - number)):
                if entry.last_offset <= previous:
                    raise CorruptRecord(f"{self.path}: marker {entry.last_offset} after {previous}")
                previous = entry.last_offset
                yield entry
                number += 1

    def truncate_to(self, offset: int) -> None:
        """Drop every entry whose marker is at or beyond ``offset``."""
        self.cut(self._first_ended_at(offset) * _ENTRY.size)

    def reset(self) -> None:
        """Forget all entries, ready to be rebuilt."""
        self.cut(0)

    def cut(self, size: int) -> None:
        """Keep the first ``size`` bytes; durable after ``flush``.

        If the disk refuses, the rest counts as gone all the same, and goes before anything else is written.
        """
        with self._changing:
            if size < self._size:
                self._size = size
                self._is_ragged = True
            self._cut_rags()

    def _cut_rags(self) -> None:
        """What lies behind the last entry goes, if the disk refused to cut it off before. With ``_changing`` held."""
        if self._is_ragged:
            os.ftruncate(self._fd, self._size)
            self._is_ragged = False

    @property
    def size_in_bytes(self) -> int:
        return self._size

    def sanity_check(self) -> None:
        """Raises CorruptRecord if the entries cannot be those of this segment."""
        for entry in self.entries():
            if entry.last_offset < self._base_offset:
                raise CorruptRecord(f"{self.path}: marker {entry.last_offset} lies before {self._base_offset}")

    def flush(self) -> None:
        """All entries are on the disk when this returns."""
        if self._is_ragged:
            with self._changing:
                self._cut_rags()
        sync_descriptor(self._fd)

    def close(self) -> None:
        """Let go of the file. Closing twice is closing once."""
        with self._changing:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd, self._size, self._is_ragged = -1, 0, False
